//! A group of three etcd members, each behind a link to the others.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::data_dir::DataDir;
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
    older: Vec<TempDir>,
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
        Self { group, links, turn: 0, older: Vec::new(), data_dir }
    }

    fn all(&mut self, what: impl Fn(&mut Group, usize)) {
        (0..MEMBERS).for_each(|nth| what(&mut self.group, nth));
    }

    /// Every member is ended, and what it had is copied.
    fn keep_copies(&mut self) {
        self.all(Group::stop);
        let copies = (0..MEMBERS).filter_map(|nth| Some(self.data_dir.copy_of(self.group.data(nth)?.path())));
        self.older = copies.collect();
        self.group.launch_all();
    }

    /// Every member goes on with what there was then.
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
            FaultKind::StoreKill => self.all(Group::stop),
            FaultKind::StoreFreeze => self.all(|group, nth| group.signal(nth, Signal::STOP)),
            FaultKind::ReadOnly => return self.group.raise_nospace(turn),
            FaultKind::Restore => self.keep_copies(),
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
                self.all(|group, nth| group.signal(nth, Signal::CONT));
            }
            FaultKind::Restore => self.put_back_copies(),
            _ => {}
        }
        self.group.launch_all();
        match kind {
            FaultKind::ReadOnly => self.ctl(&["alarm", "disarm"]),
            _ => Ok(()),
        }
    }
}
