//! The worlds that are searched.

use super::setup::Setup;

/// Those that every test run exhausts.
#[must_use]
pub fn all() -> Vec<Setup> {
    vec![
        Setup { cuts: true, ..Setup::new("cuts") },
        Setup { wires: 1, ..Setup::new("delay") },
        Setup { wires: 1, cuts: true, ..Setup::new("delay-cuts") },
    ]
}
