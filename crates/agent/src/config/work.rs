//! What a leader does, as it is written in the file: `[[work]]` and `[[task]]`, checked against the roles.

use std::time::Duration;

use tenure::Name;
use tenure::schedule::{OverlapPolicy, StopPolicy, TaskError, TaskPlacement, TaskSettings};
use tenure::work::RestartPolicy;

use super::value::Value;
use super::{Mode, Reader, RoleConfig, indices};
use crate::nearest::nearest;
use crate::outbound::Plain;
use crate::task::{HttpSettings, TaskAction, TaskConfig};

/// A command that runs while a role is led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkConfig {
    pub name: Name,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Lower starts first.
    pub order: i64,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// How long before the first restart.
    pub backoff: Duration,
    /// So many restarts within that window are forgiven.
    pub limit: (u32, Duration),
    /// How long until its health check first succeeds.
    pub ready_within: Option<Duration>,
    /// How long between being told to end and being killed; as long as the role's if none is said.
    pub drain: Option<Duration>,
    /// How to tell that it is well.
    pub health: Option<HealthConfig>,
}

/// How to tell from outside that a command is well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// What is asked.
    pub check: Check,
    /// How often.
    pub every: Duration,
    /// How long an answer may take.
    pub within: Duration,
    /// So many in a row end the tenure.
    pub failures: u32,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// A command that exits with 0.
    Command(Vec<String>),
    /// A URL that answers with 2xx.
    Http(String),
}

impl Reader {
    /// Gives every role its work and its tasks; returns the tasks of every node.
    pub(super) fn duties(&mut self, roles: &mut [RoleConfig]) -> Vec<TaskConfig> {
        self.all_work(roles);
        self.all_tasks(roles)
    }

    fn all_work(&mut self, roles: &mut [RoleConfig]) {
        let mut names: Vec<Name> = Vec::new();
        for index in indices(self.values.keys(), "work") {
            let at = format!("work[{index}]");
            let Some(name) = self.named(&at, &mut names) else { continue };
            let Some(nth) = self.role_of(&at, roles) else { continue };
            let Some(work) = self.work(&at, name, &roles[nth]) else { continue };
            roles[nth].work.push(work);
        }
        roles.iter_mut().for_each(|role| role.work.sort_by_key(|work| work.order));
    }

    fn all_tasks(&mut self, roles: &mut [RoleConfig]) -> Vec<TaskConfig> {
        let (mut names, mut everywhere) = (Vec::new(), Vec::new());
        for index in indices(self.values.keys(), "task") {
            let at = format!("task[{index}]");
            let Some(name) = self.named(&at, &mut names) else { continue };
            let Some(task) = self.task(&at, &name) else { continue };
            if task.settings.place == TaskPlacement::EveryNode {
                if self.value(&format!("{at}.role")).is_some() {
                    self.fault(&format!("{at}.role"), "a task of every node has no role; remove this key");
                }
                everywhere.push(task);
            } else if let Some(nth) = self.role_of(&at, roles) {
                roles[nth].tasks.push(task);
            }
        }
        everywhere
    }

    /// Its name, of which there may be no other.
    fn named(&mut self, at: &str, names: &mut Vec<Name>) -> Option<Name> {
        let path = format!("{at}.name");
        let Some(name) = self.name(&path) else {
            let list = at.split('[').next().unwrap_or(at);
            self.fault(at, &format!("every [[{list}]] needs a name"));
            return None;
        };
        if names.contains(&name) {
            self.fault(&path, &format!("duplicate name {name}; use another name"));
        }
        names.push(name.clone());
        Some(name)
    }

    /// Which of the roles it belongs to: the one it names, or the only one there is.
    fn role_of(&mut self, at: &str, roles: &[RoleConfig]) -> Option<usize> {
        let path = format!("{at}.role");
        let Some(name) = self.name(&path) else {
            if roles.len() != 1 {
                let there = match roles.len() {
                    0 => "no [[role]] is configured; add the one whose leader runs it".to_owned(),
                    many => format!("there are {many} roles: set role = \"…\""),
                };
                self.fault(&format!("{at}.name"), &there);
                return None;
            }
            return self.leads(&format!("{at}.name"), &roles[0]).then_some(0);
        };
        let Some(nth) = roles.iter().position(|role| role.name == name) else {
            let meant = nearest(name.as_str(), roles.iter().map(|role| role.name.as_str()));
            let hint = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            self.fault(&path, &format!("no [[role]] is named {name}{hint}"));
            return None;
        };
        self.leads(&path, &roles[nth]).then_some(nth)
    }

    /// Only what the agent itself leads can it work for.
    fn leads(&mut self, path: &str, role: &RoleConfig) -> bool {
        let leads = role.mode == Mode::Hold;
        if !leads {
            let why =
                format!("the agent runs nothing for {}: clients lead it (mode = \"campaign\")", role.name);
            self.fault(path, &why);
        }
        leads
    }

    fn work(&mut self, at: &str, name: Name, role: &RoleConfig) -> Option<WorkConfig> {
        let path = |key: &str| format!("{at}.{key}");
        let command = self.list(&path("command"));
        if command.is_empty() {
            self.fault(&path("name"), "every [[work]] needs a command");
            return None;
        }
        let health = self.health(&path("health"));
        let work = WorkConfig {
            name,
            command,
            order: self.number(&path("order"), 0),
            restart: match self.text(&path("restart")).as_deref() {
                Some("on-failure") => RestartPolicy::OnFailure,
                Some("never") => RestartPolicy::Never,
                _ => RestartPolicy::Always,
            },
            backoff: self.span(&path("backoff")).unwrap_or(Duration::from_millis(100)),
            limit: (
                self.number(&path("max-restarts"), 3),
                self.span(&path("window")).unwrap_or(Duration::from_secs(60)),
            ),
            ready_within: self.span(&path("ready-within")),
            drain: self.span(&path("drain")),
            health,
        };
        if work.ready_within.is_some() && work.health.is_none() {
            self.fault(
                &path("ready-within"),
                "ready-within needs a health check: set health.command or health.http",
            );
        }
        if let Some(drain) = work.drain.filter(|drain| *drain > role.candidacy.drain) {
            let (ours, whole) =
                (humantime::format_duration(drain), humantime::format_duration(role.candidacy.drain));
            self.fault(
                &path("drain"),
                &format!(
                    "{ours} is longer than the {whole} that all work of {} has; raise role[].drain",
                    role.name
                ),
            );
        }
        Some(work)
    }

    fn health(&mut self, at: &str) -> Option<HealthConfig> {
        let path = |key: &str| format!("{at}.{key}");
        let command = self.list(&path("command"));
        let check = match (command.is_empty(), self.text(&path("http"))) {
            (false, None) => Check::Command(command),
            (true, Some(url)) => {
                self.callable(&path("http"), &url, Plain::Anywhere);
                Check::Http(url)
            }
            (false, Some(_)) => {
                self.fault(&path("http"), "set either health.command or health.http, not both");
                return None;
            }
            (true, None) => {
                let lonely = ["every", "within", "failures"]
                    .map(path)
                    .into_iter()
                    .find(|key| self.value(key).is_some());
                if let Some(key) = lonely {
                    self.fault(&key, "the health check is empty: set health.command or health.http");
                }
                return None;
            }
        };
        let every = self.span(&path("every")).unwrap_or(Duration::from_secs(10));
        if every.is_zero() {
            self.fault(&path("every"), "it must be longer");
        }
        let within = self.span(&path("within")).unwrap_or(every);
        Some(HealthConfig { check, every, within, failures: self.number(&path("failures"), 3) })
    }

    fn task(&mut self, at: &str, name: &Name) -> Option<TaskConfig> {
        let path = |key: &str| format!("{at}.{key}");
        let default = self.or_fault(at, TaskSettings::cron(name.as_str(), ""))?;
        let command = self.list(&path("command"));
        let settings = TaskSettings {
            cron: self.text(&path("cron")),
            every: self.span(&path("every")),
            zone: self.text(&path("zone")).unwrap_or(default.zone),
            place: self.choice(&path("where"), &[("every-node", TaskPlacement::EveryNode)]),
            timeout: self.span(&path("timeout")),
            overlap: self.choice(
                &path("overlap"),
                &[("queue", OverlapPolicy::Queue), ("allow", OverlapPolicy::Allow)],
            ),
            jitter: self.span(&path("jitter")).unwrap_or(default.jitter),
            late: self.span(&path("late")).unwrap_or(default.late),
            catch_up: self.number(&path("catch-up"), default.catch_up),
            rerun: self.truth(&path("rerun")).unwrap_or(default.rerun),
            retries: self.number(&path("retries"), default.retries),
            backoff: self.span(&path("backoff")).unwrap_or(default.backoff),
            on_stop: self.choice(&path("on-stop"), &[("cancel", StopPolicy::Cancel)]),
            history: self.number(&path("history"), default.history),
            name: default.name,
        };
        let http = self.call(&path("http"));
        let made = TaskAction::of(name, command, http).and_then(|action| {
            let task = TaskConfig { settings, action };
            task.task(&self.outbound).map(|_| task)
        });
        match made {
            Ok(task) => Some(task),
            Err(error) => {
                self.fault(&path(blamed(&error)), &error.to_string());
                None
            }
        }
    }

    fn call(&mut self, at: &str) -> Option<HttpSettings> {
        let path = |key: &str| format!("{at}.{key}");
        let Some(url) = self.text(&path("url")) else {
            let lonely =
                ["method", "headers", "body"].map(path).into_iter().find(|key| self.value(key).is_some());
            if let Some(key) = lonely {
                self.fault(&key, "http needs a url: set http.url");
            }
            return None;
        };
        self.callable(&path("url"), &url, Plain::Anywhere);
        let headers = match self.value(&path("headers")) {
            Some(Value::Headers(headers)) => headers.clone(),
            _ => Default::default(),
        };
        let method = self.text(&path("method")).unwrap_or_else(|| "POST".to_owned());
        let call = HttpSettings { url, method, headers, body: self.text(&path("body")).unwrap_or_default() };
        if let Err((key, why)) = crate::task::check_call(&call) {
            self.fault(&path(key), &why);
        }
        Some(call)
    }

    fn choice<T: Copy + Default>(&self, path: &str, words: &[(&str, T)]) -> T {
        let said = self.text(path);
        words
            .iter()
            .find(|(word, _)| said.as_deref() == Some(*word))
            .map_or_else(T::default, |(_, value)| *value)
    }
}

/// The key that is to blame.
fn blamed(error: &TaskError) -> &'static str {
    match error {
        TaskError::Cron { .. } => "cron",
        TaskError::Zone(_) => "zone",
        TaskError::Every(_) => "every",
        TaskError::History(_) => "history",
        _ => "name",
    }
}
