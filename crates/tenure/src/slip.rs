//! The known mistakes of a driver, so that a torture can show that each would be caught.
//!
//! Every variant is one wrong line around the engine, as `tenure_core::Mutant` are wrong lines in it. Without the feature
//! `mutants` none can be chosen, and each question is `false` at compile time.

/// A mistake, switched on for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    /// Work is not told that its tenure is over.
    WorkNotStopped,
    /// `check()` is a boolean that somebody has to clear.
    BooleanGuard,
    /// The role is given up as soon as its work was told to stop.
    StoppedTooEarly,
    /// A tenure that is over is not revoked: its lease may still run.
    NotRevoked,
    /// A write without an answer is taken for applied.
    SilenceIsSuccess,
    /// A write that met another version is taken for applied.
    ConflictIsSuccess,
}

impl Slip {
    /// Every mistake.
    #[cfg(feature = "mutants")]
    pub const ALL: [Self; 6] = [
        Self::WorkNotStopped,
        Self::BooleanGuard,
        Self::StoppedTooEarly,
        Self::NotRevoked,
        Self::SilenceIsSuccess,
        Self::ConflictIsSuccess,
    ];

    /// Whether this mistake is to be made.
    #[inline]
    pub(crate) fn made(self, chosen: Option<Self>) -> bool {
        cfg!(feature = "mutants") && chosen == Some(self)
    }
}
