//! What scheduled tasks run beside closures: commands, under the same supervision as `tenure run`, and HTTP calls.

mod command;
mod http;
mod output;

pub use command::CommandRunner;
pub(crate) use command::{guard_for, led, verdict};
pub use http::HttpRunner;
pub(crate) use http::{call, check_call, refusal};
pub(crate) use output::CapturedOutput;

use std::sync::Arc;

use tenure::schedule::{Task, TaskError, TaskRunner, TaskSettings};

use crate::outbound::Outbound;

/// The task that some settings describe.
///
/// # Errors
/// If they cannot be, or say neither what to run nor where to call.
pub fn of_settings(settings: TaskSettings, outbound: &Outbound) -> Result<Task, TaskError> {
    let runner: Arc<dyn TaskRunner> = match (&settings.command, &settings.http) {
        (Some(command), None) if !command.is_empty() => Arc::new(CommandRunner::new(command)),
        (None, Some(http)) => Arc::new(HttpRunner::new(http.clone(), outbound.clone())),
        _ => return Err(TaskError::OneOf { task: settings.name, keys: "command and http" }),
    };
    Task::with_runner(settings, runner)
}
