//! Private etcd clusters: one member, or a group of them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::group::{Member, Members, is_group};
use super::{Server, free_port, program, run, scratch};

const PACKAGE: &str = "etcd-server etcd-client";

/// How long a cluster may take for what it does in a moment, on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Heartbeats and elections of the members: quick, so that tests do not wait, and not so quick that a busy machine makes
/// them change leaders all the time.
const TIMES: &[&str] = &["--heartbeat-interval", "100", "--election-timeout", "1000"];

/// A cluster.
#[derive(Debug)]
pub struct Etcd {
    members: Members<EtcdPorts>,
    settings: Vec<String>,
    /// https, if clients speak TLS.
    scheme: &'static str,
}

is_group!(Etcd, EtcdPorts);

/// How members reach each other.
#[derive(Debug)]
pub struct EtcdPorts {
    /// Where others reach it, which may be a link.
    advertised: SocketAddr,
    peer: u16,
}

impl Etcd {
    /// So many members that know each other, with these settings beside those that every one needs.
    ///
    /// # Panics
    /// If they do not start, or etcd is not installed.
    #[must_use]
    pub fn start(count: usize, settings: &[&str]) -> Self {
        Self::start_with(count, settings, |peer| (Ipv4Addr::LOCALHOST, peer).into(), scratch)
    }

    /// The same, where members reach each other at what `link` makes of the port each listens on, and keep their data where
    /// `folder` says.
    ///
    /// # Panics
    /// If they do not start, or etcd is not installed.
    #[must_use]
    pub fn start_with(
        count: usize,
        settings: &[&str],
        mut link: impl FnMut(u16) -> SocketAddr,
        folder: impl FnMut() -> TempDir,
    ) -> Self {
        let ports = |_| {
            let peer = free_port();
            EtcdPorts { advertised: link(peer), peer }
        };
        let scheme = if settings.contains(&"--cert-file") { "https" } else { "http" };
        let settings = settings.iter().map(|word| (*word).to_owned()).collect();
        let mut this = Self { members: Members::new((0..count).map(ports), folder), settings, scheme };
        this.launch_all();
        this
    }

    /// Starts every member that is down, and waits until a majority has a leader.
    ///
    /// # Panics
    /// If they do not come up.
    pub fn launch_all(&mut self) {
        (0..self.count()).for_each(|nth| self.launch(nth));
        self.wait_for_leader();
    }

    /// Which member leads the others, as far as the members that answer know.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.count()).find(|nth| self.says(*nth).is_some_and(|status| status.leads))
    }

    /// The number by which members know that member.
    #[must_use]
    pub fn id(&self, nth: usize) -> Option<u64> {
        Some(self.says(nth)?.id)
    }

    /// Raises the alarm of a full database at a member, so that no member takes writes until `etcdctl alarm disarm`.
    ///
    /// # Errors
    /// If the member does not answer, or refuses.
    pub fn raise_nospace(&self, nth: usize) -> Result<(), String> {
        let id = self.id(nth).ok_or("the member does not tell its number")?;
        let body = format!("{{\"action\":\"ACTIVATE\",\"memberID\":\"{id}\",\"alarm\":\"NOSPACE\"}}");
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.address(nth))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let length = body.len();
            write!(stream, "POST /v3/maintenance/alarm HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().map_err(|error| error.to_string())?;
        if answer.contains(" 200 ") { Ok(()) } else { Err(answer) }
    }

    /// Runs `etcdctl` against all members, and gives what it printed.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn ctl(&self, words: &[&str]) -> String {
        run(self.etcdctl(&self.hosts()).args(words))
    }

    /// The command `etcdctl`, for some members.
    #[must_use]
    pub fn etcdctl(&self, hosts: &str) -> Command {
        let mut command = Command::new(program("etcdctl", PACKAGE, &["/usr/bin"]));
        let urls: Vec<_> = hosts.split(',').map(|host| format!("{}://{host}", self.scheme)).collect();
        command.env("ETCDCTL_API", "3").args(["--endpoints", &urls.join(",")]);
        command.args(["--dial-timeout", "10s", "--command-timeout", "30s"]);
        if self.scheme == "https" {
            command.args(["--insecure-skip-tls-verify"]);
            for (ours, theirs) in [("--cert-file", "--cert"), ("--key-file", "--key")] {
                let at =
                    self.settings.iter().position(|word| word == ours).expect("a server with TLS has it");
                command.args([theirs, &self.settings[at + 1]]);
            }
        }
        command
    }

    /// Waits until a majority agrees on a leader.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_for_leader(&self) {
        let began = Instant::now();
        while self.leader().is_none() {
            assert!(began.elapsed() < PATIENCE, "the members of etcd do not agree on a leader");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn launch(&mut self, nth: usize) {
        let Some(dir) = self.take_down(nth) else { return };
        let cluster: Vec<_> = self.iter().enumerate().map(named).collect();
        let (client, EtcdPorts { advertised, peer }) = (self.get(nth).client, &self.get(nth).ports);
        let mut command = Command::new(program("etcd", PACKAGE, &["/usr/bin"]));
        let clients = format!("{}://127.0.0.1:{client}", self.scheme);
        command.args(["--name", &format!("m{nth}")]).arg("--data-dir").arg(dir.path().join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")]);
        command.args(["--initial-advertise-peer-urls", &format!("http://{advertised}")]);
        command.args(["--initial-cluster", &cluster.join(",")]).args(TIMES).args(&self.settings);
        let listens = |address: SocketAddr| TcpStream::connect(address).is_ok();
        // A member answers clients once it has found the others: it is only waited for when all were started.
        let ready = |address: SocketAddr| self.count() > 1 || listens(address);
        let server = Server::start("etcd", dir, client, &mut command, ready);
        self.put_up(nth, server);
    }

    fn says(&self, nth: usize) -> Option<Status> {
        self.server(nth)?;
        let mut command = self.etcdctl(&self.address(nth).to_string());
        command.args(["endpoint", "status", "-w", "fields", "--command-timeout", "2s"]);
        let said = command.output().ok().filter(|said| said.status.success())?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" : "));
        let (id, leader) = (field("\"MemberID\"")?, field("\"Leader\"")?);
        Some(Status { id: id.parse().ok()?, leads: id == leader })
    }
}

/// How one member sees itself.
struct Status {
    id: u64,
    leads: bool,
}

fn named((nth, member): (usize, &Member<EtcdPorts>)) -> String {
    format!("m{nth}=http://{}", member.ports.advertised)
}
