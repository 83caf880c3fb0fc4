//! What people and scripts read: tables with colour on a terminal, JSON on request, logs on stderr.

pub mod log;
pub(crate) mod paint;
pub(crate) mod screen;
pub mod table;
pub mod time;

use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;

use crate::args::{Cli, Common, Format};
use crate::exit::Exit;

/// Sets up logs: warnings on stderr, or what `TENURE_LOG` says.
pub fn start(cli: &Cli) {
    let default = match &cli.verb {
        crate::args::Verb::Run(args) if !args.quiet => "tenure=info,warn",
        crate::args::Verb::Agent(_) => "tenure=info,tenure_cli=info,warn",
        _ => "error",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TENURE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log::Lines)
        .with_ansi(colour)
        .with_target(false)
        .try_init();
}

/// Prints one JSON document, on one line.
///
/// # Errors
/// As [`print()`].
pub fn json(value: &impl Serialize) -> Result<(), Exit> {
    let text = serde_json::to_string(value).expect("what is printed serialises");
    print(&text)
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
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
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
        _ => line,
    }
}

/// Text that others chose, without what would move the cursor, colour the screen or break the line.
#[must_use]
pub fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
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
