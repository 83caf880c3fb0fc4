//! What the log adds up to: the registers, who the members are, and which requests were carried out.
//!
//! Every member applies the same entries in the same order and comes to the same state. Compare-and-set is decided
//! here, by the rules that every store has.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::STORE;
use super::codec::{Garbled, Wire, fields};
use tenure_store::kit::registers::{Registers, apply, select};
use tenure_store::{Entry, Key, Name, Outcome, Query, StoreError, Value, Version, Write};

/// A request is remembered for so many entries. One that comes later is not carried out at all, so that a message that
/// was held up somewhere cannot be applied a second time.
const MEMORY: u64 = 8192;

/// What the log adds up to.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// What names this group for ever; zero as long as no member was elected.
    pub(super) group: u128,
    /// The address of every member, learners included.
    pub(super) members: BTreeMap<u64, String>,
    spaces: BTreeMap<Name, Registers>,
    recent: Recent,
}

/// What an entry of the log says.
#[derive(Debug)]
pub(super) struct Command {
    /// Names the request; an entry that repeats it changes nothing.
    pub(super) request: u128,
    /// Where the log was when the request was made.
    pub(super) since: u64,
    pub(super) namespace: Name,
    pub(super) writes: Vec<Write>,
    /// Not a write: the name for the group, if it has none.
    pub(super) group: Option<u128>,
}

fields!(Command { request, since, namespace, writes, group });

/// What an entry did.
#[derive(Debug)]
pub(super) struct Effect {
    pub(super) request: u128,
    pub(super) answer: Result<Vec<Outcome>, StoreError>,
    /// The registers that were changed by a write that notifies.
    pub(super) notified: Vec<Key>,
}

impl Machine {
    /// That of a group that begins with these members.
    pub(super) fn of(members: BTreeMap<u64, String>) -> Self {
        Self { members, ..Self::default() }
    }

    /// Carries out an entry.
    pub(super) fn apply(&mut self, index: u64, command: &Command) -> Effect {
        let request = command.request;
        if let Some(group) = command.group.filter(|_| self.group == 0) {
            self.group = group;
        }
        self.recent.forget(index);
        if command.since.saturating_add(MEMORY) < index {
            let why = "the request was held up for too long, and was not carried out: try again";
            let answer = Err(StoreError::unknown(STORE, why));
            return Effect { request, answer, notified: Vec::new() };
        }
        if let Some(applied) = self.recent.find(request) {
            let answer = self.repeat(command, &applied);
            return Effect { request, answer, notified: Vec::new() };
        }
        let (outcomes, notified) = self.carry_out(command);
        let applied = outcomes.iter().map(|outcome| matches!(outcome, Outcome::Applied)).collect();
        self.recent.keep(index, request, applied);
        Effect { request, answer: Ok(outcomes), notified }
    }

    fn carry_out(&mut self, command: &Command) -> (Vec<Outcome>, Vec<Key>) {
        let namespace = &command.namespace;
        let registers = self.spaces.entry(namespace.clone()).or_default();
        let mut notified = Vec::new();
        let mut outcomes = Vec::with_capacity(command.writes.len());
        for write in &command.writes {
            let outcome = apply(STORE, registers, write);
            if write.notify && matches!(outcome, Outcome::Applied) {
                notified.push(write.key.clone());
            }
            outcomes.push(outcome);
        }
        if registers.is_empty() {
            self.spaces.remove(namespace);
        }
        (outcomes, notified)
    }

    /// The answer to a request that was carried out before, perhaps by way of another member. What conflicted then
    /// conflicts now, because versions never come back; only "must be absent" may have become true meanwhile, and
    /// then it is unknown what was there.
    fn repeat(&mut self, command: &Command, applied: &[bool]) -> Result<Vec<Outcome>, StoreError> {
        let empty = Registers::new();
        let registers = self.spaces.get(&command.namespace).unwrap_or(&empty);
        let items = command.writes.iter().zip(applied);
        let again = |(write, applied): (&Write, &bool)| {
            if *applied {
                return Some(Outcome::Applied);
            }
            let mut scratch: Registers = registers
                .get_key_value(&write.key)
                .map(|(key, found)| (key.clone(), found.clone()))
                .into_iter()
                .collect();
            let outcome = apply(STORE, &mut scratch, write);
            (!matches!(outcome, Outcome::Applied)).then_some(outcome)
        };
        items.map(again).collect::<Option<Vec<_>>>().ok_or_else(|| {
            StoreError::unknown(STORE, "the answer was lost, and the register has changed since: look again")
        })
    }

    /// The registers that a query finds.
    pub(super) fn read(&self, namespace: &Name, query: &Query) -> Vec<Entry> {
        self.spaces.get(namespace).map(|registers| select(registers, query)).unwrap_or_default()
    }

    /// All of it, for a snapshot.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.group.put(&mut out);
        self.members.iter().map(|(id, address)| (*id, address.clone())).collect::<Vec<_>>().put(&mut out);
        (self.spaces.len() as u64).put(&mut out);
        for (namespace, registers) in &self.spaces {
            namespace.put(&mut out);
            (registers.len() as u64).put(&mut out);
            for (key, (version, value)) in registers {
                key.put(&mut out);
                version.put(&mut out);
                value.put(&mut out);
            }
        }
        self.recent.put(&mut out);
        out
    }

    /// What a snapshot holds; nothing at all is the state before the first entry.
    pub(super) fn from_bytes(mut bytes: &[u8]) -> Result<Self, Garbled> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let from = &mut bytes;
        let group = Wire::get(from)?;
        let (mut members, mut spaces) = (BTreeMap::new(), BTreeMap::new());
        for (id, address) in Vec::<(u64, String)>::get(from)? {
            append(&mut members, id, address)?;
        }
        for _ in 0..u64::get(from)? {
            let (namespace, count): (Name, u64) = Wire::get(from)?;
            let mut registers = Registers::new();
            for _ in 0..count {
                let (key, held): (Key, (Version, Value)) = Wire::get(from)?;
                append(&mut registers, key, held)?;
            }
            append(&mut spaces, namespace, registers)?;
        }
        let recent = Wire::get(from)?;
        if from.is_empty() { Ok(Self { group, members, spaces, recent }) } else { Err(Garbled("end")) }
    }
}

/// Adds what was written down in order: twice the same, or another order, is not what a member wrote.
fn append<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V) -> Result<(), Garbled> {
    if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
        return Err(Garbled("order"));
    }
    map.insert(key, value);
    Ok(())
}

/// Which requests were carried out lately, and which of their items were applied.
#[derive(Debug, Default)]
struct Recent {
    order: VecDeque<(u64, u128)>,
    found: HashMap<u128, Vec<bool>>,
}

impl Recent {
    fn forget(&mut self, index: u64) {
        while self.order.front().is_some_and(|(at, _)| at.saturating_add(MEMORY) < index)
            && let Some((_, request)) = self.order.pop_front()
        {
            self.found.remove(&request);
        }
    }

    fn find(&self, request: u128) -> Option<Vec<bool>> {
        self.found.get(&request).cloned()
    }

    fn keep(&mut self, index: u64, request: u128, applied: Vec<bool>) {
        self.order.push_back((index, request));
        self.found.insert(request, applied);
    }
}

impl Wire for Recent {
    fn put(&self, out: &mut Vec<u8>) {
        let requests = self.order.iter();
        let items =
            requests.map(|(index, id)| ((*index, *id), self.found.get(id).cloned().unwrap_or_default()));
        items.collect::<Vec<_>>().put(out);
    }
    fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
        let mut recent = Self::default();
        for ((index, request), applied) in Vec::<((u64, u128), Vec<bool>)>::get(from)? {
            if recent.found.contains_key(&request) {
                return Err(Garbled("request"));
            }
            recent.keep(index, request, applied);
        }
        Ok(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::{Epoch, Kind};

    fn key() -> Key {
        Key::Named(Epoch::new(1), Kind::Node, space())
    }

    fn space() -> Name {
        Name::new("a").unwrap()
    }

    fn command(request: u128, since: u64, expect: Option<u128>, put: Option<u128>) -> Command {
        let put = put.map(|version| (Version::new(version), Value::of(&1, None)));
        let write =
            Write { key: key(), expect: expect.map(Version::new), put, notify: true, requires_lock: false };
        Command { request, since, namespace: space(), writes: vec![write], group: None }
    }

    fn version(machine: &Machine) -> Option<u128> {
        let found = machine.read(&space(), &Query { keys: vec![key()], kinds: Vec::new() });
        found.first().map(|entry| entry.version.get())
    }

    /// Created, deleted by another, and the creation delivered again: without memory it would come back.
    #[test]
    fn a_request_that_comes_twice_is_carried_out_once() {
        let mut machine = Machine::default();
        assert_eq!(machine.apply(2, &command(1, 1, None, Some(10))).notified.len(), 1);
        machine.apply(3, &command(2, 2, Some(10), None));
        let again = machine.apply(4, &command(1, 1, None, Some(10)));
        assert!(matches!(again.answer.unwrap()[..], [Outcome::Applied]), "it was, the first time");
        assert!(again.notified.is_empty());
        assert_eq!(version(&machine), None, "and stays deleted");
        let mut restored = Machine::from_bytes(&machine.to_bytes()).unwrap();
        restored.apply(5, &command(1, 1, None, Some(10)));
        assert_eq!(version(&restored), None, "a snapshot remembers it too");
    }

    #[test]
    fn what_conflicted_then_conflicts_again_or_is_unknown() {
        let mut machine = Machine::default();
        machine.apply(2, &command(1, 1, None, Some(10)));
        machine.apply(3, &command(2, 1, None, Some(11)));
        let again = machine.apply(4, &command(2, 1, None, Some(11)));
        assert!(matches!(&again.answer.unwrap()[..], [Outcome::Conflict(Some(_))]));
        machine.apply(5, &command(3, 1, Some(10), None));
        assert!(machine.apply(6, &command(2, 1, None, Some(11))).answer.is_err());
        assert_eq!(version(&machine), None);
    }

    #[test]
    fn a_request_from_long_ago_is_not_carried_out_and_memory_is_bounded() {
        let mut machine = Machine::default();
        for index in 2..MEMORY + 100 {
            machine.apply(index, &command(index.into(), index - 1, Some(0), Some(1)));
        }
        assert!(machine.recent.order.len() as u64 <= MEMORY + 1);
        assert_eq!(machine.recent.order.len(), machine.recent.found.len());
        let late = machine.apply(MEMORY + 200, &command(77, 50, None, Some(10)));
        assert!(late.answer.is_err());
        assert_eq!(version(&machine), None);
    }

    #[test]
    fn the_first_name_of_a_group_stays() {
        let mut machine = Machine::default();
        for name in [5, 6] {
            let naming = Command { group: Some(name), writes: Vec::new(), ..command(name, 1, None, None) };
            machine.apply(2, &naming);
        }
        assert_eq!(Machine::from_bytes(&machine.to_bytes()).unwrap().group, 5);
    }
}
