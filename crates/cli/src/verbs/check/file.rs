//! What the configuration of an agent comes to, once it was found to be in order.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use tenure::schedule::TaskSettings;
use tenure::work::WorkMode as Migration;

use crate::output::sanitize;
use crate::output::table::Tone;
use crate::output::time::{self, Stamp};
use tenure_agent::config::{Config, Mode, RoleConfig};

/// So many of a kind are named before the rest is only counted.
const NAMED: usize = 8;

/// What a file came to, for programs; people read its [`Display`](fmt::Display).
#[derive(Debug, Serialize)]
pub(super) struct FileView {
    file: String,
    /// What was translated from other designs, and what should be known.
    notices: Vec<String>,
    /// Without secrets.
    store: String,
    namespace: String,
    node: String,
    roles: Vec<RoleView>,
    /// The tasks of every node.
    tasks: Vec<TaskView>,
    alerts: Vec<String>,
    notify: Vec<String>,
    listens: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RoleView {
    role: String,
    /// hold or campaign.
    mode: &'static str,
    migration: Migration,
    static_leader: Option<String>,
    /// In the order in which they start.
    work: Vec<String>,
    tasks: Vec<TaskView>,
}

#[derive(Debug, Serialize)]
struct TaskView {
    task: String,
    when: String,
    zone: String,
    /// The first tick from now on.
    next: Option<Stamp>,
}

impl FileView {
    pub(super) fn of(path: &Path, config: &Config) -> Self {
        let socket = config.http.socket.iter().map(|path| path.display().to_string());
        let listen = config.http.listen.iter().map(|address| {
            format!("{}://{address}", if config.http.tls.is_some() { "https" } else { "http" })
        });
        Self {
            file: path.display().to_string(),
            notices: config.notices.iter().cloned().chain(unencrypted(config)).collect(),
            store: config.shown_store(),
            namespace: config.namespace.to_string(),
            node: config.node.name.to_string(),
            roles: config.roles.iter().map(RoleView::of).collect(),
            tasks: config.everywhere.iter().map(|task| TaskView::of(&task.settings)).collect(),
            alerts: config.alerting.rules.iter().map(|rule| rule.name.to_string()).collect(),
            notify: config.alerting.targets.iter().map(|target| target.name.to_string()).collect(),
            listens: socket.chain(listen).collect(),
        }
    }
}

/// What a password in clear is told with.
fn unencrypted(config: &Config) -> Option<String> {
    tenure::store::url_warning(&config.store).map(|warning| format!("store: {warning}"))
}

impl RoleView {
    fn of(role: &RoleConfig) -> Self {
        Self {
            role: role.name.to_string(),
            mode: if role.mode == Mode::Campaign { "campaign" } else { "hold" },
            migration: role.migration,
            static_leader: role.static_leader.as_ref().map(ToString::to_string),
            work: role.work.iter().map(|work| work.name.to_string()).collect(),
            tasks: role.tasks.iter().map(|task| TaskView::of(&task.settings)).collect(),
        }
    }

    /// Its name, with what is unusual about it.
    fn words(&self) -> String {
        let campaign = (self.mode == "campaign").then(|| "for clients".to_owned());
        let migration = match self.migration {
            Migration::Off => Some("off".to_owned()),
            Migration::Shadow => Some("in shadow mode".to_owned()),
            _ => None,
        };
        let decreed = self.static_leader.as_ref().map(|leader| format!("led by {leader}"));
        let unusual: Vec<String> = campaign.into_iter().chain(migration).chain(decreed).collect();
        if unusual.is_empty() { self.role.clone() } else { format!("{} ({})", self.role, unusual.join(", ")) }
    }
}

impl TaskView {
    fn of(task: &TaskSettings) -> Self {
        let when = task.when().ok();
        Self {
            task: task.name.to_string(),
            when: when.as_ref().map(|when| when.text().to_owned()).unwrap_or_default(),
            zone: task.zone.clone(),
            next: when.and_then(|when| when.next(Stamp::now().0)).map(Stamp),
        }
    }

    fn words(&self) -> String {
        let next = self.next.map_or_else(|| "never".to_owned(), |next| time::clock(next.0));
        format!("{} (next {next})", self.task)
    }
}

impl fmt::Display for FileView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Tone::Strong.paint(&format!("{} is valid", sanitize(&self.file))))?;
        for notice in &self.notices {
            write!(f, "\n  {}", Tone::Warn.paint(&sanitize(notice)))?;
        }
        let tasks = self.roles.iter().flat_map(|role| &role.tasks).chain(&self.tasks);
        for (what, value) in [
            ("store", sanitize(&self.store)),
            ("node", format!("{} in namespace {}", self.node, self.namespace)),
            ("roles", listed(self.roles.iter().map(RoleView::words))),
            ("work", listed(self.roles.iter().flat_map(|role| role.work.iter().cloned()))),
            ("tasks", listed(tasks.map(TaskView::words))),
            ("alerts", listed(self.alerts.iter().cloned())),
            ("notify", listed(self.notify.iter().cloned())),
            ("listens on", listed(self.listens.iter().map(|text| sanitize(text)))),
        ] {
            write!(f, "\n  {what:<12} {value}")?;
        }
        Ok(())
    }
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match names.len() {
        0 => "none".to_owned(),
        many if many > NAMED => format!("{many}: {}, …", names[..NAMED].join(", ")),
        many => format!("{many}: {}", names.join(", ")),
    }
}
