//! Limits of one client, and of all clients together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::HttpConfig;

/// So many clients are remembered; with more than that, those that have been quiet are forgotten.
const CLIENTS: usize = 4096;

/// Requests within a while, for each client.
#[derive(Debug)]
pub struct RateLimit {
    most: f64,
    window: Duration,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl RateLimit {
    /// So many within that time, and as many at once.
    #[must_use]
    pub fn new(most: u32, window: Duration) -> Self {
        Self { most: f64::from(most), window, buckets: Mutex::default() }
    }

    /// Whether this client may send one more request.
    #[must_use]
    pub fn admits(&self, client: &str) -> bool {
        self.reserve(client, Duration::ZERO).is_some()
    }

    /// How long one more request of this client has to wait for those before it; none, and it is not counted, if that is
    /// longer than `patience`.
    #[must_use]
    pub fn reserve(&self, client: &str, patience: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CLIENTS && !buckets.contains_key(client) {
            buckets.retain(|_, bucket| now.duration_since(bucket.at) < 2 * self.window);
        }
        if !buckets.contains_key(client) {
            buckets.insert(client.to_owned(), Bucket { left: self.most, at: now });
        }
        let bucket = buckets.get_mut(client)?;
        let refill = now.duration_since(bucket.at).div_duration_f64(self.window) * self.most;
        bucket.left = (bucket.left + refill).min(self.most);
        bucket.at = now;
        let wait = self.window.mul_f64((1.0 - bucket.left).max(0.0) / self.most);
        if wait > patience {
            return None;
        }
        bucket.left -= 1.0;
        Some(wait)
    }
}

/// Who goes first when slots are scarce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Clients over TCP.
    Network,
    /// Clients that can open the Unix socket, or show the token of an operator.
    Known,
    /// Clients that may act through the Unix socket.
    Operator,
}

/// What is open at once, connections or streams: for each client and in all. One client cannot take everything, and the
/// last eighths are kept for those of a higher priority.
#[derive(Debug)]
pub struct SlotPool {
    per_client: usize,
    in_all: usize,
    open: Mutex<OpenSlots>,
}

#[derive(Debug, Default)]
struct OpenSlots {
    in_all: usize,
    by_client: HashMap<String, usize>,
}

/// A slot of a pool, returned when dropped.
#[derive(Debug)]
pub struct Slot {
    pool: Arc<SlotPool>,
    client: String,
}

impl SlotPool {
    /// At most so many.
    #[must_use]
    pub fn new(per_client: usize, in_all: usize) -> Arc<Self> {
        Arc::new(Self { per_client, in_all, open: Mutex::default() })
    }

    /// Takes a slot, if one is free.
    #[must_use]
    pub fn enter(self: &Arc<Self>, client: &str, priority: Priority) -> Option<Slot> {
        let kept = self.in_all / 8 * (Priority::Operator as usize - priority as usize);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = open.by_client.get(client).copied().unwrap_or_default();
        if mine >= self.per_client || open.in_all >= self.in_all - kept {
            return None;
        }
        open.in_all += 1;
        open.by_client.insert(client.to_owned(), mine + 1);
        Some(Slot { pool: self.clone(), client: client.to_owned() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.pool.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.in_all -= 1;
        if let Some(count) = open.by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                open.by_client.remove(&self.client);
            }
        }
    }
}

/// What answers cost, and so what they are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cost {
    /// Time of a processor: it is put together from memory.
    Memory,
    /// A read of the store, which elections need too.
    Store,
    /// Memory, in KiB, until the client has read it.
    Unread,
}

/// So many KiB of answers are kept for a client that has not read them yet; one that is longer is kept alone.
pub const UNREAD: usize = 16 * 1024;

impl Cost {
    /// How much of it one client may take at once.
    fn limit(self) -> usize {
        match self {
            Self::Memory | Self::Store => 1,
            Self::Unread => UNREAD,
        }
    }
}

/// The answers to one client are put together one after the other. A client with many requests waits for itself: campaigns,
/// probes and other clients find at most one of its answers before their own.
#[derive(Debug, Default)]
pub struct Turns {
    taken: Mutex<HashMap<(String, Cost), Arc<Semaphore>>>,
}

impl Turns {
    /// Returns when no answer of the same cost is being put together for this client, until what it returns is dropped.
    pub async fn take(&self, client: &str, cost: Cost) -> Option<OwnedSemaphorePermit> {
        self.take_many(client, cost, 1).await
    }

    /// The same for so much of it, or as much as there is.
    pub async fn take_many(&self, client: &str, cost: Cost, count: usize) -> Option<OwnedSemaphorePermit> {
        let turn = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            if taken.len() >= CLIENTS {
                taken.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            let turn = taken.entry((client.to_owned(), cost));
            turn.or_insert_with(|| Arc::new(Semaphore::new(cost.limit()))).clone()
        };
        let count = u32::try_from(count.min(cost.limit())).unwrap_or(u32::MAX);
        turn.acquire_many_owned(count).await.ok()
    }
}

/// Connections accepted beyond the limit: they may only send probes, and the oldest is closed when another one comes.
pub const SPARE: usize = 64;
/// So many open files are kept for the store, for commands and for whatever else is not a connection.
const KEPT: u64 = 256;

/// Effective limits: those of the configuration, or lower if the system allows too few open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open files that the system allows this process.
    pub open_files: u64,
    /// Open connections in all.
    pub connections: usize,
    /// Open connections of one client.
    pub connections_per_client: usize,
}

impl Limits {
    /// What the configuration asks for, or less if the system allows too few open files.
    #[must_use]
    pub fn of(http: &HttpConfig, open_files: u64) -> Self {
        // A connection has two: one to answer on, one to know whether the other end reads.
        let left = open_files.saturating_sub(KEPT.min(open_files / 2)) / 2;
        let most = usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(SPARE).max(1);
        let connections = http.connections.min(most);
        let per_client = if connections < http.connections { connections.div_ceil(2) } else { connections };
        let connections_per_client = http.connections_per_client.min(per_client);
        Self { open_files, connections, connections_per_client }
    }
}

/// How many files this process may open.
#[must_use]
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Thousands of streams need as many files; what the system allows is used.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Whether it is this client's turn at once.
    fn takes(turns: &Turns, client: &str, cost: Cost) -> Option<OwnedSemaphorePermit> {
        turns.take(client, cost).now_or_never().flatten()
    }

    #[test]
    fn one_clients_answers_come_one_after_the_other_and_others_do_not_wait_for_them() {
        let turns = Turns::default();
        let first = takes(&turns, "a", Cost::Memory).unwrap();
        assert!(takes(&turns, "a", Cost::Memory).is_none(), "one at a time");
        let store = takes(&turns, "a", Cost::Store).expect("a slow store holds up nothing else");
        let other = takes(&turns, "b", Cost::Memory).expect("nor one client another");
        drop(first);
        assert!(takes(&turns, "a", Cost::Memory).is_some(), "the next one");
        drop((store, other));
        for nth in 0..2 * CLIENTS {
            assert!(takes(&turns, &nth.to_string(), Cost::Memory).is_some());
        }
        assert!(turns.taken.lock().unwrap().len() <= CLIENTS, "those who are gone are forgotten");
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let pool = SlotPool::new(2, 3);
        let enter = |client: &str| pool.enter(client, Priority::Network);
        let (a, b) = (enter("a").unwrap(), enter("a").unwrap());
        assert!(enter("a").is_none(), "two for each");
        let c = enter("b").unwrap();
        assert!(enter("c").is_none(), "three in all");
        drop((a, c));
        assert!(enter("a").is_some());
        drop(b);
        let open = pool.open.lock().unwrap();
        assert!(open.by_client.is_empty() && open.in_all == 0);
    }

    #[test]
    fn the_last_places_are_kept_for_those_who_matter_more() {
        let pool = SlotPool::new(64, 64);
        let fill =
            |client: &str, priority| std::iter::from_fn(|| pool.enter(client, priority)).collect::<Vec<_>>();
        let strangers = fill("a", Priority::Network);
        let known = fill("b", Priority::Known);
        let operators = fill("c", Priority::Operator);
        assert_eq!((strangers.len(), known.len(), operators.len()), (48, 8, 8));
    }

    #[test]
    fn connections_fit_into_the_open_files() {
        let http = crate::config::Config::of(Default::default()).unwrap().http;
        let plenty = Limits::of(&http, 1 << 20);
        assert_eq!((plenty.connections, plenty.connections_per_client), (8192, 2560));
        let few = Limits::of(&http, 1024);
        assert_eq!((few.connections, few.connections_per_client), (320, 160));
        assert_eq!(Limits::of(&http, 64).connections, 1);
    }

    #[test]
    fn a_client_in_a_hurry_waits_for_itself_and_not_for_ever() {
        let rate = RateLimit::new(10, Duration::from_secs(10));
        let wait = |client: &str, patience: u64| {
            rate.reserve(client, Duration::from_secs(patience)).map(|wait| wait.as_secs_f64().round() as u64)
        };
        assert!((0..10).all(|_| wait("a", 0) == Some(0)), "as many at once");
        assert_eq!([wait("a", 2), wait("a", 2), wait("a", 2)], [Some(1), Some(2), None]);
        assert_eq!(wait("a", 9), Some(3), "what was refused is not counted");
        assert_eq!(wait("b", 0), Some(0), "others do not wait");
    }

    #[test]
    fn a_client_that_asks_too_often_is_refused_and_others_are_not() {
        let rate = RateLimit::new(3, Duration::from_secs(3600));
        let admitted = (0..20).filter(|_| rate.admits("a")).count();
        assert_eq!(admitted, 3);
        assert!(rate.admits("b"));
    }
}
