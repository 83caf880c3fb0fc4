//! How the process ends. Reserved codes are documented in `tenure run --help` and in the guide.

use std::process::ExitCode;

/// How the process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Done,
    /// The answer is no: no leader, a transfer refused. Why goes to stderr.
    No(String),
    /// What was typed cannot be.
    Usage(String),
    /// A child ended with this code.
    Child(u8),
    /// A child was ended by this signal.
    Signal(u8),
    /// Not elected in time.
    NotElected(String),
    /// Leadership was lost while the child ran, and it was not to try again.
    Lost(String),
    /// The store cannot be used.
    Store(String),
    /// Something else failed.
    Failed(String),
}

impl Exit {
    /// The code of [`Exit::NotElected`].
    pub const NOT_ELECTED: u8 = 120;
    /// The code of [`Exit::Lost`].
    pub const LOST: u8 = 121;
    /// The code of [`Exit::Store`].
    pub const STORE: u8 = 122;
    /// The code of [`Exit::Failed`].
    pub const FAILED: u8 = 123;

    /// The code that the caller sees.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No(_) => 1,
            Self::Usage(_) => 2,
            Self::Child(code) => *code,
            Self::Signal(signal) => 128_u8.saturating_add(*signal),
            Self::NotElected(_) => Self::NOT_ELECTED,
            Self::Lost(_) => Self::LOST,
            Self::Store(_) => Self::STORE,
            Self::Failed(_) => Self::FAILED,
        }
    }

    /// Says why on stderr, in one line, if there is something to say.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        match self {
            Self::No(why)
            | Self::Usage(why)
            | Self::NotElected(why)
            | Self::Lost(why)
            | Self::Store(why)
            | Self::Failed(why) => anstream::eprintln!("tenure: {}", crate::output::message(why)),
            Self::Done | Self::Child(_) | Self::Signal(_) => {}
        }
        ExitCode::from(self.code())
    }
}

/// What clap has to say: help and version are answers, everything else is a mistake, told in one line.
#[must_use]
pub fn of_usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as NothingTyped;
    if error.use_stderr() && error.kind() != NothingTyped {
        return Exit::Usage(crate::output::one_line(error)).report();
    }
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// The agent sorts the same errors into the same kinds.
impl From<tenure::Error> for Exit {
    fn from(error: tenure::Error) -> Self {
        let (hint, exit) = (hint(&error), Self::from(tenure_agent::Error::from(error)));
        match (exit, hint) {
            (Self::No(why), Some(hint)) => Self::No(format!("{why} ({hint})")),
            (exit, _) => exit,
        }
    }
}

/// The command that helps. The library says what is wrong, and knows no commands.
fn hint(error: &tenure::Error) -> Option<String> {
    Some(match error {
        tenure::Error::NoSuchRole { .. } => "run `tenure status` to list roles".to_owned(),
        tenure::Error::NoTarget { .. } => "run `tenure nodes` to list nodes".to_owned(),
        tenure::Error::NoSuchTask { .. } => "run `tenure task list` to list tasks".to_owned(),
        tenure::Error::NoLeader(role) | tenure::Error::NotTaken { role, .. } => {
            format!("run `tenure status {role}` to see its candidates")
        }
        tenure::Error::Paused { role, .. } => format!("run `tenure resume {role}` to end the pause"),
        _ => return None,
    })
}

impl From<tenure_agent::Error> for Exit {
    fn from(error: tenure_agent::Error) -> Self {
        match error {
            tenure_agent::Error::Invalid(why) => Self::Usage(why),
            tenure_agent::Error::Refused(why) => Self::No(why),
            tenure_agent::Error::Store(why) => Self::Store(why),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<tenure_torture::Error> for Exit {
    fn from(error: tenure_torture::Error) -> Self {
        match error {
            tenure_torture::Error::Usage(why) => Self::Usage(why),
            tenure_torture::Error::Tenure(error) => error.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<tenure::store::StoreError> for Exit {
    fn from(error: tenure::store::StoreError) -> Self {
        tenure::Error::from(error).into()
    }
}
