//! The errors of this crate.

use tenure_core::{BadName, BadTiming};

use crate::Name;
use crate::store::StoreError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
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
    /// Signals cannot be listened to.
    #[error("cannot listen to signals: {0}")]
    Signals(std::io::Error),
    /// The namespace has no such role.
    #[error("role \"{role}\" not found in namespace \"{namespace}\"")]
    NoSuchRole { role: Name, namespace: Name },
    /// The namespace has no such task.
    #[error("task \"{task}\" not found in namespace \"{namespace}\"")]
    NoSuchTask { task: Name, namespace: Name },
    /// A role without a leader cannot be handed over.
    #[error("cannot hand {0} over: it has no leader")]
    NoLeader(Name),
    /// A role that is paused has no leader on purpose.
    #[error("{role} is paused by {by}")]
    Paused {
        role: Name,
        /// The operator that paused it.
        by: String,
    },
    /// A role that is in use cannot be forgotten.
    #[error("cannot forget {role}: {node} leads it or is a candidate for it; stop that node first")]
    InUse {
        role: Name,
        /// Its leader or a candidate.
        node: Name,
    },
    /// The target of a transfer cannot lead.
    #[error("{node} cannot take {role}: {why}")]
    NoTarget { role: Name, node: Name, why: String },
    /// The leader did not give the role up in time; the request was withdrawn.
    #[error("{leader} has not given {role} up within {waited:?}; the request was withdrawn")]
    NotHandedOver { role: Name, leader: Name, waited: std::time::Duration },
    /// The leader agreed, and its work has not stopped yet.
    #[error(
        "{leader} is still stopping its work on {role} after {waited:?}; the role is vacant when it has stopped"
    )]
    StillStopping { role: Name, leader: Name, waited: std::time::Duration },
    /// The leader gave the role up, and no node took it.
    #[error("{role} was given up, and no candidate has taken it within {waited:?}")]
    NotTaken { role: Name, waited: std::time::Duration },
    /// Another node than the target leads now.
    #[error("{leader} leads {role} now, not {wanted}")]
    OtherLeader { role: Name, leader: Name, wanted: Name },
    /// Other writers kept changing the same register.
    #[error("{0} is being changed by others at the same time; try again")]
    Contended(String),
}
