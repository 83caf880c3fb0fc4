//! MariaDB with one replica that confirms each write, behind one address that leads to the primary.

use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;

use super::sql::{SqlFaults, holds, mariadb, status};
use super::{FaultResult, run_with, until};
use crate::fault::FaultKind;
use crate::judge::{DataLoss, FaultScope};
use crate::proxy::Proxy;
use crate::servers::mysql::{self, MariaDb, Mysql};
use crate::target::AttackedServer;

/// What both have. A primary whose replica says nothing for so long goes on without it, and has it confirm again later.
const SETTINGS: &[&str] = &[
    "--max-connections=200",
    "--log-bin",
    "--sync-binlog=1",
    "--binlog-format=ROW",
    "--log-slave-updates",
    "--log-bin-trust-function-creators=1",
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    "--rpl-semi-sync-master-timeout=200",
    "--rpl-semi-sync-slave-enabled=ON",
    "--slave-net-timeout=2",
];

/// The replica has applied all that it was sent.
const APPLIED: &str = "EXISTS (SELECT 1 FROM information_schema.PROCESSLIST
    WHERE COMMAND = 'Slave_SQL' AND STATE LIKE 'Slave has read all relay log%')";

/// How long to wait before the primary is asked again: a client is a process, and each write waits for the replica.
const SELDOM: Duration = Duration::from_millis(200);

/// A running pair.
pub(super) struct SemiSync {
    /// The primary, and its replica unless that is down.
    primary: Mysql,
    replica: Option<Mysql>,
    /// What nodes know the primary by.
    front: Proxy,
    /// What the replica knows it by.
    link: Proxy,
    stopped: Option<TempDir>,
    /// How many servers there were: each has a number of its own.
    servers: u32,
    /// Every second fail-over is to a replica that lags behind.
    loses: bool,
}

fn server(number: u32) -> Mysql {
    let id = format!("--server-id={number}");
    Mysql::start(&[SETTINGS, &[&id]].concat())
}

impl SemiSync {
    pub(super) fn start() -> Self {
        let primary = server(1);
        let (front, link) = (Proxy::to(primary.address()), Proxy::to(primary.address()));
        let (replica, stopped) = (None, None);
        let mut this = Self { primary, replica, front, link, stopped, servers: 1, loses: true };
        this.add_replica().and_then(|()| this.is_confirmed()).unwrap_or_else(|why| panic!("{why}"));
        this
    }

    /// Starts a replica with a copy of what the primary has.
    fn add_replica(&mut self) -> FaultResult {
        self.servers += 1;
        let replica = self.replica.insert(server(self.servers));
        copy(&self.primary, replica)?;
        let follow = format!(
            "SET GLOBAL read_only = 1; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root', \
             MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 1, MASTER_USE_GTID = slave_pos; START REPLICA",
            self.link.address().port()
        );
        MariaDb::rule(replica, &follow)
    }

    /// A write makes the server look whether it is confirmed.
    fn is_confirmed(&self) -> FaultResult {
        let (confirms, replicas) =
            (status("rpl_semi_sync_master_status"), status("rpl_semi_sync_master_clients"));
        let confirmed = format!("{confirms} = 'ON' AND {replicas} = '1'");
        until("the replica confirms each write", || {
            let asked = MariaDb::rule(&self.primary, "CREATE OR REPLACE TABLE written (one INT)");
            let confirmed = asked.is_ok() && holds(&self.primary, &confirmed);
            if !confirmed {
                std::thread::sleep(SELDOM);
            }
            confirmed
        })
    }

    /// The primary dies and the replica takes its place: with all that was acknowledged, or without what was acknowledged
    /// while it was cut off.
    fn fail_over(&mut self, lasts: Duration) -> FaultResult {
        self.is_confirmed()?;
        self.loses = !self.loses;
        if self.loses {
            self.link.black_hole();
            std::thread::sleep(lasts);
        }
        drop(self.primary.crash());
        self.link.heal();
        let Some(replica) = self.replica.take() else { return Err("there is no replica".to_owned()) };
        MariaDb::rule(&replica, "STOP REPLICA IO_THREAD")?;
        until("the replica has applied what it was sent", || holds(&replica, APPLIED))?;
        MariaDb::rule(&replica, "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = 0")?;
        self.front.lead_to(replica.address());
        self.link.lead_to(replica.address());
        self.primary = replica;
        Ok(())
    }
}

impl AttackedServer for SemiSync {
    fn url(&self) -> String {
        mysql::url(mysql::USERS[0], self.front.address())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{Failover, MemberCut, MemberFreeze, MemberKill, StoreFreeze, StoreKill};
        &[StoreKill, StoreFreeze, MemberKill, MemberFreeze, MemberCut, Failover]
    }

    /// A node that comes to another server takes that for a sign of loss. Without its replica the primary waits for a moment, and
    /// goes on.
    fn scope(&self, kind: FaultKind) -> FaultScope {
        match kind {
            FaultKind::Failover => FaultScope::Servers,
            FaultKind::StoreKill | FaultKind::StoreFreeze => FaultScope::Store,
            _ => FaultScope::Nothing,
        }
    }

    fn loses(&self, kind: FaultKind) -> DataLoss {
        if kind == FaultKind::Failover && self.loses { DataLoss::Newest } else { DataLoss::None }
    }

    /// The member of the group that suffers is the replica; the primary then goes on without it.
    fn inject(&mut self, kind: FaultKind, lasts: Duration) -> FaultResult {
        match kind {
            FaultKind::StoreKill => self.stopped = Some(self.primary.crash()),
            FaultKind::StoreFreeze => self.primary.freeze(),
            FaultKind::MemberKill => self.replica = None,
            FaultKind::MemberFreeze => self.replica.iter().for_each(Mysql::freeze),
            FaultKind::MemberCut => self.link.black_hole(),
            _ => return self.fail_over(lasts),
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::StoreKill => {
                if let Some(dir) = self.stopped.take() {
                    self.primary.launch(dir);
                }
            }
            FaultKind::StoreFreeze => self.primary.thaw(),
            FaultKind::MemberFreeze => self.replica.iter().for_each(Mysql::thaw),
            _ => self.link.heal(),
        }
        let whole = if self.replica.is_none() { self.add_replica() } else { Ok(()) };
        let whole = whole.and_then(|()| self.is_confirmed());
        if whole.is_err() {
            // The next try is with another one.
            self.replica = None;
        }
        whole
    }
}

/// Everything that a server has, and where in its log that was.
fn copy(from: &Mysql, to: &Mysql) -> FaultResult {
    let failed = |error: std::io::Error| format!("mariadb-dump: {error}; is the client installed?");
    let mut dump = mariadb("mariadb-dump", from);
    dump.args(["--single-transaction", "--master-data=1", "--gtid", "--databases", mysql::DATABASE]);
    let mut dump = dump.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut load = mariadb("mariadb", to);
    load.args(["--init-command", "SET SESSION sql_log_bin = 0"]);
    let loaded = run_with(load, dump.stdout.take().map_or_else(Stdio::null, Stdio::from));
    if loaded.is_err() {
        let _ = dump.kill();
    }
    let ended = dump.wait().map_err(failed)?;
    loaded.and_then(|()| if ended.success() { Ok(()) } else { Err(format!("mariadb-dump: {ended}")) })
}
