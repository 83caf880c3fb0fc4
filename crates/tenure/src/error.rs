//! What can go wrong before an election, each with what to do about it.

use tenure_core::{BadName, BadTiming};

use crate::Name;
use crate::store::StoreError;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name does not follow the grammar.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The times do not fit together.
    #[error(transparent)]
    Timing(#[from] BadTiming),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The election loop needs a thread and did not get one.
    #[error("the election loop could not be started: {0}")]
    Thread(std::io::Error),
    /// Nobody ever stood for that role here.
    #[error("there is no role {role} in namespace {namespace}; `tenure status` lists those there are")]
    NoSuchRole {
        /// The role.
        role: Name,
        /// Where it was looked for.
        namespace: Name,
    },
    /// No ledger of that task is here.
    #[error("there is no task {task} in namespace {namespace}; `tenure task list` lists those there are")]
    NoSuchTask {
        /// The task.
        task: Name,
        /// Where it was looked for.
        namespace: Name,
    },
    /// A role without a leader cannot be handed over.
    #[error("nobody leads {0}, so there is nothing to hand over; `tenure status` shows who stands for it")]
    NobodyLeads(Name),
    /// A role that is paused has no leader on purpose.
    #[error("{role} is paused by {by}; `tenure resume {role}` lets it be led again")]
    Paused {
        /// The role.
        role: Name,
        /// Who paused it.
        by: String,
    },
    /// The target of a transfer cannot lead.
    #[error("{node} cannot take {role}: {why}")]
    NoTarget {
        /// The role.
        role: Name,
        /// The node.
        node: Name,
        /// Why not.
        why: String,
    },
    /// The leader did not give the role up in time; the request was withdrawn.
    #[error("{leader} has not given {role} up within {waited:?}; the request was withdrawn")]
    NotHandedOver {
        /// The role.
        role: Name,
        /// Who leads.
        leader: Name,
        /// How long.
        waited: std::time::Duration,
    },
    /// The leader agreed, and its work is still winding down.
    #[error(
        "{leader} is still winding its work on {role} down after {waited:?}; the role is free when that is done"
    )]
    WindingDown {
        /// The role.
        role: Name,
        /// Who leads.
        leader: Name,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// The leader gave the role up, and nobody took it.
    #[error(
        "{role} was given up, and nobody has taken it within {waited:?}; `tenure status` shows who stands for it"
    )]
    NobodyTook {
        /// The role.
        role: Name,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// Somebody else than the target leads now.
    #[error("{leader} leads {role} now, not {wanted}")]
    OutrunBy {
        /// The role.
        role: Name,
        /// Who leads.
        leader: Name,
        /// Who was to lead.
        wanted: Name,
    },
    /// Others changed the same register again and again.
    #[error("{0} is being changed by others at the same time; try again")]
    Contended(String),
}
