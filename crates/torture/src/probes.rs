//! What the injector itself asks the store, over and over, on a connection without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tenure::store::{Entry, Epoch, Key, Kind, Query};
use tenure::{Name, Operator, SharedStore};
use tenure_process::clock::lease_now;

use crate::judge::{NoteKind, NoteWriter};
use crate::recorder::{key_text, version_text};
use crate::{programs, workload};

/// How often.
const TICK: Duration = Duration::from_millis(20);

/// Writes down what the ledger of the ticks says, over and over.
pub(crate) async fn note_ledgers(operator: Operator, notes_to: NoteWriter) {
    let task = Name::new(workload::TICKS).expect("a name");
    loop {
        let t = lease_now();
        if let Ok(records) = operator.tasks(Some(&task)).await {
            for record in records {
                let totals = record.totals;
                let accounted = totals.runs + totals.missed + totals.skipped + record.owed.len() as u64;
                let (task, tick) = (record.task.to_string(), record.tick.as_micros());
                let every = u64::try_from(workload::TICK.as_micros()).unwrap_or(u64::MAX);
                notes_to.note_at(t, NoteKind::Ledger { task, tick, every, accounted });
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Writes down when the store is slow to answer: so it is to nodes.
pub(crate) async fn time_answers(store: SharedStore, namespace: Name, notes_to: NoteWriter) {
    const SLOW: u64 = 50_000_000;
    let query = Query { keys: vec![Key::Cluster], kinds: Vec::new() };
    loop {
        let from = lease_now();
        let answer = tokio::time::timeout(Duration::from_secs(2), store.read(&namespace, &query)).await;
        if lease_now() - from > SLOW || !matches!(answer, Ok(Ok(_))) {
            notes_to.note(NoteKind::Stalled { from });
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Writes down what becomes of the registers of the programs' roles, whose own writes no recorder sees: each version as it is first
/// seen, in place of the one that was seen before, and each that comes back.
pub(crate) async fn note_program_roles(store: SharedStore, namespace: Name, notes_to: NoteWriter) {
    let mut roles = ProgramRoles::default();
    loop {
        let query = Query { keys: roles.keys(), kinds: Vec::new() };
        let called = lease_now();
        if let Ok(found) = store.read(&namespace, &query).await {
            for note in roles.see(&query.keys, &found, called) {
                notes_to.note(note);
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// What was seen of the registers of the programs' roles.
#[derive(Debug, Default)]
struct ProgramRoles {
    epoch: Option<Epoch>,
    seen: BTreeMap<Key, SeenVersions>,
    /// When it was last asked.
    asked: u64,
}

#[derive(Debug, Default)]
struct SeenVersions {
    last: Option<String>,
    all: BTreeSet<String>,
}

impl ProgramRoles {
    fn keys(&self) -> Vec<Key> {
        let role = |role: &str| Some(Key::Named(self.epoch?, Kind::Role, Name::new(role).expect("a name")));
        std::iter::once(Key::Cluster).chain(programs::ROLES.into_iter().filter_map(role)).collect()
    }

    fn see(&mut self, keys: &[Key], found: &[Entry], called: u64) -> Vec<NoteKind> {
        let version =
            |key: &Key| found.iter().find(|entry| entry.key == *key).map(|entry| version_text(entry.version));
        let since = std::mem::replace(&mut self.asked, called);
        let roles = keys.iter().filter(|key| key.kind() == Kind::Role);
        let notes = roles.filter_map(|key| {
            self.seen.entry(key.clone()).or_default().see(key, version(key), (since, called))
        });
        let notes = notes.collect();
        let cluster = found.iter().find(|entry| entry.key == Key::Cluster);
        let epoch = cluster.and_then(|entry| entry.value.parse::<Value>().ok()?.get("epoch")?.as_u64());
        self.epoch = epoch.map(Epoch::new).or(self.epoch);
        notes
    }
}

impl SeenVersions {
    /// What there is to note, if it changed since it was last asked.
    fn see(&mut self, key: &Key, version: Option<String>, (since, called): (u64, u64)) -> Option<NoteKind> {
        if version == self.last {
            return None;
        }
        let (register, expect) = (key_text(key), std::mem::replace(&mut self.last, version.clone()));
        if version.clone().is_some_and(|version| self.all.insert(version)) {
            return Some(NoteKind::Wrote {
                register,
                expect,
                put: version,
                called: since,
                applied: Some(true),
            });
        }
        Some(NoteKind::Read { register, version, called })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Note;
    use crate::linearizability::{chain, lost};
    use tenure::store::Version;

    #[test]
    fn a_register_that_goes_back_under_the_eyes_of_the_injector_has_lost_a_write() {
        let key = Key::Named(Epoch::new(7), Kind::Role, Name::new("command").unwrap());
        let mut seen = SeenVersions::default();
        let version = |number: u128| Some(version_text(Version::new(number)));
        let mut notes = Vec::new();
        for (t, number) in [(10, 1), (20, 1), (30, 2), (40, 1), (50, 3)] {
            let what = seen.see(&key, version(number), (t - 9, t));
            notes.extend(what.map(|what| Note { t: t + 1, node: "injector".into(), pid: 0, what }));
        }
        assert_eq!(notes.len(), 4);
        let histories = chain::histories(&notes);
        let history = &histories["role/command of 7"];
        chain::check(history).expect_err("it went back");
        let (left, lost) = lost::without_lost(history, &[(25, 45)]).unwrap();
        chain::check(&left).unwrap();
        assert_eq!(lost.iter().map(|write| Some(write.put.clone())).collect::<Vec<_>>(), [version(2)]);
    }
}
