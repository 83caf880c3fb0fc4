"""What is measured: ways to elect a leader, each on its server, Tenure beside the rivals."""

import dataclasses
import os
import pathlib
import re
import typing

import servers
from candidates import COMMAND
from servers import RIVALS, ROOT, said

TENURE = os.environ.get("TENURE", str(ROOT / "target/release/tenure"))
EVENTS = frozenset({"handover", "crash", "freeze"})
EVERYTHING = EVENTS | {"cost"}


@dataclasses.dataclass(frozen=True)
class Subject:
    name: str
    kind: type  # of server
    lease: int  # in seconds
    argv: typing.Callable  # of server, node, role and number of roles
    verbs: frozenset = EVERYTHING
    has_command: bool = False  # which may outlive it
    ends_with_command: bool = False  # SIGTERM goes to the command: the tool itself would leave it behind
    is_silent: bool = False  # says nothing but that it is elected, in words of its own
    most_roles: int = 1_000  # in one process
    settle: float = 0.3  # until a new candidate takes part, in seconds

    @property
    def role(self):
        """Subjects on one server must not meet."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def run(*more):
    return lambda server, node, role, roles: [
        TENURE, "run", "--store", server.url(node), "--namespace", role, "--role", role, "--node", node,
        "--ttl", "5s", "--quiet", *more, "--", COMMAND]


def agent(server, node, role, roles):
    config = pathlib.Path(server.directory) / f"agent-{roles}.toml"
    config.write_text("".join(f'[[role]]\nname = "{role}-{i}"\n' for i in range(roles)))
    return [TENURE, "agent", "--config", config, "--store", server.url(node), "--set", f"node.name={node}",
            "--set", "timing.ttl=5s", "--set", "http.socket=none"]


def go(name, ttl=0):
    return lambda server, node, role, roles: [
        RIVALS / "bin" / f"rival-{name}", "-store", server.for_rival(node), "-node", node, "-role", role, "-ttl", f"{ttl}s", "-roles", roles]


def java(main, ttl=0, *more):
    path = f"{RIVALS}/classes:{RIVALS}/jars/*"
    return lambda server, node, role, roles: ["java", "-cp", path, main, server.for_rival(node), node, role, ttl, roles, *more]


def etcdctl(*words):
    return lambda server, node, role, roles: [
        "etcdctl", "--endpoints", server.for_rival(node), *words, role, COMMAND if words[0] == "lock" else node]


def tenure(kind):
    return [Subject("tenure run", kind, 5, run(), has_command=True, most_roles=1),
            Subject("tenure agent", kind, 5, agent, frozenset({"cost"}))]


def on_disconnect(kind):
    takeover = run("--takeover", "on-disconnect")
    return Subject("tenure run, on-disconnect", kind, 5, takeover, frozenset({"crash"}), has_command=True)


def jvm(name, kind, lease, argv, verbs=EVERYTHING):
    return Subject(name, kind, lease, argv, verbs, settle=1.5)


SUBJECTS = [
    *tenure(servers.Postgres),
    on_disconnect(servers.Postgres),
    Subject("River", servers.Postgres, 15, go("river"), most_roles=1),
    *tenure(servers.Redis),
    jvm("Redisson", servers.Redis, 5, java("Redisson", 5)),
    jvm("Redisson, asks before each line", servers.Redis, 5, java("Redisson", 5, "ask"), frozenset({"freeze"})),
    jvm("Redisson, default", servers.Redis, 30, java("Redisson")),
    *tenure(servers.Etcd),
    Subject("Election", servers.Etcd, 5, go("etcd", 5)),
    Subject("Election, default", servers.Etcd, 60, go("etcd")),
    Subject("etcdctl lock", servers.Etcd, 5, etcdctl("lock", "--ttl", "5"), EVENTS, has_command=True, ends_with_command=True),
    Subject("etcdctl elect", servers.Etcd, 60, etcdctl("elect"), frozenset({"handover", "crash"}), is_silent=True),
    *tenure(servers.Kubernetes),
    Subject("client-go", servers.Kubernetes, 5, go("kubernetes", 5)),
    Subject("client-go, default", servers.Kubernetes, 15, go("kubernetes")),
    *tenure(servers.ZooKeeper),
    jvm("Curator", servers.ZooKeeper, 5, java("Curator", 5)),
    jvm("Curator, default", servers.ZooKeeper, 60, java("Curator")),
    *tenure(servers.MariaDb),
    on_disconnect(servers.MariaDb),
    *tenure(servers.Nats),
]


def versions():
    """Of everything that is measured, as it says itself."""
    found = {kind.title: kind.version() for kind in servers.KINDS}
    modules = said("go", "version", "-m", *sorted((RIVALS / "bin").glob("rival-*")))
    for title, module in [("River", "github.com/riverqueue/river"), ("etcd's Election", "go.etcd.io/etcd/client/v3"),
                          ("client-go", "k8s.io/client-go")]:
        found[title] = re.search(rf"\t{module}\tv(\S+)", modules)[1]
    for title, jar in [("Redisson", "redisson"), ("Curator", "curator-recipes")]:
        found[title] = next((RIVALS / "jars").glob(f"{jar}-[0-9]*.jar")).stem.rsplit("-", 1)[1]
    found["etcdctl"] = said("etcdctl", "version").split()[2]
    found["Tenure"] = said(TENURE, "--version").split(" ", 1)[1].strip()
    return found
