//! How much one client may ask for, and all of them together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// So many clients are remembered; with more than that, those that have been quiet are forgotten.
const CLIENTS: usize = 4096;

/// Requests a second, for each client.
#[derive(Debug)]
pub struct Rate {
    per_second: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rate {
    /// So many requests a second, and as many at once.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), buckets: Mutex::default() }
    }

    /// Whether this client may ask once more.
    #[must_use]
    pub fn admits(&self, client: &str) -> bool {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CLIENTS && !buckets.contains_key(client) {
            buckets.retain(|_, bucket| now.duration_since(bucket.at).as_secs() < 2);
        }
        if !buckets.contains_key(client) {
            buckets.insert(client.to_owned(), Bucket { left: self.per_second, at: now });
        }
        let Some(bucket) = buckets.get_mut(client) else { return false };
        let refill = now.duration_since(bucket.at).as_secs_f64() * self.per_second;
        bucket.left = (bucket.left + refill).min(self.per_second);
        bucket.at = now;
        if bucket.left < 1.0 {
            return false;
        }
        bucket.left -= 1.0;
        true
    }
}

/// Open streams, for each client and in all.
#[derive(Debug)]
pub struct Streams {
    per_client: usize,
    in_all: usize,
    open: Mutex<HashMap<String, usize>>,
}

/// An open stream. Dropping it makes room for another.
#[derive(Debug)]
pub struct Stream {
    streams: Arc<Streams>,
    client: String,
}

impl Streams {
    /// At most so many.
    #[must_use]
    pub fn new(per_client: usize, in_all: usize) -> Self {
        Self { per_client, in_all, open: Mutex::default() }
    }

    /// One more, if there is room.
    #[must_use]
    pub fn open(self: &Arc<Self>, client: &str) -> Option<Stream> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = open.get(client).copied().unwrap_or_default();
        if mine >= self.per_client || open.values().sum::<usize>() >= self.in_all {
            return None;
        }
        open.insert(client.to_owned(), mine + 1);
        Some(Stream { streams: self.clone(), client: client.to_owned() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_counted_and_given_back() {
        let streams = Arc::new(Streams::new(2, 3));
        let (a, b) = (streams.open("a").unwrap(), streams.open("a").unwrap());
        assert!(streams.open("a").is_none(), "two for each");
        let c = streams.open("b").unwrap();
        assert!(streams.open("c").is_none(), "three in all");
        drop((a, c));
        assert!(streams.open("a").is_some());
        drop(b);
        assert!(streams.open.lock().unwrap().is_empty());
    }

    #[test]
    fn a_client_that_asks_too_often_is_refused_and_others_are_not() {
        let rate = Rate::new(3);
        let admitted = (0..20).filter(|_| rate.admits("a")).count();
        assert!((3..20).contains(&admitted), "{admitted}");
        assert!(rate.admits("b"));
    }
}
