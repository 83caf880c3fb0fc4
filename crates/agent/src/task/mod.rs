//! What scheduled tasks run beside closures: commands, under the same supervision as `tenure run`, and HTTP calls.

mod command;
mod http;
mod output;

pub use command::CommandRunner;
pub(crate) use command::{guard_for, led, verdict};
pub use http::{HttpRunner, HttpSettings};
pub(crate) use http::{call, check_call, refusal};
pub(crate) use output::CapturedOutput;

use std::sync::Arc;

use tenure::Name;
use tenure::schedule::{Task, TaskError, TaskRunner, TaskSettings};

use crate::outbound::Outbound;

/// A task as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskConfig {
    /// When and where it runs.
    pub settings: TaskSettings,
    /// What it runs.
    pub action: TaskAction,
}

/// What a task runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskAction {
    /// A command with its arguments.
    Command(Vec<String>),
    /// An HTTP call.
    Http(HttpSettings),
}

impl TaskAction {
    /// Whichever of the two is given.
    ///
    /// # Errors
    /// If both are, or neither.
    pub fn of(task: &Name, command: Vec<String>, http: Option<HttpSettings>) -> Result<Self, TaskError> {
        match (command.is_empty(), http) {
            (false, None) => Ok(Self::Command(command)),
            (true, Some(http)) => Ok(Self::Http(http)),
            _ => Err(TaskError::OneOf { task: task.clone(), keys: "command and http" }),
        }
    }
}

impl TaskConfig {
    /// The task for a [`Schedule`](tenure::schedule::Schedule).
    ///
    /// # Errors
    /// If its settings cannot be.
    pub fn task(&self, outbound: &Outbound) -> Result<Task, TaskError> {
        let runner: Arc<dyn TaskRunner> = match &self.action {
            TaskAction::Command(command) => Arc::new(CommandRunner::new(command)),
            TaskAction::Http(http) => Arc::new(HttpRunner::new(http.clone(), outbound.clone())),
        };
        Task::with_runner(self.settings.clone(), runner)
    }
}
