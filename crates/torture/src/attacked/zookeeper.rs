//! An ensemble of three ZooKeeper servers.

use std::time::Duration;

use rustix::process::Signal;

use super::FaultResult;
use super::data_dir::{DataDir, GroupCopies};
use crate::fault::FaultKind;
use crate::servers::zookeeper::ZooKeeper as Ensemble;
use crate::target::AttackedServer;

const SERVERS: usize = 3;
const ROOT: &str = "/tenure";

/// A running ensemble.
pub(super) struct ZooKeeper {
    ensemble: Ensemble,
    /// Which server suffers next.
    turn: usize,
    older: GroupCopies,
    data_dir: DataDir,
}

impl ZooKeeper {
    pub(super) fn start(data_dir: DataDir) -> Self {
        let ensemble = Ensemble::start_with(SERVERS, "", || data_dir.folder());
        Self { ensemble, turn: 0, older: GroupCopies::default(), data_dir }
    }

    /// Deletes all znodes that lie so many levels under the top and have that name, or everything.
    fn delete(&self, kind: Option<&str>) -> FaultResult {
        let told = |error: std::io::Error| error.to_string();
        let Some(kind) = kind else {
            return self.ensemble.delete_all(0, "", ROOT).map(drop).map_err(told);
        };
        for namespace in self.ensemble.children(0, "", ROOT).map_err(told)? {
            let space = format!("{ROOT}/{namespace}");
            for epoch in self.ensemble.children(0, "", &space).map_err(told)? {
                self.ensemble.delete_all(0, "", &format!("{space}/{epoch}/{kind}")).map_err(told)?;
            }
        }
        Ok(())
    }
}

impl AttackedServer for ZooKeeper {
    fn url(&self) -> String {
        format!("zookeeper://{}{ROOT}", self.ensemble.hosts())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{
            DeleteRows, DiskFull, Flush, MemberFreeze, MemberKill, Restore, StoreFreeze, StoreKill,
        };
        &[StoreKill, StoreFreeze, DiskFull, MemberKill, MemberFreeze, Flush, DeleteRows, Restore]
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        self.turn = (self.turn + 1) % SERVERS;
        let turn = self.turn;
        match kind {
            FaultKind::MemberKill => self.ensemble.stop(turn),
            FaultKind::MemberFreeze => self.ensemble.signal(turn, Signal::STOP),
            FaultKind::StoreKill => self.ensemble.stop_all(),
            FaultKind::StoreFreeze => self.ensemble.signal_all(Signal::STOP),
            FaultKind::DiskFull => return self.data_dir.fill(),
            FaultKind::Restore => {
                self.older.keep(&mut self.ensemble, &self.data_dir);
                self.ensemble.launch_all();
            }
            FaultKind::Flush => return self.delete(None),
            FaultKind::DeleteRows => return self.delete(Some("session")),
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::MemberFreeze | FaultKind::StoreFreeze => {
                self.ensemble.signal_all(Signal::CONT);
            }
            FaultKind::Restore => self.older.put_back(&mut self.ensemble),
            FaultKind::DiskFull => {
                self.data_dir.clear()?;
                self.ensemble.stop_all();
            }
            _ => {}
        }
        self.ensemble.launch_all();
        Ok(())
    }
}
