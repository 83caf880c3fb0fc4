//! Why a torture cannot run.

/// Why a torture cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are wrong.
    #[error("{0}")]
    Usage(String),
    /// A private server, a process or a file failed.
    #[error("{0}")]
    Failed(String),
    /// The store, or a node on it, failed.
    #[error(transparent)]
    Tenure(#[from] tenure::Error),
}

impl From<tenure::store::StoreError> for Error {
    fn from(error: tenure::store::StoreError) -> Self {
        Self::Tenure(error.into())
    }
}
