//! Lies about registers: which one has changed. Some name registers that there are, which the torture tells the
//! neighbour because it could not know.

use tenure::store::{Epoch, Key, Kind, Query};
use tenure::{Name, SharedStore};

/// What every lie with content holds, so that it is not taken for the truth when it is received again.
pub(super) const MARK: &str = "forged";

/// How many are told at once in a flood, and how often there is one.
const FLOOD: usize = 2_000;
const SELDOM: u8 = 12;

/// A register, or something that looks like one.
#[derive(Debug, Clone)]
pub(super) struct ForgedHint {
    pub(super) namespace: String,
    pub(super) epoch: String,
    pub(super) kind: String,
    pub(super) name: String,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct HintForger {
    store: SharedStore,
    pub(super) namespace: Name,
}

impl HintForger {
    pub(super) fn new(store: SharedStore, namespace: Name) -> Self {
        Self { store, namespace }
    }

    /// A few, or a flood.
    pub(super) async fn forgeries(&self, random: &mut fastrand::Rng) -> Vec<ForgedHint> {
        let count = if random.u8(..SELDOM) == 0 { FLOOD } else { random.usize(1..20) };
        let known = self.known().await.unwrap_or_default();
        (0..count).map(|_| self.forge_one(&known, random)).collect()
    }

    /// Registers that there are.
    async fn known(&self) -> Option<Vec<Key>> {
        let ask = |query: Query| async move { self.store.read(&self.namespace, &query).await.ok() };
        let cluster = ask(Query { keys: vec![Key::Cluster], kinds: Vec::new() }).await?;
        let cluster: serde_json::Value = serde_json::from_str(&cluster.first()?.value.json).ok()?;
        let epoch = Epoch::new(cluster["epoch"].as_u64()?);
        let kinds = [Kind::Session, Kind::Role, Kind::Node, Kind::RoleControl].map(|kind| (epoch, kind));
        let found = ask(Query { keys: Vec::new(), kinds: kinds.to_vec() }).await?;
        Some(found.into_iter().map(|entry| entry.key).collect())
    }

    fn forge_one(&self, known: &[Key], random: &mut fastrand::Rng) -> ForgedHint {
        let real = known.get(random.usize(..known.len().max(1)));
        let mut forge_one = ForgedHint {
            namespace: self.namespace.to_string(),
            epoch: real.map_or(1, |key| key.epoch().get()).to_string(),
            kind: real.map_or("role", |key| key.kind().as_str()).to_owned(),
            name: real.map_or_else(|| "role-1".to_owned(), |key| key.name().into_owned()),
        };
        match random.u8(..10) {
            0 => forge_one.name = format!("role-{}", random.u32(..)),
            1 => forge_one.name = format!("{:032x}", random.u128(..)),
            2 => forge_one.epoch = random.u64(..).to_string(),
            3 => forge_one.namespace = format!("other-{}", random.u8(..)),
            // As it was when content was believed: a version, a token, a record.
            4 => forge_one.name += &format!("\n{:032x}\n9007199254740990\n{{\"{MARK}\":1}}", random.u128(..)),
            5 => forge_one.kind = format!("\"{MARK}\u{1b}[2J\u{9b}"),
            _ => {}
        }
        forge_one
    }
}
