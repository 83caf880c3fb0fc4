//! The settings of a task.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Recurrence, TaskError};
use crate::Name;

/// The settings of a task. Configuration reads this very struct; [`TaskSettings::KEYS`] has a line for
/// each key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TaskSettings {
    /// Its name, of which there is one in a namespace.
    pub name: Name,
    /// When it runs: a cron expression. Either this or `every`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// When it runs: every so often.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::option")]
    pub every: Option<Duration>,
    /// The time zone of the cron expression.
    #[serde(default = "utc")]
    pub zone: String,
    /// Where it runs.
    #[serde(default, rename = "where")]
    pub place: TaskPlacement,
    /// How long a run may take.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "span::option")]
    pub timeout: Option<Duration>,
    /// What happens when a tick comes due while a run goes on.
    #[serde(default)]
    pub overlap: OverlapPolicy,
    /// Starts up to so much later, by a different span for each task and tick.
    #[serde(default, with = "span")]
    pub jitter: Duration,
    /// A tick that could not be started so long after its time is missed.
    #[serde(default = "second", with = "span")]
    pub late: Duration,
    /// The number of missed ticks that are run after all, the newest; the others are recorded as missed.
    #[serde(default = "once")]
    pub catch_up: u32,
    /// Whether a run whose leader died midway is run again by the next leader.
    #[serde(default)]
    pub rerun: bool,
    /// The number of retries of a run that failed, under the same tick.
    #[serde(default)]
    pub retries: u32,
    /// The pause before the first retry; each further one waits twice as long.
    #[serde(default = "second", with = "span")]
    pub backoff: Duration,
    /// What happens to a run when the leader has to stop.
    #[serde(default)]
    pub on_stop: StopPolicy,
    /// The number of runs kept in the ledger.
    #[serde(default = "twenty")]
    pub history: u32,
    /// What it runs: a command with its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// What it runs: an HTTP call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSettings>,
}

/// An HTTP call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HttpSettings {
    /// Where.
    pub url: String,
    /// How; `POST` by default.
    #[serde(default = "post")]
    pub method: String,
    /// Headers beside those that carry the token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// Where a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TaskPlacement {
    /// On the leader.
    #[default]
    Leader,
    /// On every node, each with a ledger of its own.
    EveryNode,
}

/// What happens when a tick comes due while a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OverlapPolicy {
    /// Passes the tick over, and records that.
    #[default]
    Skip,
    /// Runs it when the one before has ended.
    Queue,
    /// Runs both.
    Allow,
}

/// What happens to a run when the leader has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StopPolicy {
    /// It may finish within the drain time, and is cancelled after that.
    #[default]
    Finish,
    /// It is cancelled at once.
    Cancel,
}

impl TaskSettings {
    /// Every key, and what it does.
    pub const KEYS: [(&'static str, &'static str); 17] = [
        ("name", "its name, of which there is one in a namespace"),
        ("cron", "when it runs: five fields, or six with seconds first, or @hourly and the like"),
        ("every", "when it runs: every so often, such as 90s; either this or cron"),
        ("zone", "the time zone of cron, such as Europe/Vienna; UTC by default"),
        ("where", "leader (default) or every-node"),
        ("timeout", "how long a run may take; no limit by default"),
        ("overlap", "when its time comes while it runs: skip (default), queue or allow"),
        ("jitter", "starts up to so much later, differently for each task and tick; 0s by default"),
        ("late", "a tick not started so long after its time is missed; 1s by default"),
        ("catch-up", "so many missed ticks are run after all, the newest; 1 by default"),
        ("rerun", "whether a run whose leader died midway is run again by the next; false by default"),
        ("retries", "how often a failed run is tried again under the same tick; 0 by default"),
        ("backoff", "how long before the first retry; each further one waits twice as long; 1s by default"),
        ("on-stop", "a run when the leader has to stop: finish within the drain time (default) or cancel"),
        ("history", "so many runs are kept in the ledger, at most 200; 20 by default"),
        ("command", "what it runs: a program and its arguments"),
        ("http", "what it runs: an HTTP call with url, method, headers and body"),
    ];

    /// A task with a cron expression in UTC, and defaults for the rest.
    ///
    /// # Errors
    /// If the name is no name.
    pub fn cron(name: &str, expression: &str) -> Result<Self, TaskError> {
        Ok(Self { cron: Some(expression.to_owned()), ..Self::named(name)? })
    }

    /// A task that runs every so often, and defaults for the rest.
    ///
    /// # Errors
    /// If the name is no name.
    pub fn every(name: &str, span: Duration) -> Result<Self, TaskError> {
        Ok(Self { every: Some(span), ..Self::named(name)? })
    }

    fn named(name: &str) -> Result<Self, TaskError> {
        Ok(Self {
            name: Name::new(name)?,
            cron: None,
            every: None,
            zone: utc(),
            place: TaskPlacement::default(),
            timeout: None,
            overlap: OverlapPolicy::default(),
            jitter: Duration::ZERO,
            late: second(),
            catch_up: once(),
            rerun: false,
            retries: 0,
            backoff: second(),
            on_stop: StopPolicy::default(),
            history: twenty(),
            command: None,
            http: None,
        })
    }

    /// When it runs.
    ///
    /// # Errors
    /// If it says nothing about that, or too much, or what cannot be read.
    pub fn when(&self) -> Result<Recurrence, TaskError> {
        match (&self.cron, self.every) {
            (Some(cron), None) => Recurrence::cron(cron, &self.zone),
            (None, Some(every)) => Recurrence::every(every),
            _ => Err(TaskError::OneOf { task: self.name.clone(), keys: "cron and every" }),
        }
    }

    /// Checks it as a whole.
    ///
    /// # Errors
    /// If something cannot be as it says.
    pub fn check(&self) -> Result<(), TaskError> {
        if self.history > 200 || self.history == 0 {
            return Err(TaskError::History(self.history));
        }
        if self.command.is_some() && self.http.is_some() {
            return Err(TaskError::OneOf { task: self.name.clone(), keys: "command and http" });
        }
        self.when().map(drop)
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

fn second() -> Duration {
    Duration::from_secs(1)
}

fn once() -> u32 {
    1
}

fn twenty() -> u32 {
    20
}

fn post() -> String {
    "POST".to_owned()
}

/// Spans of time as people write them: `90s`, `1h 30m`.
mod span {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*span))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_duration(&text).map_err(|error| {
            serde::de::Error::custom(format!("{text:?}: {error}; write it like 500ms, 5s or 1m"))
        })
    }

    pub(super) mod option {
        use std::time::Duration;

        use serde::{Deserializer, Serializer};

        #[allow(clippy::ref_option, reason = "serde asks so")]
        pub(in super::super) fn serialize<S: Serializer>(
            span: &Option<Duration>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => super::serialize(span, to),
                None => to.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Duration>, D::Error> {
            super::deserialize(from).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_and_reads_back() {
        let full = TaskSettings {
            every: Some(Duration::from_secs(90)),
            timeout: Some(Duration::from_secs(5)),
            command: Some(vec!["true".into()]),
            http: Some(HttpSettings {
                url: "http://x".into(),
                method: post(),
                headers: BTreeMap::new(),
                body: String::new(),
            }),
            ..TaskSettings::cron("t", "* * * * *").unwrap()
        };
        let json = serde_json::to_value(&full).unwrap();
        let mut written: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut documented: Vec<&str> = TaskSettings::KEYS.iter().map(|(key, _)| *key).collect();
        written.sort_unstable();
        documented.sort_unstable();
        assert_eq!(written, documented);
        assert_eq!(serde_json::from_value::<TaskSettings>(json).unwrap(), full);
    }

    #[test]
    fn what_is_not_known_or_cannot_be_is_refused() {
        for (json, part) in [
            (r#"{"name":"t","cron":"* * * * *","zoen":"UTC"}"#, "zoen"),
            (r#"{"name":"t","every":"5"}"#, "write it like"),
            (r#"{"name":"a b","every":"5s"}"#, "not a valid name"),
            (r#"{"name":"t"}"#, "cron and every"),
            (r#"{"name":"t","every":"5s","cron":"* * * * *"}"#, "cron and every"),
            (r#"{"name":"t","every":"5s","history":0}"#, "history"),
            (r#"{"name":"t","every":"5ms"}"#, "5ms"),
            (r#"{"name":"t","cron":"* * * *"}"#, "* * * *"),
            (r#"{"name":"t","cron":"0 0 30 2 *"}"#, "never"),
            (r#"{"name":"t","cron":"@sometimes"}"#, "@hourly"),
            (r#"{"name":"t","cron":"* * * * *","zone":"Europe/Viena"}"#, "Europe/Viena"),
        ] {
            let read = serde_json::from_str::<TaskSettings>(json).map_err(|error| error.to_string());
            let refused = read.and_then(|settings| settings.check().map_err(|error| error.to_string()));
            let message = refused.expect_err(json);
            assert!(message.contains(part), "{json}: {message}");
        }
    }
}
