//! What the `history` registers hold.

use serde::{Deserialize, Serialize};
use tenure_core::Wall;
use tenure_core::record::Reason;

use crate::{Name, SessionId, Token};

/// The last tenures of a role, the newest last. For people: times are wall-clock times of the nodes that wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct History {
    /// The tenures.
    pub tenures: Vec<Past>,
}

/// A tenure that was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Its token.
    pub token: Token,
    /// Who led.
    pub node: Name,
    /// Under which session.
    pub session: SessionId,
    /// When it began.
    pub began: Wall,
    /// When it ended; for a leader that died, its last sign of life. None while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Wall>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}
