//! A group of three NATS servers, each pair of which has a link.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::FaultResult;
use super::data_dir::DataDir;
use crate::fault::FaultKind;
use crate::proxy::Proxy;
use crate::servers::nats::Nats as Group;
use crate::target::AttackedServer;

const SERVERS: usize = 3;
const BUCKET: &str = "tenure";

/// A running group.
pub(super) struct Nats {
    group: Group,
    /// What each pair of servers reach each other through.
    links: Vec<(usize, usize, Proxy)>,
    /// Which server suffers next.
    turn: usize,
    older: Vec<TempDir>,
    data_dir: DataDir,
}

impl Nats {
    pub(super) fn start(data_dir: DataDir) -> Self {
        let mut links = Vec::new();
        let link = |from: usize, to: usize, port: u16| {
            let proxy = Proxy::to(SocketAddr::from(([127, 0, 0, 1], port)));
            let address = proxy.address();
            links.push((from, to, proxy));
            address
        };
        let group = Group::start_with(SERVERS, "", "", link, || data_dir.folder());
        Self { group, links, turn: 0, older: Vec::new(), data_dir }
    }

    fn all(&mut self, what: impl Fn(&mut Group, usize)) {
        (0..SERVERS).for_each(|nth| what(&mut self.group, nth));
    }

    /// The links of one server to the others.
    fn links_of(&self, nth: usize) -> impl Iterator<Item = &Proxy> {
        self.links.iter().filter(move |(from, to, _)| [*from, *to].contains(&nth)).map(|(_, _, link)| link)
    }

    /// Every server is ended, and what it had is copied.
    fn keep_copies(&mut self) {
        self.all(Group::stop);
        let copies = (0..SERVERS).filter_map(|nth| Some(self.data_dir.copy_of(self.group.data(nth)?.path())));
        self.older = copies.collect();
        self.group.launch_all();
    }

    /// Every server goes on with what there was then.
    fn put_back_copies(&mut self) {
        let older = std::mem::take(&mut self.older);
        if older.is_empty() {
            return;
        }
        self.all(Group::stop);
        for (nth, older) in older.into_iter().enumerate() {
            if let Some(data) = self.group.data(nth) {
                *data = older;
            }
        }
    }
}

impl AttackedServer for Nats {
    fn url(&self) -> String {
        format!("nats://{}/{BUCKET}?sync=always", self.group.hosts())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{
            DeleteRows, DiskFull, Flush, MemberCut, MemberFreeze, MemberKill, Restore, Slow, StoreFreeze,
            StoreKill,
        };
        &[
            StoreKill,
            StoreFreeze,
            Slow,
            DiskFull,
            MemberKill,
            MemberFreeze,
            MemberCut,
            Flush,
            DeleteRows,
            Restore,
        ]
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        self.turn = (self.turn + 1) % SERVERS;
        let turn = self.turn;
        match kind {
            FaultKind::MemberKill => self.group.stop(turn),
            FaultKind::MemberFreeze => self.group.signal(turn, Signal::STOP),
            FaultKind::MemberCut => self.links_of(turn).for_each(Proxy::black_hole),
            FaultKind::StoreKill => self.all(Group::stop),
            FaultKind::StoreFreeze => self.all(|group, nth| group.signal(nth, Signal::STOP)),
            // Nothing is written until the replicas have elected another leader.
            FaultKind::Slow => return self.group.step_down(BUCKET),
            FaultKind::DiskFull => return self.data_dir.fill(),
            FaultKind::Restore => self.keep_copies(),
            FaultKind::Flush => return self.group.purge(BUCKET, ">").map(drop),
            FaultKind::DeleteRows => return self.group.purge(BUCKET, "*.*.session.*").map(drop),
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::MemberCut => self.links_of(self.turn).for_each(Proxy::heal),
            FaultKind::MemberFreeze | FaultKind::StoreFreeze => {
                self.all(|group, nth| group.signal(nth, Signal::CONT));
            }
            FaultKind::Restore => self.put_back_copies(),
            // A server whose disk was full has turned JetStream off until it is started again.
            FaultKind::DiskFull => {
                self.data_dir.clear()?;
                self.all(Group::stop);
            }
            _ => {}
        }
        self.group.launch_all();
        Ok(())
    }
}
