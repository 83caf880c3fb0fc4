//! Operators: requests written into the control registers, each one compare-and-set.

use std::time::Duration;

use tenure_core::record::{Answer, NodeControl, Order, Pin, Request, RoleControl};
use tenure_core::{Epoch, Key, Kind, Name, Record, SessionId, Timestamp, Token, Version, Write};

use super::World;
use crate::event_queue::SimEvent;

impl World {
    /// An operator acts.
    pub(super) fn operator(&mut self) {
        let Some(every) = self.state.settings.operator_every.filter(|_| self.healed_at.is_none()) else {
            return;
        };
        let wait = self.rng.wait(every);
        self.events.schedule(self.state.now + wait, SimEvent::Operator);
        let Some(epoch) = self.state.store.epoch() else { return };
        if self.is_down() {
            return;
        }
        if self.rng.chance(150_000) {
            self.drain_or_not(epoch);
        } else {
            self.ask_of_role(epoch);
        }
    }

    /// Withdraws everything that operators asked for.
    pub(super) fn withdraw_requests(&mut self) {
        let kinds = [Kind::RoleControl, Kind::NodeControl];
        let entries = self.state.store.entries().filter(|(key, _)| kinds.contains(&key.kind()));
        let controls: Vec<_> = entries.map(|(key, held)| (key.clone(), held.0)).collect();
        for (key, version) in controls {
            let put = match key.kind() {
                _ if self.rng.coin() => None,
                Kind::RoleControl => Some(Record::RoleControl(RoleControl::default())),
                _ => Some(Record::NodeControl(NodeControl::default())),
            };
            let put = put.map(|record| (Version::new(self.rng.nonce()), record));
            self.apply(None, &Write { key, expect: Some(version), put, notify: true, requires_lock: false });
        }
    }

    fn drain_or_not(&mut self, epoch: Epoch) {
        let node = self.draw_node();
        let drain = self.rng.coin().then(order);
        self.put(Key::Named(epoch, Kind::NodeControl, node), Record::NodeControl(NodeControl { drain }));
    }

    fn ask_of_role(&mut self, epoch: Epoch) {
        let role = self.rng.pick(&self.state.settings.roles).clone();
        let key = Key::Named(epoch, Kind::RoleControl, role.clone());
        let mut control = match self.state.store.get(&key) {
            Some((_, Record::RoleControl(control))) => control.clone(),
            _ => RoleControl::default(),
        };
        match self.rng.index(8) {
            0 | 1 => control.pause = Some(order()),
            2 => control.pause = None,
            3 => control.pin = Some(Pin { node: self.draw_node(), order: order() }),
            4 => control.pin = None,
            _ => control.request = self.draw_request(epoch, &role).or(control.request),
        }
        self.put(key, Record::RoleControl(control));
    }

    /// A step-down or a transfer, addressed to the tenure in the register, or to one that is past.
    fn draw_request(&mut self, epoch: Epoch, role: &Name) -> Option<Request> {
        let Some((_, Record::Role(record))) =
            self.state.store.get(&Key::Named(epoch, Kind::Role, role.clone()))
        else {
            return None;
        };
        let token = record.token;
        let past = self.rng.chance(200_000);
        let to = self.rng.coin().then(|| self.draw_node());
        let ttl = self.state.settings.max_ttl();
        Some(Request {
            id: SessionId::new(self.rng.nonce()),
            token: if past { Token::new(token.get().saturating_sub(1)) } else { token },
            to,
            preemption: false,
            patience: Duration::from_millis(self.rng.between(0, 2 * ttl.as_millis() as u64)),
            order: order(),
            answer: Answer::Open,
        })
    }

    fn draw_node(&mut self) -> Name {
        self.rng.pick(&self.state.settings.nodes).name.clone()
    }

    fn put(&mut self, key: Key, record: Record) {
        let expect = self.state.store.get(&key).map(|held| held.0);
        let put = Some((Version::new(self.rng.nonce()), record));
        self.apply(None, &Write { key, expect, put, notify: true, requires_lock: false });
    }
}

fn order() -> Order {
    Order { by: "operator".into(), why: String::new(), at: Timestamp::from_micros(1) }
}
