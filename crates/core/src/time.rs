//! Time as the engine is told it. Two clocks, never compared with each other nor with another machine's.

use std::time::Duration;

use serde::Serialize;

/// An instant of this node's lease clock, in nanoseconds since an origin that means nothing elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// Later than everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// That many nanoseconds after the origin of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin of the clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant plus `span`.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// This instant less `span`.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }

    /// How long ago `earlier` was; nothing if it is yet to come.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Wall-clock time in microseconds since 1970: for people, and as a floor for tokens on a store that can forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// That many microseconds after 1970.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

/// What both clocks showed before a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Now {
    /// The lease clock: everything that matters is counted on it.
    pub time: Time,
    /// The wall clock: written into records for people to read.
    pub wall: Timestamp,
}
