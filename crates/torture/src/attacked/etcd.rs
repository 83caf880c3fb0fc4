//! A group of three etcd members, each behind a link to the others.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;

use super::data_dir::{DataDir, GroupCopies};
use super::{FaultResult, run};
use crate::fault::FaultKind;
use crate::proxy::Proxy;
use crate::servers::etcd::Etcd as Group;
use crate::target::AttackedServer;

const MEMBERS: usize = 3;

/// A running group.
pub(super) struct Etcd {
    group: Group,
    /// What others reach each member through.
    links: Vec<Proxy>,
    /// Which member suffers next.
    turn: usize,
    older: GroupCopies,
    data_dir: DataDir,
}

impl Etcd {
    pub(super) fn start(data_dir: DataDir) -> Self {
        let mut links = Vec::new();
        let link = |port: u16| {
            let link = Proxy::to(SocketAddr::from(([127, 0, 0, 1], port)));
            links.push(link);
            links[links.len() - 1].address()
        };
        // What is written over and over is not kept.
        let settings = ["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1m"];
        let group = Group::start_with(MEMBERS, &settings, link, || data_dir.folder());
        Self { group, links, turn: 0, older: GroupCopies::default(), data_dir }
    }

    fn ctl(&self, words: &[&str]) -> FaultResult {
        let mut command = self.group.etcdctl(&self.group.hosts());
        command.args(words);
        run(command)
    }

    fn delete_sessions(&self) -> FaultResult {
        let keys = self.group.ctl(&["get", "--prefix", "tenure/", "--keys-only"]);
        let session = |key: &&str| key.contains("/session/");
        keys.lines().filter(session).try_for_each(|key| self.ctl(&["del", key]))
    }
}

impl AttackedServer for Etcd {
    fn url(&self) -> String {
        format!("etcd://{}/tenure", self.group.hosts())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{
            DeleteRows, Flush, MemberCut, MemberFreeze, MemberKill, ReadOnly, Restore, StoreFreeze, StoreKill,
        };
        &[StoreKill, StoreFreeze, ReadOnly, MemberKill, MemberFreeze, MemberCut, Flush, DeleteRows, Restore]
    }

    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        self.turn = (self.turn + 1) % MEMBERS;
        let turn = self.turn;
        match kind {
            FaultKind::MemberKill => self.group.stop(turn),
            FaultKind::MemberFreeze => self.group.signal(turn, Signal::STOP),
            FaultKind::MemberCut => self.links[turn].black_hole(),
            FaultKind::StoreKill => self.group.stop_all(),
            FaultKind::StoreFreeze => self.group.signal_all(Signal::STOP),
            FaultKind::ReadOnly => return self.group.raise_nospace(turn),
            FaultKind::Restore => {
                self.older.keep(&mut self.group, &self.data_dir);
                self.group.launch_all();
            }
            FaultKind::Flush => return self.ctl(&["del", "--prefix", "tenure/"]),
            FaultKind::DeleteRows => return self.delete_sessions(),
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::MemberCut => self.links[self.turn].heal(),
            FaultKind::MemberFreeze | FaultKind::StoreFreeze => {
                self.group.signal_all(Signal::CONT);
            }
            FaultKind::Restore => self.older.put_back(&mut self.group),
            _ => {}
        }
        self.group.launch_all();
        match kind {
            FaultKind::ReadOnly => self.ctl(&["alarm", "disarm"]),
            _ => Ok(()),
        }
    }
}
