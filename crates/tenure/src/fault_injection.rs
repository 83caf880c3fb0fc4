//! Faults to inject into the driver, so that a torture can show that its checks catch each of them.
//!
//! Every variant is one wrong line around the engine, as `tenure_core::Mutant` are wrong lines in it. Without the feature
//! `mutants` none can be chosen, and each check is `false` at compile time.

/// A fault, injected into one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverFault {
    /// Work is not told that its tenure is over.
    WorkNotStopped,
    /// `check()` is a boolean that the loop has to clear.
    BooleanGuard,
    /// The role is given up as soon as its work was told to stop.
    StoppedTooEarly,
    /// A tenure that is over is not revoked: its lease may still run.
    NotRevoked,
    /// A write without an answer is taken for applied.
    SilenceIsSuccess,
    /// A write that met another version is taken for applied.
    ConflictIsSuccess,
    /// A guard lock that was lost does not end the tenure.
    GuardIgnored,
}

impl DriverFault {
    /// Every fault that shows without a guard lock.
    #[cfg(feature = "mutants")]
    pub const ALL: [Self; 6] = [
        Self::WorkNotStopped,
        Self::BooleanGuard,
        Self::StoppedTooEarly,
        Self::NotRevoked,
        Self::SilenceIsSuccess,
        Self::ConflictIsSuccess,
    ];

    /// Whether this fault is the injected one.
    #[inline]
    pub(crate) fn is_injected(self, chosen: Option<Self>) -> bool {
        cfg!(feature = "mutants") && chosen == Some(self)
    }
}
