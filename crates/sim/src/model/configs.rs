//! The worlds that are searched.

use super::setup::{Late, Setup};
use super::world::Link;

const MUTE: &[Link] = &[Link::Mute];
const BOTH: &[Link] = &[Link::Mute, Link::Deaf];

/// Those that every test run exhausts.
#[must_use]
pub fn all() -> Vec<Setup> {
    let late = |name, late, victims| Setup { wires: 1, late, victims, cuts: MUTE, ..Setup::new(name) };
    vec![
        Setup { cuts: BOTH, ..Setup::new("cuts") },
        Setup { cuts: BOTH, victims: vec![1], ..Setup::new("cuts-follower") },
        late("late-openings", &[Late::Openings], vec![0]),
        late("late-beats", &[Late::Beats], vec![0]),
        late("late-closings", &[Late::Closings], vec![0]),
        late("late-roles", &[Late::Roles], vec![0]),
        late("late-roles-follower", &[Late::Roles], vec![1]),
        late("late-expulsions", &[Late::Expulsions], vec![1]),
        late("late-reads", &[Late::Reads], vec![1]),
        Setup { release: true, linger: true, hints: true, cuts: MUTE, ..Setup::new("resign") },
        Setup { release: true, ..late("late-resign", &[Late::Roles], vec![0]) },
        Setup { pause: true, ..Setup::new("pause") },
        Setup { crashes: 1, ..Setup::new("crash") },
        Setup { stops: 1, cuts: MUTE, ..Setup::new("stop") },
        Setup { scratch: true, cuts: BOTH, ..Setup::new("scratch") },
    ]
}
