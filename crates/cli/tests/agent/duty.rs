//! What agents have to do in tests: roles with work and tasks, a place in which commands note what they do, and ledgers
//! as an agent tells them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Agent, Store, eventually};

/// A directory in which commands note what they do.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The lines of a file, if there are any.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A shell command, as the configuration writes it.
pub(crate) fn shell(script: &str) -> String {
    format!("command = [\"sh\", \"-c\", {}]\n", json!(script))
}

/// Notes a word and the token.
pub(crate) fn noting(file: &Path, word: &str) -> String {
    format!("echo {word} $TENURE_TOKEN >> {}", file.display())
}

/// An agent that a busy machine costs nothing: no node waits for its lease to run out here.
pub(crate) fn calm(store: &Store, name: &str, more: &str) -> Agent {
    Agent::launch(store, name, more, |command| _ = command.args(["--set", "timing.ttl=20s"]))
}

pub(crate) fn role(more: &str) -> String {
    format!("[[role]]\nname = \"jobs\"\n{more}\n")
}

/// A task with more settings.
pub(crate) fn task(name: &str, more: &str) -> String {
    format!("[[task]]\nname = \"{name}\"\nhistory = 200\n{more}\n")
}

/// The ledgers of a task; none before there is one.
pub(crate) fn ledgers(agent: &Agent, task: &str) -> Vec<Value> {
    let answer = agent.get(&format!("/v1/tasks/{task}"));
    if answer.status == 404 {
        return Vec::new();
    }
    answer.json()["tasks"].as_array().cloned().unwrap_or_default()
}

/// The ledger of a task that has one; nothing before that.
pub(crate) fn ledger(agent: &Agent, task: &str) -> Value {
    ledgers(agent, task).into_iter().next().unwrap_or_default()
}

pub(crate) fn runs(agent: &Agent, task: &str) -> Vec<Value> {
    ledgers(agent, task)
        .iter()
        .flat_map(|task| task["runs"].as_array().cloned().unwrap_or_default())
        .collect()
}

/// Waits for a run that is like that.
pub(crate) fn until_run(agent: &Agent, task: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    eventually(&format!("such a run of {task}"), || {
        found = runs(agent, task).into_iter().find(&wanted);
        found.is_some()
    });
    found.unwrap()
}

/// Whether a line of an agent's log has all of these parts.
pub(crate) fn told(agent: &Agent, parts: &[&str]) -> bool {
    agent.log().lines().any(|line| parts.iter().all(|part| line.contains(part)))
}

/// Asks for a run, and waits until it has begun; what it carries.
pub(crate) fn trigger(agent: &Agent, task: &str) -> Value {
    eventually(&format!("{task} has a ledger"), || !ledgers(agent, task).is_empty());
    let asked = agent.post(&format!("/v1/tasks/{task}/trigger"), &json!({}));
    assert_eq!(asked.status, 202, "{asked:?}");
    let id = asked.json()["trigger"].clone();
    until_run(agent, task, |run| run["trigger"] == id);
    id
}

/// Asks for a run, and waits until it has ended.
pub(crate) fn triggered(agent: &Agent, task: &str) -> Value {
    let id = trigger(agent, task);
    until_run(agent, task, |run| run["trigger"] == id && run["state"] != "running")
}

/// A script that waits for a file.
pub(crate) fn until_there(file: &Path) -> String {
    format!("until test -e {}; do sleep 0.05; done", file.display())
}
