//! A group of peers: three members that only store, each a process behind a link of its own.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tenure::store;
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::{Server, free_port};
use tokio::runtime::Handle;

use super::home::Home;
use super::{Done, until};
use crate::torture::fault::Kind;
use crate::torture::ground::Attacked;

const MEMBERS: usize = 3;

/// Whoever knows this may take part.
const SECRET: &str = "correct-horse-battery-staple";

/// A running group.
pub(super) struct Peers {
    members: Vec<Member>,
    /// Which member suffers next.
    turn: usize,
    papers: TempDir,
    home: Home,
}

/// One member. Others know it by the address of its link.
struct Member {
    server: Option<Server>,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
    port: u16,
    link: Proxy,
}

impl Member {
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
    pub(super) fn start(home: Home) -> Self {
        let members = (0..MEMBERS).map(|_| Member::new()).collect();
        let papers = tenure_testkit::servers::scratch();
        std::fs::write(papers.path().join("secret"), SECRET).expect("a secret can be written");
        let mut this = Self { members, turn: 0, papers, home };
        for nth in 0..MEMBERS {
            let dir = this.home.folder();
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
        command.args(["peers", "serve", "--store", &url]).env_remove("TENURE_STORE");
        let ready = |address: SocketAddr| TcpStream::connect(address).is_ok();
        self.members[nth].server = Some(Server::start("a member", dir, port, &mut command, ready));
    }

    /// Starts whoever was stopped, or has ended by itself.
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
    fn answers(&self) -> Done {
        let (url, runtime) = (self.url(), Handle::current());
        until("a majority of the members answers", || {
            let asked = async { store::Peers::open(&url)?.group().await };
            runtime.block_on(asked).is_ok_and(|group| group.seats.iter().any(|seat| seat.leads))
        })
    }

    fn all(&mut self, what: impl FnMut(&mut Member)) {
        self.members.iter_mut().for_each(what);
    }

    /// Everybody is ended, and what they had is copied.
    fn keep_copies(&mut self) {
        self.all(Member::stop);
        for member in &mut self.members {
            member.older = member.stopped.as_ref().map(|dir| self.home.copy_of(dir.path()));
        }
        self.launch_all();
    }

    /// Everybody goes on with what there was then.
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

impl Attacked for Peers {
    fn url(&self) -> String {
        let addresses: Vec<String> =
            self.members.iter().map(|member| member.link.address().to_string()).collect();
        let secret = self.papers.path().join("secret");
        format!("peers://{}?secret-file={}&timeout=2s", addresses.join(","), secret.display())
    }

    fn able(&self) -> &'static [Kind] {
        use Kind::{DiskFull, MemberCut, MemberFreeze, MemberKill, Restore, StoreFreeze, StoreKill};
        &[StoreKill, StoreFreeze, MemberKill, MemberFreeze, MemberCut, DiskFull, Restore]
    }

    fn has_disk(&self) -> bool {
        self.home.has_disk()
    }

    fn strike(&mut self, kind: Kind, _: Duration) -> Done {
        self.turn = (self.turn + 1) % MEMBERS;
        let one = &mut self.members[self.turn];
        match kind {
            Kind::MemberKill => one.stop(),
            Kind::MemberFreeze => one.signal(Signal::STOP),
            Kind::MemberCut => one.link.black_hole(),
            Kind::StoreKill => self.all(Member::stop),
            Kind::StoreFreeze => self.all(|member| member.signal(Signal::STOP)),
            Kind::DiskFull => return self.home.fill(),
            Kind::Restore => self.keep_copies(),
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: Kind) -> Done {
        match kind {
            Kind::MemberCut => self.members[self.turn].link.heal(),
            Kind::MemberFreeze | Kind::StoreFreeze => self.all(|member| member.signal(Signal::CONT)),
            Kind::DiskFull => self.home.clear()?,
            Kind::Restore => self.put_back_copies(),
            _ => {}
        }
        self.launch_all();
        self.answers()
    }
}
