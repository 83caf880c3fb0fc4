//! What a member tells the stage, one JSON line each.

use serde::{Deserialize, Serialize};
use tenure::{EndReason, Name, Token};

/// What happened to a member. Instants are nanoseconds of the lease clock, which processes of one host can compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub(super) enum MemberMessage {
    /// Its session is open.
    Joined,
    /// Its session is over.
    Over {
        /// Why.
        reason: EndReason,
    },
    /// Its work for a role has begun.
    Led { role: Name, token: Token, at: u64 },
    /// Its work for a role has stopped.
    Left { role: Name, token: Token, reason: EndReason, at: u64 },
    /// What it leads may be relied on until then if nothing more is heard from the store.
    Lease { until: u64 },
}
