//! Rules 4 and 5: only its owner writes what belongs to a live session; only an expulsion reaches into it.

use tenure_core::record::{Record, SessionState};
use tenure_core::{Key, Kind, SessionId};

use super::{Applied, CheckResult};
use crate::model::setup::Setup;
use crate::model::world::World;

pub(super) fn check(world: &World, applied: &Applied<'_>) -> CheckResult {
    let writer = Setup::node(applied.writer);
    let put = applied.write.put.as_ref().map(|(_, value)| value);
    let before = applied.before.map(|(_, value)| value);
    let fine_grained = match (&applied.write.key, put) {
        (Key::Session(..), Some(Record::Session(new))) => match before {
            Some(Record::Session(old)) if old.node == writer => old.state == SessionState::Live,
            Some(Record::Session(old)) => {
                old.state == SessionState::Live && new.state == SessionState::Expelled
            }
            _ => new.node == writer,
        },
        (Key::Named(_, Kind::Role, _), Some(Record::Role(new))) => match before {
            Some(Record::Role(old)) => {
                let ours = old.holder.as_ref().is_some_and(|holder| holder.node == writer);
                let free = old.holder.as_ref().is_none_or(|holder| may_replace(world, holder.session, ours));
                // Only a holder resigns; only a claim raises the token.
                free && (new.holder.is_some() || ours) && new.token >= old.token
            }
            _ => new.holder.as_ref().is_some_and(|holder| holder.node == writer),
        },
        (Key::Named(_, Kind::Node, name), Some(Record::Node(_))) => {
            let free = match before {
                Some(Record::Node(old)) => may_replace(world, old.session, true),
                _ => true,
            };
            *name == writer && free
        }
        (Key::Cluster, Some(_)) => true,
        _ => false,
    };
    if fine_grained {
        return Ok(());
    }
    Err(format!("{writer} replaces what is not its own to replace: {before:?} by {put:?}"))
}

/// What a session holds may be replaced once that session is over, or by its own node.
fn may_replace(world: &World, holder: SessionId, ours: bool) -> bool {
    ours || world.is_over(holder)
}
