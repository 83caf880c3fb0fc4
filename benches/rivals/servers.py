"""Private servers on free loopback ports, each in a directory of its own: how to start them, and what they count."""

import collections
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "target/tools"
RIVALS = ROOT / "target/rivals"
NODES = 2_000  # how many candidates a server may see; the API server knows each by a token of its own


def said(*argv):
    """What a command prints."""
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True).stdout


def fetched(url):
    return urllib.request.urlopen(url, timeout=10).read().decode()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`for_rival` says where it is to rivals, `url` to Tenure. `count` gives what it counted since it started, first what tables show."""

    patience = 60
    stop_signal = signal.SIGKILL

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rivals-"))
        self.directory.chmod(0o755)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes = []
        try:
            self.start()
            self.await_start()
        except BaseException:
            self.stop()
            raise

    def launch(self, *argv):
        with open(self.directory / "log", "a") as log:
            argv = [str(a) for a in argv]
            self.processes.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"))

    def await_start(self):
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            if any(process.poll() is not None for process in self.processes):
                break
            try:
                if self.is_ready():
                    return
            except (OSError, subprocess.SubprocessError):
                pass
            time.sleep(0.1)
        raise RuntimeError(f"{type(self).__name__} does not start:\n" + (self.directory / "log").read_text()[-2000:])

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(self.stop_signal)
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def is_ready(self):
        return bool(self.count())

    def for_rival(self, node):
        return self.address

    def url(self, node):
        return f"{self.scheme}://{self.address}/tenure"


class Postgres(Server):
    """Not as root: the server refuses to. River's tables are there too."""

    title = "PostgreSQL"
    settings = "as installed"
    stop_signal = signal.SIGINT  # its processes share memory that only it gives back

    def start(self):
        data, bin_ = self.directory / "data", sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        data.mkdir()
        if user:
            shutil.chown(data, "postgres")
        said(*user, f"{bin_}/initdb", "-D", data, "-A", "trust", "-U", "postgres")
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={data}", "max_connections=300"]
        settings.append("shared_preload_libraries=pg_stat_statements")
        self.launch(*user, f"{bin_}/postgres", "-D", data, "-p", self.port, *(word for s in settings for word in ("-c", s)))
        self.address = self.url("")

    def await_start(self):
        super().await_start()
        said(RIVALS / "bin/rival-river", "-store", self.address, "-migrate")

    def is_ready(self):
        self.sql("create extension if not exists pg_stat_statements")
        return True

    def sql(self, query):
        return said("psql", "-qAt", self.address, "-c", query)

    def url(self, node):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def count(self):
        return {"statements": int(self.sql("select sum(calls) from pg_stat_statements where query !~ 'pg_stat_statements'"))}

    @staticmethod
    def version():
        return re.search(r"[\d.]+", said(sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))[-1], "--version"))[0]


class MariaDb(Server):
    title = "MariaDB"
    settings = "as installed"
    scheme = "mysql"

    def start(self):
        data = self.directory / "data"
        said("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
             f"--user={self.user()}", "--skip-test-db")
        self.launch("mariadbd", "--no-defaults", f"--user={self.user()}", f"--datadir={data}", f"--port={self.port}",
                    "--bind-address=127.0.0.1", f"--socket={self.directory}/socket")

    @staticmethod
    def user():
        return "root" if os.getuid() == 0 else os.environ["USER"]

    def is_ready(self):
        self.sql("create database if not exists tenure")
        return True

    def sql(self, query):
        return said("mariadb", "--no-defaults", "-uroot", f"--socket={self.directory}/socket", "-BNe", query)

    def url(self, node):
        return f"mysql://root@{self.address}/tenure"

    def count(self):
        return {"questions": int(self.sql("show global status like 'Questions'").split()[1])}

    @staticmethod
    def version():
        return re.search(r"Ver ([\d.]+)", said("mariadbd", "--version"))[1]


class Redis(Server):
    title = "Redis"
    settings = "`appendfsync always`"

    def start(self):
        self.address = f"redis://{self.address}"
        self.launch("redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--dir", self.directory,
                    "--appendonly", "yes", "--appendfsync", "always")

    def url(self, node):
        return f"{self.address}/0"

    def count(self):
        info = said("redis-cli", "-p", self.port, "info", "stats")
        figure = lambda name: int(re.search(rf"{name}:(\d+)", info)[1])
        return {"requests read": figure("total_reads_processed"),
                "commands, also those in scripts": figure("total_commands_processed")}

    @staticmethod
    def version():
        return re.search(r"v=([\d.]+)", said("redis-server", "--version"))[1]


def figure(metrics, name):
    """The sum of a metric over its labels."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if re.match(rf"{name}[ {{]", line))


class Etcd(Server):
    title = "etcd"
    settings = "one member"
    scheme = "etcd"

    def start(self):
        client, peer = f"http://{self.address}", f"http://127.0.0.1:{free_port()}"
        self.launch("etcd", "--data-dir", self.directory / "data", "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                    "--log-level", "error")

    def is_ready(self):
        return '"true"' in fetched(f"http://{self.address}/health")

    def count(self):
        metrics = fetched(f"http://{self.address}/metrics")
        return {"messages received": figure(metrics, "grpc_server_msg_received_total"),
                "writes": figure(metrics, "etcd_mvcc_put_total") + figure(metrics, "etcd_mvcc_delete_total")}

    @staticmethod
    def version():
        return re.search(r"etcd Version: (\S+)", said("etcd", "--version"))[1]


class ZooKeeper(Server):
    title = "ZooKeeper"
    settings = "one server, tick of 2 s"
    scheme = "zookeeper"

    def start(self):
        config = self.directory / "zoo.cfg"
        config.write_text(f"tickTime=2000\ndataDir={self.directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
                          "admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n")
        self.launch("java", "-cp", f"{TOOLS}/zookeeper/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)

    def word(self, word):
        with socket.create_connection(("127.0.0.1", self.port), 5) as s:
            s.sendall(word.encode())
            return b"".join(iter(lambda: s.recv(65536), b"")).decode()

    def is_ready(self):
        return "zk_packets_received" in self.word("mntr")

    def count(self):
        return {"packets received": int(re.search(r"^zk_packets_received\t(\d+)", self.word("mntr"), re.M)[1])}

    @staticmethod
    def version():
        with zipfile.ZipFile(TOOLS / "zookeeper/zookeeper.jar") as jar:
            return re.search(r"^Implementation-Version: (\S+)", jar.read("META-INF/MANIFEST.MF").decode(), re.M)[1]


class Nats(Server):
    title = "NATS"
    settings = "JetStream, one server, `sync_interval: always`"
    scheme = "nats"

    def start(self):
        self.monitor, config = free_port(), self.directory / "nats.conf"
        config.write_text(f'listen: "{self.address}"\nhttp: "127.0.0.1:{self.monitor}"\n'
                          f'jetstream {{ store_dir: "{self.directory}/data", sync_interval: always }}\nmax_payload: 2MB\n')
        self.launch(TOOLS / "bin/nats-server", "-c", config)

    def url(self, node):
        return super().url(node) + "?sync=always"

    def count(self):
        return {"messages received": json.loads(fetched(f"http://127.0.0.1:{self.monitor}/varz"))["in_msgs"]}

    @staticmethod
    def version():
        return re.search(r"v([\d.]+)", said(TOOLS / "bin/nats-server", "--version"))[1]


SECRETS = """set -e; cd "$1"; curve="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $curve -days 2 -keyout ca.key -out ca.pem -subj /CN=authority -addext basicConstraints=critical,CA:TRUE
openssl req $curve -keyout server.key -out server.csr -subj /CN=api
printf 'subjectAltName=IP:127.0.0.1\\n' > extensions
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile extensions
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out account.key"""

AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"], "rules": [
    {"level": "Metadata", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]}, {"level": "None"}]}

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
contexts:
- name: c
  context: {{cluster: k, user: u}}
users:
- name: u
  user: {{token: token-{node}}}
clusters:
- name: k
  cluster:
    server: https://{address}
    certificate-authority: {authority}
"""


class Kubernetes(Server):
    """An API server on an etcd of its own. Every candidate is a user, so that the audit log tells them apart."""

    title = "Kubernetes"
    settings = "one API server, one member of etcd, audit log of Leases"
    patience = 300

    def start(self):
        self.etcd = Etcd()
        self.counted, self.read = collections.Counter(), 0
        d = self.directory
        said("sh", "-c", SECRETS, "sh", d)
        (d / "tokens").write_text("".join(f'token-n{i},n{i},n{i},"system:masters"\n' for i in range(NODES)))
        (d / "policy").write_text(json.dumps(AUDIT))
        files = {"tls-cert-file": "server.pem", "tls-private-key-file": "server.key", "token-auth-file": "tokens",
                 "service-account-key-file": "account.key", "service-account-signing-key-file": "account.key",
                 "audit-policy-file": "policy", "audit-log-path": "audit"}
        self.launch(TOOLS / "bin/kube-apiserver", f"--etcd-servers=http://{self.etcd.address}", f"--secure-port={self.port}",
                    "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--authorization-mode=RBAC",
                    "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://rivals",
                    "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none", f"--cert-dir={d}",
                    "--audit-log-maxsize=4000", *(f"--{flag}={d}/{file}" for flag, file in files.items()))

    def stop(self):
        super().stop()
        self.etcd.stop()

    def is_ready(self):
        ready = said("curl", "-s", "--max-time", "5", "--cacert", self.directory / "ca.pem",
                     "-H", "Authorization: Bearer token-n0", f"https://{self.address}/readyz")
        return ready == "ok"

    def for_rival(self, node):
        """A kubeconfig."""
        file = self.directory / f"kubeconfig-{node}"
        file.write_text(KUBECONFIG.format(node=node, address=self.address, authority=self.directory / "ca.pem"))
        return file

    def url(self, node):
        return f"kubernetes:default?kubeconfig={self.for_rival(node)}"

    def count(self):
        """From the audit log: it is there even when the API server is too busy to answer."""
        with open(self.directory / "audit") as log:
            log.seek(self.read)
            for line in iter(log.readline, ""):
                if not line.endswith("\n"):
                    break
                self.read += len(line.encode())
                self.note(json.loads(line))
        return {"requests": self.counted["requests"], "writes": self.counted["writes"], **self.counted}

    def note(self, event):
        user = event["user"]["username"]
        if re.fullmatch(r"n\d+", user):
            self.counted["requests"] += 1
            self.counted["writes"] += event["verb"] not in ("get", "list", "watch")
            self.counted[f"requests of {user}"] += 1

    @staticmethod
    def version():
        return said(TOOLS / "bin/kube-apiserver", "--version").split()[1].lstrip("v")


KINDS = [Postgres, Redis, Etcd, Kubernetes, ZooKeeper, MariaDb, Nats]


def start(kind):
    """Starts a server; a port that was free may be taken meanwhile."""
    for attempt in range(3):
        try:
            return kind()
        except RuntimeError:
            if attempt == 2:
                raise
