//! What people and scripts read: tables with colour on a terminal, JSON on request, logs on stderr.

pub(crate) mod paint;
pub(crate) mod screen;
pub mod table;

use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;
use tenure_agent::log;
use tenure_agent::text::for_terminal;
pub use tenure_agent::text::sanitize;
pub use tenure_agent::time;

use crate::args::{Cli, Common, Format};
use crate::exit::Exit;

/// Sets up logs: warnings on stderr, or what `TENURE_LOG` says.
pub fn start(cli: &Cli) {
    let default = match &cli.verb {
        crate::args::Verb::Run(args) if !args.quiet => "tenure=info,warn",
        crate::args::Verb::Agent(_) => "tenure=info,tenure_agent=info,warn",
        _ => "error",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TENURE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log::LogWriter)
        .with_ansi(colour)
        .with_target(false)
        .try_init();
}

/// Prints one JSON document, on one line.
///
/// # Errors
/// As [`print()`].
pub fn json(value: &impl Serialize) -> Result<(), Exit> {
    print(&tenure_agent::text::json(value))
}

/// Prints text and a line end, with colour only where a terminal shows it. A reader that has gone away (`| head`) has
/// seen enough.
///
/// # Errors
/// If it cannot be written for another reason.
pub fn print(text: &str) -> Result<(), Exit> {
    line(text).map(|_| ())
}

/// As [`print()`], and at once; false when the reader has gone away.
///
/// # Errors
/// If it cannot be written for another reason.
pub fn line(text: &str) -> Result<bool, Exit> {
    let mut out = anstream::stdout().lock();
    match writeln!(out, "{}", for_terminal(text)).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Exit::Failed(format!("cannot write to stdout: {error}"))),
    }
}

/// What clap has to say about a mistake, in one line.
#[must_use]
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = ["\n\nUsage:", "\nUsage:", "\n\nFor more information"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let words: Vec<&str> = text[..end.unwrap_or(text.len())].split_whitespace().collect();
    let line = words.join(" ").replace(" tip: ", "; ");
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    match (error.kind(), usage) {
        (clap::error::ErrorKind::MissingRequiredArgument, Some(usage)) => format!("{line}; usage: {usage}"),
        (clap::error::ErrorKind::UnknownArgument, Some(usage))
            if usage.starts_with("tenure run ") && !line.contains("argument '-") =>
        {
            format!("{line}; put the command after `--`: tenure run --role NAME -- COMMAND")
        }
        _ => line,
    }
}

/// A message of this program: further lines are indented, so that none of them can pass for another message.
pub(crate) fn message(text: &str) -> String {
    let indent =
        |line: &str| if line.starts_with("  ") { sanitize(line) } else { format!("  {}", sanitize(line)) };
    let (first, more) = text.split_once('\n').unwrap_or((text, ""));
    let lines = std::iter::once(sanitize(first)).chain(more.lines().map(indent));
    lines.collect::<Vec<_>>().join("\n")
}

/// How wide the terminal is; none if there is no terminal, where nothing needs to be cut.
#[must_use]
pub fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

impl Common {
    /// Whether JSON was asked for.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_message_passes_for_another_message() {
        assert_eq!(message("a\ntenure: all is well\n  b\r"), "a\n  tenure: all is well\n  b\u{fffd}");
    }
}
