//! What scheduled tasks run beside closures: commands, under the same supervision as `tenure run`, and HTTP calls.

mod command;
mod http;

pub use command::CommandRunner;
pub(crate) use command::{guard_for, led, verdict};
pub use http::HttpRunner;
pub(crate) use http::{call, check_call, check_url, client};

use std::sync::Arc;

use tenure::schedule::{BadTask, Runner, Task, TaskSettings};

/// The task that some settings describe.
///
/// # Errors
/// If they cannot be, or say neither what to run nor where to call.
pub fn of_settings(settings: TaskSettings) -> Result<Task, BadTask> {
    let runner: Arc<dyn Runner> = match (&settings.command, &settings.http) {
        (Some(command), None) if !command.is_empty() => Arc::new(CommandRunner::new(command)),
        (None, Some(http)) => Arc::new(HttpRunner::new(http.clone())),
        _ => return Err(BadTask::OneOf { task: settings.name, keys: "command and http" }),
    };
    Task::with_runner(settings, runner)
}
