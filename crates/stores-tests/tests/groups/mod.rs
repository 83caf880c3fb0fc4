//! What is true of every store on a group of servers, told once: servers that die, freeze or go on with older data, answers that
//! are lost or long. What is special about a product is in its own folder.
#![allow(dead_code, unreachable_pub)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rustix::process::Signal as UnixSignal;
use tempfile::TempDir;
use tenure::conformance::Harness;
use tenure::store::{
    self, Epoch, Fate, Key, Kind, Name, Outcome, Query, SharedStore, Signal, Store, Value, Write,
};
use tenure::{Node, TimingSettings};
use tenure_torture::proxy::{Direction, Proxy};

use crate::server_kit::{self, copy, get, heard, key, must, name, one, put, soon, until_it_works, version};

/// Private servers that can be hurt.
pub trait Group: Send + 'static {
    fn url(&self) -> String;
    fn count(&self) -> usize;
    /// Ends a server as a power loss would.
    fn stop(&mut self, nth: usize);
    fn stop_all(&mut self);
    fn launch_all(&mut self);
    fn signal(&self, nth: usize, signal: UnixSignal);
    /// What the first server has on its disk, while it is down.
    fn data(&mut self) -> &mut TempDir;
    /// Waits until the servers that run agree on a leader, where others than nodes have to wait for that.
    fn wait_for_leader(&self) {}

    fn open(&self) -> SharedStore {
        store::open(&self.url()).expect("a good URL")
    }
}

/// Implements [`Group`] for servers of `tenure_torture` that are members of one.
#[macro_export]
macro_rules! group_of_members {
    ($server:ty, $url:expr $(, $more:item)*) => {
        impl $crate::groups::Group for $server {
            fn url(&self) -> String {
                let url: fn(&Self) -> String = $url;
                url(self)
            }

            fn count(&self) -> usize {
                (**self).count()
            }

            fn stop(&mut self, nth: usize) {
                (**self).stop(nth);
            }

            fn stop_all(&mut self) {
                (**self).stop_all();
            }

            fn launch_all(&mut self) {
                Self::launch_all(self);
            }

            fn signal(&self, nth: usize, signal: rustix::process::Signal) {
                (**self).signal(nth, signal);
            }

            fn data(&mut self) -> &mut tempfile::TempDir {
                (**self).data(0).expect("it is down")
            }

            $($more)*
        }
    };
}

/// Servers of a test's own, for the conformance suite.
pub struct Own<G> {
    pub server: Mutex<G>,
    pub url: String,
    pub secret: &'static str,
    pub longest_value: usize,
}

#[async_trait]
impl<G: Group> Harness for Own<G> {
    async fn open(&self) -> SharedStore {
        store::open(&self.url).unwrap()
    }

    /// Every server dies at once.
    async fn restart(&self) {
        let mut server = self.server.lock().unwrap();
        server.stop_all();
        server.launch_all();
    }

    fn longest_value(&self) -> usize {
        self.longest_value
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.secret.to_owned()]
    }
}

pub fn space() -> Name {
    name("space")
}

pub async fn written(store: &dyn Store, write: &Write) {
    server_kit::written(store, &space(), write).await;
}

pub async fn signalled(watch: &mut BoxStream<'static, Signal>, changed: &Key) {
    heard(watch, |signal| matches!(signal, Signal::Changed(key) if key == changed)).await;
}

/// Whatever happened to a watch meanwhile, a change arrives, by itself or by looking again.
pub async fn noticed(watch: &mut BoxStream<'static, Signal>, changed: &Key) {
    heard(watch, |signal| match signal {
        Signal::Changed(key) => key == changed,
        Signal::Resync => true,
        _ => false,
    })
    .await;
}

pub fn all_of(kind: Kind) -> Query {
    Query { keys: Vec::new(), kinds: vec![(Epoch::new(5), kind)] }
}

/// The URL is understood, and what the server says to it has these words.
pub async fn is_told(url: &str, part: &str) {
    let error = store::open(url).unwrap().describe().await.unwrap_err();
    assert!(error.to_string().contains(part), "{url}: {error}");
}

/// Each server dies in turn; every write that was acknowledged is there, and changes go on to arrive. Gives the last one.
pub async fn any_server_may_die(group: &mut impl Group) -> Write {
    let (writer, watcher) = (group.open(), group.open());
    until_it_works(&*watcher).await;
    let mut watch = watcher.watch(&space());
    let mut last: Option<Write> = None;
    for nth in 0..group.count() {
        group.stop(nth);
        for round in 0..5 {
            let key = key(Kind::Node, "n");
            let write = put(&key, last.as_ref().map(version), &format!("{nth}.{round}"));
            written(&*writer, &write).await;
            last = Some(write);
        }
        let extra = put(&key(Kind::Task, &format!("t{nth}")), None, "x");
        written(&*writer, &extra).await;
        noticed(&mut watch, &extra.key).await;
        group.launch_all();
        until_it_works(&*watcher).await;
    }
    let last = last.expect("there are servers");
    assert_eq!(get(&*watcher, &space(), &last.key).await.unwrap().version, version(&last));
    last
}

/// A frozen server answers nothing, and its connections stay open. A node that used it turns to another, and so does its watch.
pub async fn a_frozen_server_is_left(group: &impl Group, open: impl Fn(usize) -> SharedStore) {
    for nth in 0..group.count() {
        let store = open(nth);
        until_it_works(&*store).await;
        let mut watch = store.watch(&space());
        group.signal(nth, UnixSignal::STOP);
        let write = put(&key(Kind::Node, &format!("n{nth}")), None, "x");
        written(&*store, &write).await;
        // The others may still be electing a leader, where the frozen one was it.
        let found = soon(async {
            loop {
                if let Ok(found) = store.read(&space(), &one(&write.key)).await {
                    return found;
                }
            }
        });
        assert_eq!(found.await[0].version, version(&write));
        let told = put(&key(Kind::Task, &format!("t{nth}")), None, "x");
        written(&*store, &told).await;
        noticed(&mut watch, &told.key).await;
        group.signal(nth, UnixSignal::CONT);
        group.wait_for_leader();
        until_it_works(&*store).await;
    }
}

/// Sixty writes of one register, each after the other, in the background: each is applied once. Gives the last.
pub fn sixty_writes(store: SharedStore) -> tokio::task::JoinHandle<Write> {
    tokio::spawn(async move {
        let mut last: Option<Write> = None;
        for round in 0..60 {
            let write = put(&key(Kind::Node, "n"), last.as_ref().map(version), &round.to_string());
            written(&*store, &write).await;
            last = Some(write);
        }
        last.expect("sixty")
    })
}

/// An answer that is lost is unknown, and the write is never sent again: of two, one was applied, and one never left.
pub async fn a_write_without_an_answer_is_unknown_and_sent_once(store: &dyn Store, link: &Proxy) {
    let unknown = async |write: &Write| match store
        .write(&space(), std::slice::from_ref(write))
        .await
        .unwrap()
        .remove(0)
    {
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::Unknown, "{error}"),
        other => panic!("{other:?}"),
    };
    let write = put(&key(Kind::Node, "n"), None, "x");
    link.lose(Direction::Down);
    unknown(&write).await;
    link.heal();
    until_it_works(store).await;
    assert_eq!(get(store, &space(), &write.key).await.unwrap().version, version(&write));
    // What never left does not arrive later, on another connection.
    let swallowed = put(&key(Kind::Node, "m"), None, "x");
    link.lose(Direction::Up);
    unknown(&swallowed).await;
    link.heal();
    until_it_works(store).await;
    must(store, &space(), put(&swallowed.key, None, "mine")).await;
}

/// A server goes on with what it had earlier: it lacks so many writes. Gives a store that has seen them, and its watch.
pub async fn set_back(group: &mut impl Group, writes: usize) -> (SharedStore, BoxStream<'static, Signal>) {
    let store = group.open();
    must(&*store, &space(), put(&key(Kind::Node, "a"), None, "x")).await;
    group.stop_all();
    let kept = copy(group.data().path());
    group.launch_all();
    until_it_works(&*store).await;
    for nth in 0..writes {
        written(&*store, &put(&key(Kind::Node, &format!("n{nth}")), None, "x")).await;
    }
    let watch = store.watch(&space());
    group.stop_all();
    *group.data() = kept;
    group.launch_all();
    (store, watch)
}

/// Everything of a kind at once: long registers.
pub async fn long_answers_come_whole(store: &dyn Store) {
    for nth in 0..12 {
        let large = Value::of(&"x".repeat(1_000_000), None);
        let write = put(&key(Kind::History, &format!("h{nth}")), None, "");
        let put = Some((version(&write), large));
        must(store, &space(), Write { put, ..write }).await;
    }
    assert_eq!(store.read(&space(), &all_of(Kind::History)).await.unwrap().len(), 12);
}

/// Everything of a kind at once: many registers, written in batches.
pub async fn many_answers_come_whole(store: &dyn Store, batches: usize, each: usize) {
    for round in 0..batches {
        let many: Vec<_> =
            (0..each).map(|nth| put(&key(Kind::Role, &format!("r{round}.{nth}")), None, "x")).collect();
        let outcomes = store.write(&space(), &many).await.unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied)), "{outcomes:?}");
    }
    assert_eq!(store.read(&space(), &all_of(Kind::Role)).await.unwrap().len(), batches * each);
}

/// A register that was deleted can be made again, by a handle that knows of it and by one that does not. Gives a handle, and the
/// watch of another.
pub async fn what_was_deleted_can_be_made_again(
    group: &impl Group,
) -> (SharedStore, BoxStream<'static, Signal>) {
    let (one, other) = (group.open(), group.open());
    let mut watch = other.watch(&space());
    until_it_works(&*other).await;
    for store in [&one, &other, &one] {
        let made = must(&**store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
        let gone = Write { expect: Some(version(&made)), put: None, ..made.clone() };
        must(&*one, &space(), gone.clone()).await;
        signalled(&mut watch, &made.key).await;
        let again = store.write(&space(), std::slice::from_ref(&gone)).await.unwrap().remove(0);
        assert!(matches!(again, Outcome::Conflict(None)), "{again:?}");
    }
    (one, watch)
}

/// How long each server is frozen, then down (or not at all), and left alone after that.
pub struct Failing {
    pub frozen: Duration,
    pub down: Option<Duration>,
    pub rest: Duration,
}

/// A leader goes on leading while servers fail, one at a time: no server is a lease's only hope.
pub async fn a_leader_goes_on_while_servers_fail_one_at_a_time(
    group: &mut impl Group,
    ttl: Duration,
    failing: Failing,
) {
    let settings = TimingSettings { ttl: Some(ttl), ..TimingSettings::default() };
    let node = Arc::new(Node::builder(group.url()).name("a").timing(settings).start().await.unwrap());
    let candidate = node.candidate("scheduler").await.unwrap();
    let lead = soon(candidate.elected()).await.unwrap();
    let leads_for = async |time: Duration, how: &str| {
        let until = Instant::now() + time;
        while Instant::now() < until {
            assert!(lead.check(), "led on while a server was {how}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    for nth in 0..group.count() {
        group.signal(nth, UnixSignal::STOP);
        leads_for(failing.frozen, "frozen").await;
        group.signal(nth, UnixSignal::CONT);
        if let Some(down) = failing.down {
            group.wait_for_leader();
            group.stop(nth);
            leads_for(down, "down").await;
        }
        group.launch_all();
        leads_for(failing.rest, "up again").await;
    }
    assert!(lead.check());
    node.stop().await;
}
