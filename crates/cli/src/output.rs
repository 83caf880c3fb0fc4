//! What people and scripts read: tables with colour on a terminal, JSON on request, logs on stderr.

use std::io::IsTerminal;

use serde::Serialize;

use crate::args::{Cli, Common, Format};

/// Sets up logs: warnings on stderr, or what `TENURE_LOG` says.
pub fn start(cli: &Cli) {
    let default = if matches!(cli.verb, crate::args::Verb::Run(_)) { "tenure=info,warn" } else { "error" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TENURE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .try_init();
}

/// Prints one JSON document.
pub fn json(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("what is printed serialises");
    anstream::println!("{text}");
}

impl Common {
    /// Whether JSON was asked for.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}
