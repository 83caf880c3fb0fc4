//! How registers are named: one key of the bucket each, the value [packed](tenure_store::kit::packed).
//!
//! ```text
//! default.0.cluster.cluster       9b1d… ---------------- {"epoch":7342,…}
//! default.7342.role.scheduler     04aa… 0000000000000017 {"token":17,…}
//! ```
//!
//! Dots part the key, because the server looks for subjects by the parts between them. A dot in a name becomes `=`, which no name
//! has and which keys may have.

use tenure_store::{Epoch, Key, Kind, Name};

/// The subjects of one bucket.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    bucket: String,
}

impl Keys {
    pub(super) fn new(bucket: &str) -> Self {
        Self { bucket: bucket.to_owned() }
    }

    /// The stream that holds the bucket.
    pub(super) fn stream(&self) -> String {
        format!("KV_{}", self.bucket)
    }

    /// The subject of a register.
    pub(super) fn register(&self, namespace: &Name, key: &Key) -> String {
        format!("$KV.{}.{}", self.bucket, named(namespace, key))
    }

    /// The subjects of all registers of a kind.
    pub(super) fn kind(&self, namespace: &Name, epoch: Epoch, kind: Kind) -> String {
        format!("$KV.{}.{}.{}.{}.*", self.bucket, undotted(namespace.as_str()), epoch.get(), kind.as_str())
    }

    /// What is written before a read, to know which replica has everything.
    pub(super) fn barrier(&self) -> String {
        format!("$KV.{}._read", self.bucket)
    }

    /// Where answers to a connection go.
    pub(super) fn replies(&self, connection: &str) -> String {
        format!("tenure.{}.reply.{connection}.", self.bucket)
    }

    /// Where acknowledgements go that every node is to see, of one connection.
    pub(super) fn changes(&self, connection: &str) -> String {
        format!("tenure.{}.changed.{connection}.", self.bucket)
    }

    /// Where those of all connections go.
    pub(super) fn all_changes(&self) -> String {
        format!("tenure.{}.changed.>", self.bucket)
    }

    /// The namespace and the register that a subject of the bucket names; nothing if this version cannot have written it.
    pub(super) fn read_register(&self, subject: &str) -> Option<(Name, Key)> {
        let rest = subject.strip_prefix("$KV.")?.strip_prefix(self.bucket.as_str())?.strip_prefix('.')?;
        read_name(rest)
    }

    /// The register that the subject of an acknowledgement names.
    pub(super) fn read_change(&self, subject: &str) -> Option<(Name, Key)> {
        let rest = subject.strip_prefix("tenure.")?.strip_prefix(self.bucket.as_str())?;
        let mut parts = rest.strip_prefix(".changed.")?.splitn(3, '.');
        read_name(parts.nth(2)?)
    }
}

/// The number of the question that the subject of an answer names.
pub(super) fn read_question(subject: &str) -> Option<u64> {
    subject.split('.').nth(4)?.parse().ok()
}

/// A register, as keys name it.
pub(super) fn named(namespace: &Name, key: &Key) -> String {
    let (space, kind, name) = (undotted(namespace.as_str()), key.kind().as_str(), undotted(&key.name()));
    format!("{space}.{}.{kind}.{name}", key.epoch().get())
}

fn read_name(text: &str) -> Option<(Name, Key)> {
    let parts: Vec<_> = text.split('.').collect();
    let [namespace, epoch, kind, name] = parts[..] else { return None };
    let epoch = Epoch::new(epoch.parse().ok()?);
    let key = Key::from_parts(epoch, kind.parse().ok()?, &name.replace('=', ".")).ok()?;
    Some((Name::new(namespace.replace('=', ".")).ok()?, key))
}

fn undotted(name: &str) -> String {
    name.replace('.', "=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pinned_because_other_versions_and_people_read_them() {
        let (keys, space) = (Keys::new("b"), Name::new("a.b").unwrap());
        let control = Key::Named(Epoch::new(7), Kind::RoleControl, Name::new("r.").unwrap());
        assert_eq!(keys.register(&space, &control), "$KV.b.a=b.7.control/role.r=");
        assert_eq!(keys.register(&space, &Key::Cluster), "$KV.b.a=b.0.cluster.cluster");
        assert_eq!(keys.kind(&space, Epoch::new(7), Kind::Role), "$KV.b.a=b.7.role.*");
        assert_eq!(keys.changes("id") + "5", "tenure.b.changed.id.5");
        assert_eq!(read_question("tenure.b.reply.id.5"), Some(5));
    }

    #[test]
    fn subjects_name_a_register_and_strange_ones_none() {
        let keys = Keys::new("b");
        for kind in Kind::ALL {
            let name = if kind == Kind::Session { "0".repeat(32) } else { "cluster".to_owned() };
            let epoch = if kind == Kind::Cluster { Epoch::new(0) } else { Epoch::new(7) };
            let found = (Name::new("s.").unwrap(), Key::from_parts(epoch, kind, &name).unwrap());
            assert_eq!(keys.read_register(&keys.register(&found.0, &found.1)), Some(found.clone()));
            let change = format!("{}9.{}", keys.changes("id"), named(&found.0, &found.1));
            assert_eq!(keys.read_change(&change), Some(found));
            assert_eq!(read_question(&change), Some(9));
        }
        for strange in ["", "$KV.b", "$KV.b._read", "$KV.b.s.7.role", "$KV.b.s.7.what.r", "$KV.c.s.7.role.r"]
        {
            assert_eq!(keys.read_register(strange), None, "{strange}");
        }
        for strange in ["tenure.b.changed.id", "tenure.b.changed.id.1", "tenure.c.changed.id.1.s.7.role.r"] {
            assert_eq!(keys.read_change(strange), None, "{strange}");
        }
    }
}
