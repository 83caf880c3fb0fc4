//! Settings of the designs that people come from, each with what it becomes here.
//!
//! Their intervals are upper limits: Tenure beats four times in a ttl so that two failed beats fit, whatever the old
//! interval was (FORGE's 30 s in 60 s would leave room for none).

use toml::de::DeValue;

use super::value::{Value, ValueKind};

/// Where a setting of another design came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasSource {
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
    pub place: AliasSource,
    pub becomes: &'static str,
}

const fn file(design: &'static str, path: &'static str, becomes: &'static str) -> Alias {
    Alias { design, place: AliasSource::File(path), becomes }
}

const fn environment(name: &'static str, becomes: &'static str) -> Alias {
    Alias { design: "ServiceRadar", place: AliasSource::Environment(name), becomes }
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
    environment("COORDINATOR_ELECTION_ENABLED", "candidacy.migration"),
    file("ServiceRadar", "coordinator_election_enabled", "candidacy.migration"),
    environment("COORDINATOR_ELECTION_INTERVAL", "timing.beat-at-most"),
    environment("COORDINATOR_TAKEOVER_DELAY", "candidacy.takeover-delay"),
];

impl Alias {
    /// As people find it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.place {
            AliasSource::File(name) | AliasSource::Environment(name) => name,
        }
    }

    /// Reads what the environment says: bare numbers are milliseconds.
    pub(super) fn read_text(&self, kind: ValueKind, text: &str) -> Result<Value, String> {
        match kind {
            ValueKind::Span if text.parse::<u64>().is_ok() => kind.read_text(&format!("{text}ms")),
            ValueKind::Span => Err(format!("{text:?} is not a number of milliseconds")),
            ValueKind::Choice(_) => ValueKind::Bool.read_text(text).map(switch),
            _ => kind.read_text(text),
        }
    }

    /// Reads what the file says.
    pub(super) fn read_toml(&self, kind: ValueKind, value: &DeValue<'_>) -> Result<Value, String> {
        let read = match kind {
            ValueKind::Choice(_) => ValueKind::Bool.read_toml(value).map(switch),
            _ => kind.read_toml(value),
        };
        read.map_err(|why| format!("{}: {why}", self.name()))
    }

    /// What people are told about it.
    pub(super) fn notice(&self, value: &Value) -> String {
        let why = if self.becomes.ends_with("-at-most") { ", an upper limit" } else { "" };
        format!("{} ({}) became {} = {value}{why}", self.name(), self.design, self.becomes)
    }
}

/// What is true or false elsewhere is on or off here.
fn switch(value: Value) -> Value {
    match value {
        Value::Bool(on) => Value::Text(if on { "on" } else { "off" }.to_owned()),
        other => other,
    }
}

/// The alias at this path of the file.
pub(super) fn in_file(path: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| matches!(alias.place, AliasSource::File(at) if at == path))
}

/// Whether aliases lie below this path of the file.
pub(super) fn below(path: &str) -> bool {
    let below = format!("{path}.");
    ALIASES.iter().any(|alias| matches!(alias.place, AliasSource::File(at) if at.starts_with(&below)))
}

/// The names of aliases right below a path, for suggestions when one is misspelt.
pub(super) fn names_below(path: &str) -> Vec<&'static str> {
    let below = if path.is_empty() { String::new() } else { format!("{path}.") };
    let name = |alias: &Alias| match alias.place {
        AliasSource::File(at) => at.strip_prefix(below.as_str())?.split('.').next(),
        AliasSource::Environment(_) => None,
    };
    ALIASES.iter().filter_map(name).collect()
}
