//! What can go wrong with an agent, and with asking one: in kinds that a caller can tell apart.

/// Why an agent cannot start, or does not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration or the request is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The answer is no.
    #[error("{0}")]
    Refused(String),
    /// The store or the agent cannot be used.
    #[error("{0}")]
    Store(String),
    /// Something else failed.
    #[error("{0}")]
    Failed(String),
}

impl From<tenure::Error> for Error {
    fn from(error: tenure::Error) -> Self {
        let why = error.to_string();
        match error {
            tenure::Error::Name(_) | tenure::Error::Timing(_) => Self::Invalid(why),
            tenure::Error::Store(error) if error.is_misnamed() => Self::Invalid(why),
            tenure::Error::Store(_) => Self::Store(why),
            tenure::Error::Thread(_) => Self::Failed(why),
            _ => Self::Refused(why),
        }
    }
}

impl From<tenure::store::StoreError> for Error {
    fn from(error: tenure::store::StoreError) -> Self {
        tenure::Error::from(error).into()
    }
}
