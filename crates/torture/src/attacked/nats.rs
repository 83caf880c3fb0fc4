//! A group of three NATS servers, each pair of which has a link.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;

use super::FaultResult;
use super::data_dir::{DataDir, GroupCopies};
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
    older: GroupCopies,
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
        Self { group, links, turn: 0, older: GroupCopies::default(), data_dir }
    }

    /// The links of one server to the others.
    fn links_of(&self, nth: usize) -> impl Iterator<Item = &Proxy> {
        self.links.iter().filter(move |(from, to, _)| [*from, *to].contains(&nth)).map(|(_, _, link)| link)
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
            FaultKind::StoreKill => self.group.stop_all(),
            FaultKind::StoreFreeze => self.group.signal_all(Signal::STOP),
            // Nothing is written until the replicas have elected another leader.
            FaultKind::Slow => return self.group.step_down(BUCKET),
            FaultKind::DiskFull => return self.data_dir.fill(),
            FaultKind::Restore => {
                self.older.keep(&mut self.group, &self.data_dir);
                self.group.launch_all();
            }
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
                self.group.signal_all(Signal::CONT);
            }
            FaultKind::Restore => self.older.put_back(&mut self.group),
            // A server whose disk was full has turned JetStream off until it is started again.
            FaultKind::DiskFull => {
                self.data_dir.clear()?;
                self.group.stop_all();
            }
            _ => {}
        }
        self.group.launch_all();
        Ok(())
    }
}
