//! One node of a torture: a process that takes part until it is killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::judge::{NoteWriter, StallMeter};
use crate::workload;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tenure::{Node, SharedStore, Takeover};
use tokio::task::JoinSet;

use crate::Error;
use crate::clock::{ClockError, WrongClock};
use crate::programs::ProgramOptions;
use crate::{ROLES, fence, programs};

/// How one is to take part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MemberOptions {
    pub(crate) name: String,
    /// Which process of the torture it is.
    pub(crate) life: u32,
    /// Where notes and the fence are.
    pub(crate) dir: PathBuf,
    pub(crate) store: String,
    pub(crate) namespace: String,
    pub(crate) ttl: Duration,
    pub(crate) on_disconnect: bool,
    /// How wrong its clocks are.
    pub(crate) clock: ClockError,
}

/// What a process of the torture is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    Node(MemberOptions),
    Command(ProgramOptions),
    Client(ProgramOptions),
}

/// A part of a ttl, in whole tenths, so that it stays a whole number of milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenths(u32);

pub(crate) const SHORTER: Tenths = Tenths(8);
pub(crate) const LONGER: Tenths = Tenths(15);

impl Tenths {
    pub(crate) fn apply(self, ttl: Duration) -> Duration {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(millis * u64::from(self.0) / 10)
    }
}

/// The name of a node.
#[must_use]
pub fn name(node: usize) -> String {
    format!("node-{}", node + 1)
}

/// The name of a role.
#[must_use]
pub fn role(role: usize) -> String {
    format!("role-{}", role + 1)
}

/// The file that makes a node drop hints as long as it exists.
pub(crate) fn hints_off(dir: &std::path::Path, node: &str) -> PathBuf {
    dir.join(format!("{node}.hints-off"))
}

/// The file that has for how long the machine of a node has been suspended.
pub(crate) fn suspended(dir: &std::path::Path, node: &str) -> PathBuf {
    dir.join(format!("{node}.suspended"))
}

/// Takes part until it is killed. `options` is the JSON that the injector passes to the process.
///
/// # Errors
/// If the options are wrong, or the node cannot take part.
pub async fn main(options: &str) -> Result<(), Error> {
    match serde_json::from_str(options).map_err(|error| Error::Usage(error.to_string()))? {
        Part::Node(member) => node(member).await,
        Part::Command(options) => programs::command(&options),
        Part::Client(options) => programs::client(&options),
    }
}

async fn node(member: MemberOptions) -> Result<(), Error> {
    // Frozen ones must go with the torture too, which only a kill from the kernel achieves.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Error::Failed(error.to_string()))?;
    let failed =
        |error: std::io::Error| Error::Failed(format!("cannot write notes: {error}; free some disk space"));
    let notes_to = NoteWriter::in_dir(&member.dir, &member.name, member.life).map_err(failed)?;
    let _meter = StallMeter::start(&notes_to, None);
    let store = open(&member, &notes_to).await;
    let suspended = suspended(&member.dir, &member.name);
    let clock = Arc::new(WrongClock::new(member.clock, Some(suspended)));
    let settings = tenure::TimingSettings {
        ttl: Some(member.ttl),
        takeover: if member.on_disconnect { Takeover::OnDisconnect } else { Takeover::Strict },
        ..tenure::TimingSettings::default()
    };
    let builder = || {
        let builder = Node::builder_with_store(store.clone()).name(&member.name).namespace(&member.namespace);
        builder.timing(settings.clone()).clock(clock.clone()).drain(Duration::from_secs(1))
    };
    // A store that cannot be asked right now is no reason to give up.
    let node = loop {
        match workload::start(builder(), &notes_to).await {
            Ok(node) => break node,
            Err(error @ (tenure::Error::Name(_) | tenure::Error::Timing(_))) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let fence = fence::client(&member.dir, &member.name, member.life);
    let mut campaigns = JoinSet::new();
    for number in 0..ROLES {
        let winds_down = number % 2 == 1;
        campaigns.spawn(workload::campaign(
            node.clone(),
            role(number),
            notes_to.clone(),
            fence.clone(),
            clock.clone(),
            winds_down,
        ));
    }
    campaigns.spawn(workload::ticks(node.clone(), notes_to.clone()));
    while let Some(ended) = campaigns.join_next().await {
        ended.map_err(|error| Error::Failed(error.to_string()))??;
    }
    Ok(())
}

/// Opens the store, however long it takes: it may be down at this very moment.
async fn open(member: &MemberOptions, notes_to: &NoteWriter) -> SharedStore {
    loop {
        match tenure::store::open(&member.store) {
            Ok(store) => {
                let hints = hints_off(&member.dir, &member.name);
                return workload::recorded(store, notes_to, Some(hints));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
