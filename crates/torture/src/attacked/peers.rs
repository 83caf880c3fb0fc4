//! A group of peers: three members that only store, each a process behind a link of its own.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::proxy::Proxy;
use crate::servers::{Server, free_port};
use rustix::process::Signal;
use tempfile::TempDir;
use tenure::store;
use tokio::runtime::Handle;

use super::data_dir::DataDir;
use super::{FaultResult, until};
use crate::fault::FaultKind;
use crate::target::AttackedServer;

const MEMBERS: usize = 3;

/// A running group.
pub(super) struct Peers {
    members: Vec<PeerMember>,
    /// Which member suffers next.
    turn: usize,
    papers: TempDir,
    data_dir: DataDir,
}

/// One member. Others know it by the address of its link.
struct PeerMember {
    server: Option<Server>,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
    port: u16,
    link: Proxy,
}

impl PeerMember {
    fn new() -> Self {
        let port = free_port();
        let link = Proxy::to(SocketAddr::from(([127, 0, 0, 1], port)));
        Self { server: None, stopped: None, older: None, port, link }
    }

    fn stop(&mut self) {
        self.stopped = self.server.take().map(Server::crash).or_else(|| self.stopped.take());
    }

    fn signal(&self, signal: Signal) {
        if let Some(server) = &self.server {
            server.signal(signal);
        }
    }
}

impl Peers {
    pub(super) fn start(data_dir: DataDir) -> Self {
        let members = (0..MEMBERS).map(|_| PeerMember::new()).collect();
        let papers = crate::servers::scratch();
        write_secret(&papers.path().join("secret")).expect("a secret can be written");
        let mut this = Self { members, turn: 0, papers, data_dir };
        for nth in 0..MEMBERS {
            let dir = this.data_dir.folder();
            this.launch(nth, dir);
        }
        this.answers().unwrap_or_else(|why| panic!("{why}"));
        this
    }

    fn launch(&mut self, nth: usize, dir: TempDir) {
        let member = &self.members[nth];
        let (port, me, data) = (member.port, member.link.address(), dir.path().join("data"));
        let url = format!("{}&me={me}&listen=127.0.0.1:{port}&dir={}", self.url(), data.display());
        let mut command = Command::new("/proc/self/exe");
        tenure_process::environment::scrub(&mut command);
        command.args(["peers", "serve", "--store", &url]);
        let ready = |address: SocketAddr| TcpStream::connect(address).is_ok();
        self.members[nth].server = Some(Server::start("a member", dir, port, &mut command, ready));
    }

    /// Starts each member that was stopped, or has ended by itself.
    fn launch_all(&mut self) {
        for nth in 0..MEMBERS {
            let member = &mut self.members[nth];
            if member.server.as_mut().is_some_and(Server::has_ended) {
                member.stop();
            }
            if let Some(dir) = member.stopped.take() {
                self.launch(nth, dir);
            }
        }
    }

    /// Waits until a majority answers.
    fn answers(&self) -> FaultResult {
        let (url, runtime) = (self.url(), Handle::current());
        until("a majority of the members answers", || {
            let asked = async { store::Peers::open(&url)?.group().await };
            runtime.block_on(asked).is_ok_and(|group| group.members.iter().any(|member| member.leads))
        })
    }

    fn all(&mut self, what: impl FnMut(&mut PeerMember)) {
        self.members.iter_mut().for_each(what);
    }

    /// All members are ended, and their data is copied.
    fn keep_copies(&mut self) {
        self.all(PeerMember::stop);
        for member in &mut self.members {
            member.older = member.stopped.as_ref().map(|dir| self.data_dir.copy_of(dir.path()));
        }
        self.launch_all();
    }

    /// All members go on with the data of that time.
    fn put_back_copies(&mut self) {
        self.all(|member| {
            if let Some(older) = member.older.take() {
                member.stop();
                member.stopped = Some(older);
            }
        });
        self.launch_all();
    }
}

impl AttackedServer for Peers {
    fn url(&self) -> String {
        let addresses: Vec<String> =
            self.members.iter().map(|member| member.link.address().to_string()).collect();
        let secret = self.papers.path().join("secret");
        format!("peers://{}?secret-file={}&timeout=2s", addresses.join(","), secret.display())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{DiskFull, MemberCut, MemberFreeze, MemberKill, Restore, StoreFreeze, StoreKill};
        &[StoreKill, StoreFreeze, MemberKill, MemberFreeze, MemberCut, DiskFull, Restore]
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        self.turn = (self.turn + 1) % MEMBERS;
        let one = &mut self.members[self.turn];
        match kind {
            FaultKind::MemberKill => one.stop(),
            FaultKind::MemberFreeze => one.signal(Signal::STOP),
            FaultKind::MemberCut => one.link.black_hole(),
            FaultKind::StoreKill => self.all(PeerMember::stop),
            FaultKind::StoreFreeze => self.all(|member| member.signal(Signal::STOP)),
            FaultKind::DiskFull => return self.data_dir.fill(),
            FaultKind::Restore => self.keep_copies(),
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::MemberCut => self.members[self.turn].link.heal(),
            FaultKind::MemberFreeze | FaultKind::StoreFreeze => {
                self.all(|member| member.signal(Signal::CONT))
            }
            FaultKind::DiskFull => self.data_dir.clear()?,
            FaultKind::Restore => self.put_back_copies(),
            _ => {}
        }
        self.launch_all();
        self.answers()
    }
}

/// For this user alone; others are rejected.
fn write_secret(file: &std::path::Path) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(tenure::store::Peers::new_secret().as_bytes())
}
