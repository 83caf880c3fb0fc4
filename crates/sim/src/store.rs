//! The simulated store: registers with compare-and-set, and what is needed to forget and to answer stale.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tenure_core::record::Cluster;
use tenure_core::{Entry, Epoch, Key, Kind, Name, Outcome, Query, Record, SessionId, Version, Write};

use crate::clock::Instant;

/// What a register held from one instant on; nothing after it was deleted.
type Held = (Instant, Option<(Version, Record)>);

/// One register with its history.
#[derive(Debug, Clone, Default)]
struct Register {
    /// The newest last.
    past: VecDeque<Held>,
}

impl Register {
    fn now(&self) -> Option<&(Version, Record)> {
        self.past.back().and_then(|held| held.1.as_ref())
    }

    fn at(&self, instant: Instant) -> Option<&(Version, Record)> {
        self.past.iter().rev().find(|held| held.0 <= instant).and_then(|held| held.1.as_ref())
    }
}

/// All registers of one namespace.
#[derive(Debug, Clone, Default)]
pub struct Store {
    registers: BTreeMap<Key, Register>,
    /// How long the history is kept: no stale read is older, no failover loses more.
    memory: Instant,
    /// Sessions whose connection dropped: their beats are refused, because the probe is the beat.
    dropped: BTreeSet<SessionId>,
}

impl Store {
    #[must_use]
    pub fn new(memory: Instant) -> Self {
        Self { memory, ..Self::default() }
    }

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&(Version, Record)> {
        self.registers.get(key).and_then(Register::now)
    }

    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self.get(&Key::Cluster) {
            Some((_, Record::Cluster(Cluster { epoch, .. }))) => Some(*epoch),
            _ => None,
        }
    }

    /// Every register there is now.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &(Version, Record))> {
        self.registers.iter().filter_map(|(key, register)| register.now().map(|held| (key, held)))
    }

    /// What a random older value of that register was, if any is remembered.
    #[must_use]
    pub fn older(&self, key: &Key) -> Option<&(Version, Record)> {
        self.registers.get(key).and_then(|register| register.past.front()).and_then(|held| held.1.as_ref())
    }

    pub fn write(&mut self, now: Instant, write: &Write) -> Outcome {
        if self.is_refused(write) {
            return Outcome::Failed(tenure_core::Fate::Severed);
        }
        let current = self.get(&write.key);
        if current.map(|held| held.0) != write.expect {
            let entry = current.map(|(version, value)| Entry {
                key: write.key.clone(),
                version: *version,
                value: value.clone(),
            });
            return Outcome::Conflict(entry);
        }
        self.set(now, &write.key, write.put.clone());
        Outcome::Applied
    }

    /// Replaces a register whatever it holds.
    pub fn set(&mut self, now: Instant, key: &Key, held: Option<(Version, Record)>) {
        let oldest = now.saturating_sub(self.memory);
        let past = match self.registers.get_mut(key) {
            Some(register) => &mut register.past,
            None => &mut self.registers.entry(key.clone()).or_default().past,
        };
        while past.len() > 1 && past[1].0 < oldest {
            past.pop_front();
        }
        past.push_back((now, held));
    }

    /// The registers of a query as they were at `instant`, which is now or a while ago.
    #[must_use]
    pub fn read(&self, instant: Instant, query: &Query) -> Vec<Entry> {
        let mut found = Vec::with_capacity(query.keys.len());
        for key in &query.keys {
            if let Some(register) = self.registers.get(key) {
                found.extend(entry(key, register, instant));
            }
        }
        for (epoch, kind) in &query.kinds {
            let first = first_key(*epoch, *kind);
            let of_kind = self
                .registers
                .range(first..)
                .take_while(|(key, _)| key.kind() == *kind && key.epoch() == *epoch);
            found.extend(of_kind.filter_map(|(key, register)| entry(key, register, instant)));
        }
        found
    }

    /// The connection of this session dropped: no write of it that requires the lock is accepted from now on.
    pub fn drop_connection(&mut self, session: SessionId) -> bool {
        self.dropped.insert(session)
    }

    /// Goes back to what was there at `instant`. Gives the registers that changed by it.
    pub fn forget_since(&mut self, instant: Instant) -> Vec<Key> {
        let mut lost = Vec::new();
        for (key, register) in &mut self.registers {
            let before = register.past.len();
            while register.past.back().is_some_and(|held| held.0 > instant) {
                register.past.pop_back();
            }
            lost.extend((register.past.len() < before).then(|| key.clone()));
        }
        lost
    }

    pub fn forget_last(&mut self, key: &Key) {
        if let Some(register) = self.registers.get_mut(key) {
            register.past.pop_back();
        }
    }

    /// The registers that were written since `instant`.
    #[must_use]
    pub fn written_since(&self, instant: Instant) -> Vec<Key> {
        let written = |register: &Register| register.past.back().is_some_and(|held| held.0 > instant);
        self.registers.iter().filter(|(_, register)| written(register)).map(|(key, _)| key.clone()).collect()
    }

    /// Loses everything, and the history too.
    pub fn lose_everything(&mut self) {
        self.registers.clear();
    }

    fn is_refused(&self, write: &Write) -> bool {
        matches!(&write.key, Key::Session(_, id) if write.requires_lock && self.dropped.contains(id))
    }
}

fn entry(key: &Key, register: &Register, instant: Instant) -> Option<Entry> {
    register.at(instant).map(|(version, value)| Entry {
        key: key.clone(),
        version: *version,
        value: value.clone(),
    })
}

fn first_key(epoch: Epoch, kind: Kind) -> Key {
    match kind {
        Kind::Cluster => Key::Cluster,
        Kind::Session => Key::Session(epoch, SessionId::new(0)),
        // No name sorts before this one.
        _ => Key::Named(epoch, kind, Name::new("0").expect("a digit is a name")),
    }
}
