//! A Galera cluster of three members, each behind an address of its own that leads to another member when its own is gone.

use std::time::Duration;

use tempfile::TempDir;

use super::sql::{SqlFaults, holds, status};
use super::{FaultResult, until};
use crate::fault::FaultKind;
use crate::judge::FaultScope;
use crate::proxy::Proxy;
use crate::servers::galera;
use crate::servers::mysql::{self, MariaDb, Mysql};
use crate::target::AttackedServer;

const MEMBERS: usize = 3;

/// Galera's own switch for tests: the member neither sends nor hears anything in its group.
const CUT: [&str; 2] = ["gmcast.isolate=0", "gmcast.isolate=1"];

/// A running cluster.
pub(super) struct Galera {
    members: Vec<Mysql>,
    /// What nodes know each member by.
    fronts: Vec<Proxy>,
    stopped: Option<TempDir>,
    /// Which member suffers next.
    turn: usize,
}

impl Galera {
    pub(super) fn start() -> Self {
        let members = galera::cluster(MEMBERS, &["--max-connections=200"]);
        let fronts = members.iter().map(|member| Proxy::to(member.address())).collect();
        let this = Self { members, fronts, stopped: None, turn: 0 };
        this.is_whole().unwrap_or_else(|why| panic!("{why}"));
        this
    }

    fn is_whole(&self) -> FaultResult {
        let (size, ready) = (status("wsrep_cluster_size"), status("wsrep_ready"));
        let whole = format!("{size} = '{MEMBERS}' AND {ready} = 'ON'");
        until("the cluster has all its members", || self.members.iter().all(|member| holds(member, &whole)))
    }

    fn cut(&self, is_cut: bool) -> FaultResult {
        let words = format!("SET GLOBAL wsrep_provider_options = '{}'", CUT[usize::from(is_cut)]);
        MariaDb::rule(&self.members[self.turn], &words)
    }

    /// Where clients of the member that suffers go meanwhile.
    fn follow(&self) {
        let next = &self.members[(self.turn + 1) % MEMBERS];
        self.fronts[self.turn].lead_to(next.address());
    }
}

impl AttackedServer for Galera {
    fn url(&self) -> String {
        self.urls().swap_remove(0)
    }

    fn urls(&self) -> Vec<String> {
        self.fronts.iter().map(|front| mysql::url(mysql::USERS[0], front.address())).collect()
    }

    fn able(&self) -> &'static [FaultKind] {
        &[FaultKind::MemberKill, FaultKind::MemberFreeze, FaultKind::MemberCut]
    }

    /// A node that comes to another member takes that for a sign of loss.
    fn scope(&self, _: FaultKind) -> FaultScope {
        FaultScope::Servers
    }

    fn reads_lag(&self) -> bool {
        true
    }

    /// The clients of a member that is killed or frozen are led to the next one; those of one that is cut off stay with it.
    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        self.turn = (self.turn + 1) % MEMBERS;
        match kind {
            FaultKind::MemberKill => self.stopped = Some(self.members[self.turn].crash()),
            FaultKind::MemberFreeze => self.members[self.turn].freeze(),
            _ => return self.cut(true),
        }
        self.follow();
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::MemberKill => {
                if let Some(dir) = self.stopped.take() {
                    self.members[self.turn].launch(dir);
                }
            }
            FaultKind::MemberFreeze => self.members[self.turn].thaw(),
            _ => self.cut(false)?,
        }
        self.is_whole()?;
        self.fronts[self.turn].lead_to(self.members[self.turn].address());
        Ok(())
    }
}
