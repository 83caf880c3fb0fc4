//! The trace: one line per transition, written only on demand.

use std::fmt::{Arguments, Write as _};

use crate::clock::{Instant, MILLI};

#[derive(Debug, Clone, Default)]
pub enum Trace {
    /// Nowhere; nothing is even formatted.
    #[default]
    Off,
    /// Into memory, to be compared or printed.
    Kept(String),
    /// To standard output as they come.
    Printed,
}

impl Trace {
    /// Whether a line would be seen.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    pub fn line(&mut self, now: Instant, what: Arguments<'_>) {
        let (millis, rest) = (now / MILLI, now % MILLI);
        match self {
            Self::Off => {}
            Self::Kept(text) => {
                writeln!(text, "{millis:>8}.{rest:06} {what}").expect("memory can be written to")
            }
            Self::Printed => println!("{millis:>8}.{rest:06} {what}"),
        }
    }

    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Kept(text) => text,
            Self::Off | Self::Printed => "",
        }
    }
}
