//! One node of a torture: a process that takes part until it is killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tenure::clock::{Clock, LeaseClock};
use tenure::{Node, SharedStore, Takeover, Time, Wall};
use tenure_testkit::judge::{Meter, Pen};
use tenure_testkit::player;
use tokio::task::JoinSet;

use super::{ROLES, fence};
use crate::exit::Exit;

/// How one is to take part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) name: String,
    /// Which process of the torture it is.
    pub(super) life: u32,
    /// Where notes and the fence are.
    pub(super) dir: PathBuf,
    pub(super) store: String,
    pub(super) namespace: String,
    pub(super) ttl: Duration,
    pub(super) on_disconnect: bool,
    /// How wrong its wall clock is, in seconds.
    pub(super) wall: i64,
}

/// A part of a ttl, in whole tenths, so that it stays a whole number of milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenths(u32);

pub(super) const SHORTER: Tenths = Tenths(8);
pub(super) const LONGER: Tenths = Tenths(15);

impl Tenths {
    pub(super) fn apply(self, ttl: Duration) -> Duration {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(millis * u64::from(self.0) / 10)
    }
}

/// The name of a node.
pub(super) fn name(node: usize) -> String {
    format!("node-{}", node + 1)
}

/// The name of a role.
pub(super) fn role(role: usize) -> String {
    format!("role-{}", role + 1)
}

/// The file that makes a node deaf as long as it is there.
pub(super) fn deaf(dir: &std::path::Path, node: &str) -> PathBuf {
    dir.join(format!("{node}.deaf"))
}

/// Takes part until it is killed.
pub(super) async fn main(how: &str) -> Result<Exit, Exit> {
    // Frozen ones must go with the torture too, which only a kill from the kernel achieves.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Exit::Failed(error.to_string()))?;
    let member: Member = serde_json::from_str(how).map_err(|error| Exit::Usage(error.to_string()))?;
    let failed = |error: std::io::Error| Exit::Failed(format!("no notes: {error}; is the disk full?"));
    let pen = Pen::in_dir(&member.dir, &member.name, member.life).map_err(failed)?;
    let _meter = Meter::start(&pen, None);
    let store = open(&member, &pen).await;
    let clock = Arc::new(WrongWall { lease: LeaseClock::new(), seconds: member.wall });
    let settings = tenure::Settings {
        ttl: Some(member.ttl),
        takeover: if member.on_disconnect { Takeover::OnDisconnect } else { Takeover::Strict },
        ..tenure::Settings::default()
    };
    let builder = || {
        let builder = Node::with_store(store.clone()).name(&member.name).namespace(&member.namespace);
        builder.timing(settings.clone()).clock(clock.clone()).drain(Duration::from_secs(1))
    };
    // A store that cannot be asked right now is no reason to give up.
    let node = loop {
        match player::start(builder(), &pen).await {
            Ok(node) => break node,
            Err(error @ (tenure::Error::Name(_) | tenure::Error::Timing(_))) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let fence = fence::client(&member.dir, &member.name, member.life);
    let mut careers = JoinSet::new();
    for number in 0..ROLES {
        let winds_down = number % 2 == 1;
        careers.spawn(player::career(node.clone(), role(number), pen.clone(), fence.clone(), winds_down));
    }
    while let Some(ended) = careers.join_next().await {
        ended.map_err(|error| Exit::Failed(error.to_string()))??;
    }
    Ok(Exit::Done)
}

/// Opens the store, however long it takes: it may be down at this very moment.
async fn open(member: &Member, pen: &Pen) -> SharedStore {
    loop {
        match tenure::store::open(&member.store) {
            Ok(store) => {
                let hearing = deaf(&member.dir, &member.name);
                return player::recorded(store, pen, Some(hearing));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// A clock that is right about leases, and wrong about the time of day.
#[derive(Debug)]
struct WrongWall {
    lease: LeaseClock,
    seconds: i64,
}

impl Clock for WrongWall {
    fn now(&self) -> Time {
        self.lease.now()
    }

    fn wall(&self) -> Wall {
        Wall(self.lease.wall().0.saturating_add_signed(self.seconds * 1_000_000))
    }

    fn fault(&self) -> bool {
        self.lease.fault()
    }
}
