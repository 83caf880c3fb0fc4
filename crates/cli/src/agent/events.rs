//! What happens, for streams that come and go: a ring from which each reader takes at its own pace. Nobody has a queue,
//! so that a reader that does not read costs nothing, and one that falls behind is told that it missed something.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{BoxStream, StreamExt, unfold};
use serde::Serialize;
use serde_json::Value;
use tenure::event::What;
use tenure::operator::Change;
use tenure::{Event, Name, Token};
use tokio::sync::watch;

use super::alerts::Happened;
use crate::output::time::Stamp;

/// Every kind of event on the stream, and what it says. `cluster`: as any agent sees the whole; `node`: of this agent's
/// own node.
pub const EVENTS: &[(&str, &str)] = &[
    ("leader-changed", "cluster, node: a role has another leader, or the same one under a new token"),
    ("leader-lost", "cluster: the session of a leader is over without its doing, and nobody leads"),
    ("vacant", "cluster: the leader gave the role up, and nobody leads"),
    ("leader-silent", "cluster: the leader has not beaten for a ttl"),
    ("leader-back", "cluster: a silent leader beats again"),
    ("paused", "cluster, node: an operator paused a role"),
    ("resumed", "cluster: an operator lets a role be led again"),
    ("node-joined", "cluster: a process takes part"),
    ("node-left", "cluster: it stopped"),
    ("node-expelled", "cluster: others proved it gone"),
    ("state-changed", "node: its part in a role has changed"),
    ("elected", "node: it leads"),
    ("in-doubt", "node: a beat failed; what it leads is not renewed for the moment"),
    ("certain", "node: a beat succeeded again"),
    ("draining", "node: work was told to stop"),
    ("lost", "node: a tenure is over"),
    ("stuck", "node: work had not stopped when it had to"),
    ("election-failed", "node: a claim did not succeed"),
    ("leader-down", "node: the session of a leader is over"),
    ("session-opened", "node: a session was opened"),
    ("session-over", "node: a session is over"),
    ("name-taken", "node: a live process has this node's name; this one waits"),
    ("quarantined", "node: the store forgot, or was replaced; nothing is claimed for a while"),
    ("unreadable", "node: a register holds what this version cannot read"),
    ("store-failed", "node: the store answered with an error"),
    ("loop-failed", "node: the election loop failed and was started anew"),
    ("no-witness", "node: on disconnect was asked for, but the store cannot tell of dropped connections"),
    ("work-failed", "node: the work of a role failed; the role was lost first"),
    ("work-stopped", "node: the work of a role has stopped because it was told to; who did not finish"),
    ("task-started", "node: a scheduled run began, and its tick is in the ledger"),
    ("task-ended", "node: a scheduled run ended; how, and how long it took"),
    ("task-passed", "node: ticks were missed or skipped, and why"),
    ("alert-firing", "node: the condition of an alert has held for long enough"),
    ("alert-over", "node: it does not hold any more"),
    ("alert-told", "node: this agent told a target that an alert fires, or that it is over"),
    ("alert-untold", "node: a target could not be told"),
    ("missed", "stream: events are gone that this reader has not seen; look at everything again"),
];

/// One event, ready to be sent.
#[derive(Debug)]
pub struct Told {
    /// Rises by one.
    pub number: u64,
    /// Its kind.
    pub kind: String,
    /// The role that it is about.
    pub role: Option<Name>,
    /// All of it, as JSON.
    pub data: String,
}

/// The ring.
#[derive(Debug)]
pub struct Events {
    /// Tells this process from the one before.
    life: String,
    kept: usize,
    ring: Mutex<VecDeque<Arc<Told>>>,
    last: watch::Sender<u64>,
}

/// Something for a reader.
#[derive(Debug, Clone)]
pub enum Next {
    /// An event.
    Event(Arc<Told>),
    /// Events up to this number are gone.
    Missed(u64),
}

#[derive(Serialize)]
struct Line<'a, T> {
    scope: &'static str,
    #[serde(flatten)]
    event: &'a T,
}

impl Events {
    /// An empty ring that keeps so many.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        let nonce = Token(Stamp::now().0.0 ^ (u64::from(std::process::id()) << 40));
        Self { life: format!("{:x}", nonce.0), kept, ring: Mutex::default(), last: watch::Sender::new(0) }
    }

    /// Tells a change of the cluster.
    pub fn tell_change(&self, change: &Change) {
        self.tell(change.role(), Stamp::now(), &Line { scope: "cluster", event: change });
    }

    /// Tells an event of this node.
    pub fn tell_event(&self, event: &Event) {
        if !matches!(event.what, What::ElectionCheck { .. }) {
            self.tell(event.what.role(), Stamp(event.at), &Line { scope: "node", event });
        }
    }

    /// Tells what happened to an alert.
    pub fn tell_alert(&self, happened: &Happened) {
        self.tell(None, Stamp::now(), &Line { scope: "node", event: happened });
    }

    fn tell(&self, role: Option<&Name>, at: Stamp, line: &impl Serialize) {
        let Ok(mut value) = serde_json::to_value(line) else { return };
        // An event has times of its own, which are not as programs read them.
        value["at"] = Value::from(at.to_string());
        for key in ["tick", "from", "to"] {
            if let Some(micros) = value.get(key).and_then(Value::as_u64) {
                value[key] = Value::from(Stamp(tenure::Wall(micros)).to_string());
            }
        }
        let kind = value.get("event").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *self.last.borrow() + 1;
        value["id"] = Value::from(self.id(number));
        ring.push_back(Arc::new(Told { number, kind, role: role.cloned(), data: value.to_string() }));
        let old = ring.len().saturating_sub(self.kept);
        ring.drain(..old);
        self.last.send_replace(number);
    }

    /// What a stream calls an event.
    #[must_use]
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.life)
    }

    /// After which event a reader goes on that names the last one it has seen. Without a name it begins with what comes
    /// next; an id of another life of this agent means that everything is missed.
    fn resume(&self, last_seen: Option<&str>) -> (u64, bool) {
        let newest = *self.last.borrow();
        match last_seen.map(|id| id.rsplit_once('-')) {
            None => (newest, false),
            Some(Some((life, number))) if life == self.life => match number.parse::<u64>() {
                Ok(number) if number <= newest => (number, false),
                _ => (newest, true),
            },
            Some(_) => (newest, true),
        }
    }

    /// What comes after the last event that the reader has seen.
    pub fn read(self: &Arc<Self>, last_seen: Option<&str>) -> BoxStream<'static, Next> {
        let (after, missed) = self.resume(last_seen);
        let reader = Reader { events: self.clone(), news: self.last.subscribe(), after, missed };
        unfold(reader, |mut reader| async move {
            let next = reader.next().await?;
            Some((next, reader))
        })
        .boxed()
    }

    /// The first event after that one, or how many are gone.
    fn after(&self, number: u64) -> Option<Next> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ring.front()?.number;
        if number + 1 < first {
            return Some(Next::Missed(first - 1));
        }
        let index = usize::try_from(number + 1 - first).ok()?;
        ring.get(index).cloned().map(Next::Event)
    }
}

struct Reader {
    events: Arc<Events>,
    news: watch::Receiver<u64>,
    after: u64,
    missed: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Next> {
        if std::mem::take(&mut self.missed) {
            return Some(Next::Missed(self.after));
        }
        loop {
            self.news.borrow_and_update();
            if let Some(next) = self.events.after(self.after) {
                self.after = match &next {
                    Next::Event(told) => told.number,
                    Next::Missed(number) => *number,
                };
                return Some(next);
            }
            self.news.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(events: &Events, node: &str) {
        let node = Name::new(node).unwrap();
        events.tell_change(&Change::NodeJoined { node, session: tenure::SessionId(1) });
    }

    async fn next(stream: &mut BoxStream<'static, Next>) -> Option<u64> {
        match stream.next().await.unwrap() {
            Next::Event(told) => Some(told.number),
            Next::Missed(_) => None,
        }
    }

    /// One of each: what this node tells, and what a watch tells.
    fn one_of_each() -> (Vec<What>, Vec<Change>) {
        let (role, node) = (Name::new("r").unwrap(), Name::new("n").unwrap());
        let (token, session, reason) = (Token(1), tenure::SessionId(1), tenure::Reason::First);
        let (r, n) = (|| role.clone(), || node.clone());
        let (state, at) = (tenure::State::Follower, tenure::Wall(1));
        let ended = tenure::ledger::RunState::Succeeded;
        let whats = vec![
            What::StateChanged { role: r(), from: state, to: state },
            What::Elected { role: r(), token, session },
            What::InDoubt { roles: 1 },
            What::Certain { roles: 1 },
            What::Draining { role: r(), token, reason, forced: false },
            What::Lost { role: r(), token, reason },
            What::Stuck { role: r(), token },
            What::ElectionFailed { role: r(), cause: tenure::event::Cause::Outrun },
            What::LeaderChanged { role: r(), former: None, leader: None, token },
            What::LeaderDown { role: r(), former: n() },
            What::Paused { role: r(), paused: true },
            What::SessionOpened { session },
            What::SessionOver { session, reason },
            What::NameTaken { by: session },
            What::Quarantined { millis: 1 },
            What::Unreadable { register: String::new() },
            What::StoreFailed { error: String::new() },
            What::LoopFailed { error: String::new() },
            What::Missed { events: 1 },
            What::NoWitness { session },
            What::WorkFailed { role: r(), token, worker: String::new(), why: String::new() },
            What::WorkStopped { role: r(), token, cancelled: Vec::new() },
            What::TaskStarted { task: n(), tick: at, token, late_ms: 0 },
            What::TaskEnded { task: n(), tick: at, token, state: ended, took_ms: 1, why: String::new() },
            What::TaskPassed { task: n(), from: at, to: at, count: 1, state: ended, why: String::new() },
        ];
        let (former, some) = (None, Some(reason));
        let changes = vec![
            Change::LeaderChanged { role: r(), leader: n(), token, former: None, reason: some },
            Change::LeaderLost { role: r(), former: None, token, reason: some },
            Change::Vacant { role: r(), former, token, reason: some },
            Change::LeaderSilent { role: r(), leader: n(), token },
            Change::LeaderBack { role: r(), leader: n(), token },
            Change::Paused { role: r(), by: String::new(), why: String::new() },
            Change::Resumed { role: r() },
            Change::NodeJoined { node: n(), session },
            Change::NodeLeft { node: n(), session },
            Change::NodeExpelled { node: n(), session },
        ];
        (whats, changes)
    }

    #[test]
    fn every_event_is_listed_and_documented_and_every_listed_one_can_be_told() {
        let events = Events::new(100);
        let (whats, changes) = one_of_each();
        for what in whats {
            let (at, node) = (tenure::Wall(1), Name::new("n").unwrap());
            events.tell_event(&Event { sequence: 0, at, lease_nanos: 0, node, what });
        }
        changes.iter().for_each(|change| events.tell_change(change));
        let (alert, severity, text) = (Name::new("a").unwrap(), "info", String::new);
        let (target, status, error, summary) = (text(), "firing", text(), text());
        for happened in [
            Happened::AlertFiring { alert: alert.clone(), severity, summary },
            Happened::AlertOver { alert: alert.clone(), severity },
            Happened::AlertTold { alert: alert.clone(), target: target.clone(), status },
            Happened::AlertUntold { alert, target, error },
        ] {
            events.tell_alert(&happened);
        }
        let ring = events.ring.lock().unwrap();
        let told: std::collections::BTreeSet<&str> = ring.iter().map(|told| told.kind.as_str()).collect();
        assert_eq!(told, EVENTS.iter().map(|(kind, _)| *kind).collect());
        for told in ring.iter() {
            let data: Value = serde_json::from_str(&told.data).unwrap();
            for key in ["at", "tick"].into_iter().filter(|key| *key == "at" || !data[key].is_null()) {
                let time = data[key].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
                assert!(time.is_some(), "{key}: {data}");
            }
        }
        let page = include_str!("../../../../docs/agent.md");
        for (kind, meaning) in EVENTS {
            assert!(page.contains(&format!("| `{kind}` | {meaning} |")), "| `{kind}` | {meaning} |");
        }
    }

    #[tokio::test]
    async fn a_reader_goes_on_where_it_was_or_is_told_that_it_missed_something() {
        let events = Arc::new(Events::new(3));
        let mut fresh = events.read(None);
        for _ in 0..5 {
            joined(&events, "a");
        }
        assert_eq!(next(&mut fresh).await, None, "two are gone");
        assert_eq!(next(&mut fresh).await, Some(3));
        let mut back = events.read(Some(&events.id(4)));
        assert_eq!(next(&mut back).await, Some(5));
        joined(&events, "b");
        assert_eq!(next(&mut back).await, Some(6));
        let mut strange = events.read(Some("another-5"));
        assert_eq!(next(&mut strange).await, None);
        joined(&events, "c");
        assert_eq!(next(&mut strange).await, Some(7));
    }
}
