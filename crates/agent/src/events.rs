//! What happens, for streams that come and go: a ring from which each reader takes at its own pace. No reader has a queue,
//! so that a reader that does not read costs nothing, and one that falls behind is told that it missed something.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{BoxStream, StreamExt, unfold};
use serde::Serialize;
use serde_json::Value;
use tenure::operator::ClusterChange;
use tenure::{Event, Name, Token};
use tokio::sync::watch;

use super::alerts::AlertEvent;
use crate::time::Stamp;

/// Every kind of event on the stream, and what it says. `cluster`: as any agent sees the whole; `node`: of this agent's
/// own node.
pub const EVENTS: &[(&str, &str)] = &[
    ("leader-changed", "cluster, node: a role has another leader, or the same one under a new token"),
    ("leader-lost", "cluster: the session of a leader ended without its doing; the role has no leader"),
    ("vacant", "cluster: the leader resigned; the role has no leader"),
    ("leader-silent", "cluster: the leader has not renewed its session for a ttl"),
    ("leader-back", "cluster: a silent leader renews its session again"),
    ("paused", "cluster, node: an operator paused a role"),
    ("resumed", "cluster: an operator resumed a role"),
    ("node-joined", "cluster: a node opened a session"),
    ("node-left", "cluster: a node closed its session"),
    ("node-expelled", "cluster: other nodes ended the session of a node that was gone"),
    ("store-forgot", "cluster: the store lost acknowledged writes: a token fell, or everything is gone"),
    ("state-changed", "node: its state in a role has changed"),
    ("elected", "node: it was elected"),
    ("waiting-for-guard", "node: it was elected, and waits for its guard lock; `why` says what it waits for"),
    ("in-doubt", "node: a beat failed; its leases are not renewed at the moment"),
    ("certain", "node: a beat succeeded again"),
    ("draining", "node: its work must stop"),
    ("lost", "node: a tenure is over"),
    ("stuck", "node: its work did not stop in time"),
    ("election-failed", "node: a claim failed"),
    ("election-check", "node: a beat checked a role and its leader; only with `node.election-checks`"),
    ("leader-down", "node: the session of a leader ended"),
    ("session-opened", "node: it opened a session"),
    ("session-over", "node: its session ended"),
    ("name-taken", "node: another live process uses this node's name; this one waits"),
    ("quarantined", "node: the store lost data or was replaced; the node claims nothing for a while"),
    ("unreadable", "node: this version cannot read a register"),
    ("newer-protocol", "node: other nodes speak a newer protocol; this node stays out until you upgrade it"),
    ("store-failed", "node: the store answered with an error"),
    ("loop-failed", "node: the election loop failed and was restarted"),
    ("store-weakened", "node: the store can now lose acknowledged writes (class C); `why` says what changed"),
    (
        "no-liveness-lock",
        "node: on-disconnect was configured, but the store does not report dropped connections",
    ),
    ("work-restarted", "node: a worker of a role failed and is started again; `why` says how it failed"),
    ("work-failed", "node: the work of a role failed; the role was lost first"),
    (
        "work-stopped",
        "node: the work of a role stopped on request; `cancelled` names workers that did not finish",
    ),
    ("task-started", "node: a scheduled run began; its tick is in the ledger"),
    ("task-ended", "node: a scheduled run ended, with its state and duration"),
    ("task-passed", "node: ticks were missed or skipped, with the reason"),
    ("alert-firing", "node: an alert fires"),
    ("alert-resolved", "node: an alert no longer fires"),
    ("alert-notified", "node: this agent notified a target that an alert fires or is resolved"),
    ("alert-notify-failed", "node: this agent could not notify a target"),
    ("missed", "stream: this reader missed events; read the state again"),
];

/// One event, ready to be sent.
#[derive(Debug)]
pub struct StreamEvent {
    /// Rises by one.
    pub number: u64,
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
    instance: String,
    kept: usize,
    ring: Mutex<VecDeque<Arc<StreamEvent>>>,
    last: watch::Sender<u64>,
}

/// Something for a reader.
#[derive(Debug, Clone)]
pub enum Next {
    Event(Arc<StreamEvent>),
    /// Events up to this number are gone.
    Missed(u64),
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    scope: &'static str,
    #[serde(flatten)]
    event: &'a T,
}

impl Events {
    /// An empty ring that keeps so many.
    #[must_use]
    pub fn new(kept: usize) -> Self {
        let nonce = Token::new(Stamp::now().0.as_micros() ^ (u64::from(std::process::id()) << 40));
        Self {
            instance: format!("{:x}", nonce.get()),
            kept,
            ring: Mutex::default(),
            last: watch::Sender::new(0),
        }
    }

    /// Tells a change of the cluster.
    pub fn publish_change(&self, change: &ClusterChange) {
        self.publish(change.role(), Stamp::now(), &Envelope { scope: "cluster", event: change });
    }

    /// Tells an event of this node.
    pub fn publish_event(&self, event: &Event) {
        self.publish(event.kind.role(), Stamp(event.at), &Envelope { scope: "node", event });
    }

    /// Tells what happened to an alert.
    pub fn publish_alert(&self, happened: &AlertEvent) {
        self.publish(None, Stamp::now(), &Envelope { scope: "node", event: happened });
    }

    fn publish(&self, role: Option<&Name>, at: Stamp, line: &impl Serialize) {
        let Ok(mut value) = serde_json::to_value(line) else { return };
        // An event has times of its own, which are not as programs read them.
        value["at"] = Value::from(at.to_string());
        for key in ["tick", "from", "to"] {
            if let Some(micros) = value.get(key).and_then(Value::as_u64) {
                value[key] = Value::from(Stamp(tenure::Timestamp::from_micros(micros)).to_string());
            }
        }
        let kind = value.get("event").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *self.last.borrow() + 1;
        value["id"] = Value::from(self.id(number));
        ring.push_back(Arc::new(StreamEvent {
            number,
            kind,
            role: role.cloned(),
            data: crate::text::json(&value),
        }));
        let old = ring.len().saturating_sub(self.kept);
        ring.drain(..old);
        self.last.send_replace(number);
    }

    /// What a stream calls an event.
    #[must_use]
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.instance)
    }

    /// After which event a reader goes on that names the last one it has seen. Without a name it begins with what comes
    /// next; an id of another run of this agent means that everything is missed.
    fn resume(&self, last_seen: Option<&str>) -> (u64, bool) {
        let newest = *self.last.borrow();
        match last_seen.map(|id| id.rsplit_once('-')) {
            None => (newest, false),
            Some(Some((instance, number))) if instance == self.instance => match number.parse::<u64>() {
                Ok(number) if number <= newest => (number, false),
                _ => (newest, true),
            },
            Some(_) => (newest, true),
        }
    }

    /// The number before the first of the last so many events that are still here, for a reader that has just seen that the newest is
    /// this one: others may have come since.
    fn before_recent(&self, newest: u64, recent: usize) -> u64 {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let before_first = ring.front().map_or(newest, |first| first.number - 1);
        before_first.max(newest.saturating_sub(recent as u64))
    }

    /// What comes after the last event that the reader has seen. A reader that has seen none begins so many events ago.
    pub fn read(self: &Arc<Self>, last_seen: Option<&str>, recent: usize) -> BoxStream<'static, Next> {
        let (mut after, missed) = self.resume(last_seen);
        if last_seen.is_none() {
            after = self.before_recent(after, recent);
        }
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
    use tenure::event::EventKind;

    use super::*;

    fn joined(events: &Events, node: &str) {
        let node = Name::new(node).unwrap();
        events.publish_change(&ClusterChange::NodeJoined { node, session: tenure::SessionId::new(1) });
    }

    async fn next(stream: &mut BoxStream<'static, Next>) -> Option<u64> {
        match stream.next().await.unwrap() {
            Next::Event(told) => Some(told.number),
            Next::Missed(_) => None,
        }
    }

    /// One of each: what this node tells, and what a watch tells.
    fn one_of_each() -> (Vec<EventKind>, Vec<ClusterChange>) {
        let (role, node) = (Name::new("r").unwrap(), Name::new("n").unwrap());
        let (token, session, reason) =
            (Token::new(1), tenure::SessionId::new(1), tenure::EndReason::Resigned);
        let (r, n) = (|| role.clone(), || node.clone());
        let (state, at) = (tenure::State::Follower, tenure::Timestamp::from_micros(1));
        let ended = tenure::ledger::RunState::Succeeded;
        let kinds = vec![
            EventKind::StateChanged { role: r(), from: state, to: state },
            EventKind::Elected { role: r(), token, session },
            EventKind::WaitingForGuard { role: r(), token, lock: String::new(), why: String::new() },
            EventKind::InDoubt { roles: 1 },
            EventKind::Certain { roles: 1 },
            EventKind::Draining { role: r(), token, reason, forced: false },
            EventKind::Lost { role: r(), token, reason },
            EventKind::Stuck { role: r(), token },
            EventKind::ElectionFailed { role: r(), cause: tenure::event::ElectionFailure::Outrun },
            EventKind::LeaderChanged { role: r(), former: None, leader: None, token },
            EventKind::LeaderDown { role: r(), former: n() },
            EventKind::ElectionCheck { role: r(), leader: None },
            EventKind::Paused { role: r(), paused: true },
            EventKind::SessionOpened { session },
            EventKind::SessionOver { session, reason },
            EventKind::NameTaken { by: session },
            EventKind::Quarantined { millis: 1 },
            EventKind::Unreadable { register: String::new() },
            EventKind::NewerProtocol { protocol: 2 },
            EventKind::StoreFailed { error: String::new() },
            EventKind::LoopFailed { error: String::new() },
            EventKind::Missed { events: 1 },
            EventKind::StoreWeakened { why: String::new() },
            EventKind::NoLivenessLock { session },
            EventKind::WorkRestarted { role: r(), token, worker: String::new(), why: String::new() },
            EventKind::WorkFailed { role: r(), token, worker: String::new(), why: String::new() },
            EventKind::WorkStopped { role: r(), token, cancelled: Vec::new() },
            EventKind::TaskStarted { task: n(), tick: at, token, late_ms: 0 },
            EventKind::TaskEnded { task: n(), tick: at, token, state: ended, took_ms: 1, why: String::new() },
            EventKind::TaskPassed { task: n(), from: at, to: at, count: 1, state: ended, why: String::new() },
        ];
        let (former, begun, over) = (None, Some(tenure::StartReason::First), Some(reason));
        let changes = vec![
            ClusterChange::LeaderChanged { role: r(), leader: n(), token, former: None, reason: begun },
            ClusterChange::LeaderLost { role: r(), former: None, token, reason: over },
            ClusterChange::Vacant { role: r(), former, token, reason: over },
            ClusterChange::LeaderSilent { role: r(), leader: n(), token },
            ClusterChange::LeaderBack { role: r(), leader: n(), token },
            ClusterChange::Paused { role: r(), by: String::new(), why: String::new() },
            ClusterChange::Resumed { role: r() },
            ClusterChange::NodeJoined { node: n(), session },
            ClusterChange::NodeLeft { node: n(), session },
            ClusterChange::NodeExpelled { node: n(), session },
            ClusterChange::StoreForgot { role: Some(r()), token: Some(token), now: Some(token) },
        ];
        (kinds, changes)
    }

    #[test]
    fn a_reader_begins_so_many_events_ago_whatever_comes_meanwhile() {
        let events = Events::new(100);
        let (kinds, _) = one_of_each();
        for kind in kinds.into_iter().take(3) {
            events.publish_event(&tenure::testing::event("n", kind));
        }
        assert_eq!((events.before_recent(3, 2), events.before_recent(3, 100)), (1, 0));
        // Two came after the reader had looked for the newest.
        assert_eq!((events.before_recent(1, 1), events.before_recent(1, 100)), (0, 0));
        assert_eq!(Events::new(1).before_recent(0, 5), 0);
    }

    #[test]
    fn every_event_is_listed_and_documented_and_every_listed_one_can_be_told() {
        let events = Events::new(100);
        let (kinds, changes) = one_of_each();
        for kind in kinds {
            events.publish_event(&tenure::testing::event("n", kind));
        }
        changes.iter().for_each(|change| events.publish_change(change));
        let (alert, severity, text) = (Name::new("a").unwrap(), "info", String::new);
        let (target, status, error, summary) = (text(), "firing", text(), text());
        for happened in [
            AlertEvent::AlertFiring { alert: alert.clone(), severity, summary },
            AlertEvent::AlertResolved { alert: alert.clone(), severity },
            AlertEvent::AlertNotified { alert: alert.clone(), target: target.clone(), status },
            AlertEvent::AlertNotifyFailed { alert, target, error },
        ] {
            events.publish_alert(&happened);
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
        let page = include_str!("../../../docs/reference/events.md");
        for (kind, meaning) in EVENTS {
            assert!(page.contains(&format!("| `{kind}` | {meaning} |")), "| `{kind}` | {meaning} |");
        }
    }

    #[tokio::test]
    async fn a_reader_goes_on_where_it_was_or_is_told_that_it_missed_something() {
        let events = Arc::new(Events::new(3));
        let mut fresh = events.read(None, 0);
        for _ in 0..5 {
            joined(&events, "a");
        }
        assert_eq!(next(&mut fresh).await, None, "two are gone");
        assert_eq!(next(&mut fresh).await, Some(3));
        let mut back = events.read(Some(&events.id(4)), 9);
        assert_eq!(next(&mut back).await, Some(5));
        joined(&events, "b");
        assert_eq!(next(&mut back).await, Some(6));
        let mut strange = events.read(Some("another-5"), 9);
        assert_eq!(next(&mut strange).await, None);
        joined(&events, "c");
        assert_eq!(next(&mut strange).await, Some(7));
        let (mut some, mut all) = (events.read(None, 2), events.read(None, 9));
        assert_eq!(
            (next(&mut some).await, next(&mut all).await),
            (Some(6), Some(5)),
            "as far as they are kept"
        );
    }
}
