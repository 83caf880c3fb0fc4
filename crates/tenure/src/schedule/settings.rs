//! The settings of a task.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Recurrence, TaskError};
use crate::Name;

/// The settings of a task: when and where it runs. What it runs is its [`TaskRunner`](super::TaskRunner).
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
    fn settings_read_back() {
        let full = TaskSettings {
            every: Some(Duration::from_secs(90)),
            timeout: Some(Duration::from_secs(5)),
            ..TaskSettings::cron("t", "* * * * *").unwrap()
        };
        let json = serde_json::to_value(&full).unwrap();
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
