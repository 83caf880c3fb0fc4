//! What a register is called.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::{Epoch, Name, SessionId};

/// The kinds of register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The one register that says that this namespace exists.
    Cluster,
    /// A node's proof of life.
    Session,
    /// Who runs under a node name.
    Node,
    /// Who leads a role.
    Role,
    /// What operators ask of a role.
    RoleControl,
    /// What operators ask of a node.
    NodeControl,
    /// The ledger of a schedule.
    Task,
    /// Past tenures of a role.
    History,
    /// What operators did.
    Audit,
    /// An alert: since when, who was told, who knows.
    Alert,
}

#[allow(missing_docs, reason = "fields are named after what they hold")]
impl Kind {
    pub const ALL: [Self; 10] = [
        Self::Cluster,
        Self::Session,
        Self::Node,
        Self::Role,
        Self::RoleControl,
        Self::NodeControl,
        Self::Task,
        Self::History,
        Self::Audit,
        Self::Alert,
    ];

    /// Its name in keys, as stores keep it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Session => "session",
            Self::Node => "node",
            Self::Role => "role",
            Self::RoleControl => "control/role",
            Self::NodeControl => "control/node",
            Self::Task => "task",
            Self::History => "history",
            Self::Audit => "audit",
            Self::Alert => "alert",
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

/// A kind that this version does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of register")]
pub struct UnknownKind(String);

/// A register of one namespace. (The namespace itself is given with each operation.)
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The one register that says that this namespace exists.
    Cluster,
    /// A node's proof of life.
    Session(Epoch, SessionId),
    /// A register called by a name that people chose.
    Named(Epoch, Kind, Name),
}

/// A stored key that this version cannot have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store holds a register {kind}/{name:?} that this version cannot name")]
pub struct BadKey {
    kind: &'static str,
    name: String,
}

impl Key {
    const CLUSTER: &'static str = "cluster";

    /// The key that a store kept as these three columns.
    pub fn from_parts(epoch: Epoch, kind: Kind, name: &str) -> Result<Self, BadKey> {
        let bad = || BadKey { kind: kind.as_str(), name: name.to_owned() };
        match kind {
            Kind::Cluster => Ok(Self::Cluster),
            Kind::Session => name.parse().map(|id| Self::Session(epoch, id)).map_err(|_| bad()),
            _ => Name::new(name).map(|name| Self::Named(epoch, kind, name)).map_err(|_| bad()),
        }
    }

    /// Which life of the store it belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Cluster => Epoch::new(0),
            Self::Session(epoch, _) | Self::Named(epoch, _, _) => *epoch,
        }
    }

    /// What it holds.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Cluster => Kind::Cluster,
            Self::Session(..) => Kind::Session,
            Self::Named(_, kind, _) => *kind,
        }
    }

    /// Whose it is, as stores keep it.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Cluster => Cow::Borrowed(Self::CLUSTER),
            Self::Session(_, id) => Cow::Owned(id.to_string()),
            Self::Named(_, _, name) => Cow::Borrowed(name.as_str()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind().as_str(), self.name())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_three_columns() {
        let name = Name::new("web-1").unwrap();
        let mut keys = vec![Key::Cluster, Key::Session(Epoch::new(7), SessionId::new(9))];
        keys.extend(Kind::ALL[2..].iter().map(|kind| Key::Named(Epoch::new(7), *kind, name.clone())));
        for key in keys {
            let kind: Kind = key.kind().as_str().parse().unwrap();
            assert_eq!(Key::from_parts(key.epoch(), kind, &key.name()), Ok(key));
        }
        assert!(Key::from_parts(Epoch::new(7), Kind::Role, "a b").is_err());
    }
}
