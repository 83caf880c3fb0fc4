//! Settings of the designs that people come from, each with what it becomes here.
//!
//! Their intervals are upper limits: Tenure beats five times in a ttl so that two failed beats fit, whatever the old
//! interval was (FORGE's 30 s in 60 s would leave room for none).

use super::value::{Kind, Value};

/// Where a setting of another design came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the file, at this path.
    File(&'static str),
    /// In the environment, under this name; a number is in milliseconds.
    Environment(&'static str),
}

/// A setting of another design.
#[derive(Debug)]
pub struct Alias {
    /// Whose it was.
    pub design: &'static str,
    /// Where it is found.
    pub place: Place,
    /// What it becomes.
    pub becomes: &'static str,
}

const fn file(design: &'static str, path: &'static str, becomes: &'static str) -> Alias {
    Alias { design, place: Place::File(path), becomes }
}

const fn environment(name: &'static str, becomes: &'static str) -> Alias {
    Alias { design: "ServiceRadar", place: Place::Environment(name), becomes }
}

/// Every alias.
pub const ALIASES: &[Alias] = &[
    file("FORGE", "cluster.leader_election.check_interval", "timing.beat-at-most"),
    file("FORGE", "cluster.leader_election.lease_duration", "timing.ttl"),
    file("FORGE", "cluster.leader_election.refresh_interval", "timing.beat-at-most"),
    file("FORGE", "cluster.leader_election.lock_timeout", "timing.op-timeout-at-most"),
    file("Sovereign", "leaderTtl", "timing.ttl"),
    file("Sovereign", "electionInterval", "timing.beat-at-most"),
    file("Sovereign", "heartbeatInterval", "timing.beat-at-most"),
    file("Sovereign", "instanceId", "node.name"),
    environment("COORDINATOR_ELIGIBLE", "candidacy.eligible"),
    environment("COORDINATOR_ELECTION_INTERVAL", "timing.beat-at-most"),
    environment("COORDINATOR_TAKEOVER_DELAY", "candidacy.takeover-delay"),
];

impl Alias {
    /// As people find it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.place {
            Place::File(name) | Place::Environment(name) => name,
        }
    }

    /// Reads what the environment says: bare numbers are milliseconds.
    pub(super) fn read_text(&self, kind: Kind, text: &str) -> Result<Value, String> {
        match kind {
            Kind::Span if text.parse::<u64>().is_ok() => kind.read_text(&format!("{text}ms")),
            Kind::Span => Err(format!("{text:?} is not a number of milliseconds")),
            _ => kind.read_text(text),
        }
    }

    /// What people are told about it.
    pub(super) fn notice(&self, value: &Value) -> String {
        let why = if self.becomes.ends_with("-at-most") { ", an upper limit" } else { "" };
        format!("{} ({}) became {} = {value}{why}", self.name(), self.design, self.becomes)
    }
}

/// The alias at this path of the file.
pub(super) fn in_file(path: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| matches!(alias.place, Place::File(at) if at == path))
}

/// Whether aliases lie below this path of the file.
pub(super) fn below(path: &str) -> bool {
    let below = format!("{path}.");
    ALIASES.iter().any(|alias| matches!(alias.place, Place::File(at) if at.starts_with(&below)))
}

/// The names of aliases right below a path, for whoever misspelt one.
pub(super) fn names_below(path: &str) -> Vec<&'static str> {
    let below = if path.is_empty() { String::new() } else { format!("{path}.") };
    let name = |alias: &Alias| match alias.place {
        Place::File(at) => at.strip_prefix(below.as_str())?.split('.').next(),
        Place::Environment(_) => None,
    };
    ALIASES.iter().filter_map(name).collect()
}
