//! The command line as it is parsed: what every verb understands, less what a verb makes nothing of.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::args::Cli;

const ALL: &[&str] = &["store", "agent", TOKEN, "namespace", "format"];
const TOKEN: &str = "allow_plaintext_token";

/// Shared options without a meaning for a verb. Its help does not list them, and typing one is a usage error: what is
/// silently ignored is believed to count.
const UNUSED: &[(&str, &[&str])] = &[
    ("run", &["agent", TOKEN, "format"]),
    ("agent", &["agent", TOKEN, "format"]),
    ("check", &["agent", TOKEN]),
    ("doctor", &["agent"]),
    ("repair", &["agent", TOKEN]),
    ("schema", &["agent", TOKEN]),
    ("peers", &["agent", TOKEN, "namespace"]),
    ("probe", &["store"]),
    ("alerts", &["store"]),
    ("eligible", &["store"]),
    ("demo", ALL),
    ("bench", &["agent", TOKEN]),
    ("torture", &["agent", TOKEN, "namespace", "format"]),
    ("completions", ALL),
    ("man", ALL),
];

/// What can be typed.
#[must_use]
pub fn command() -> Command {
    let mut command = Cli::command();
    let shared: Vec<_> = command.get_arguments().cloned().collect();
    for (verb, unused) in UNUSED {
        let named = shared.iter().filter(|arg| unused.contains(&arg.get_id().as_str()));
        let hidden: Vec<_> = named.map(|arg| arg.clone().hide(true)).collect();
        command = command.mut_subcommand(verb, |verb| verb.args(hidden));
    }
    command
}

/// What was typed.
///
/// # Errors
/// If it is a usage error, or a question for help.
pub fn parse() -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches()?;
    refuse_unused(&matches)?;
    Cli::from_arg_matches(&matches)
}

fn refuse_unused(matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((verb, of_verb)) = matches.subcommand() else { return Ok(()) };
    let unused = UNUSED.iter().find(|(name, _)| *name == verb).map_or(&[][..], |(_, unused)| unused);
    let typed = |matches: &ArgMatches, option: &str| {
        matches.try_contains_id(option).is_ok_and(|known| known)
            && matches.value_source(option) == Some(ValueSource::CommandLine)
    };
    match unused.iter().find(|option| typed(matches, option) || typed(of_verb, option)) {
        Some(option) => {
            let why = format!("`tenure {verb}` has no option --{}", option.replace('_', "-"));
            Err(command().error(ErrorKind::ArgumentConflict, why))
        }
        None => Ok(()),
    }
}
