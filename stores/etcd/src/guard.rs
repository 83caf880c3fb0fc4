//! The guard lock in etcd: one contender in an election of `concurrency.Election`, as `etcdctl elect` is another.
//!
//! ```text
//! ELECTION/694d93f2a1b0c40e    web-1_5f0c…     lease 694d93f2a1b0c40e
//! ```
//!
//! Each contender has one key under the name of the election: the number of its lease in hexadecimal digits. The key with the
//! lowest create revision leads; the others wait in line.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::STORE;
use super::connection::{Effect, Members, path};
use super::messages::{
    Compare, Grant, KeptAlive, KeyValue, LeaseAnswer, Nothing, OfLease, Op, OpAnswer, Range, Txn, TxnAnswer,
};
use super::settings::{EtcdSettings, URL};
use tenure_store::kit::hosts::UrlParts;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{GuardBackend, GuardLock, Hold, OpenedGuardLock, StoreError};

/// This guard lock, by its URLs.
pub const GUARD_BACKEND: GuardBackend =
    GuardBackend::new(&["etcd", "etcds"], "etcd://HOST,HOST,HOST/ELECTION", |url, holder| {
        let lock = EtcdGuard::open(url, holder)?;
        let warning = lock.contender.members.settings.warning();
        Ok(OpenedGuardLock::new(lock, warning))
    });

/// One contender in an election of etcd.
pub struct EtcdGuard {
    contender: Arc<Contender>,
    thread: ConnectionThread,
}

struct Contender {
    members: Members,
    holder: String,
    ttl: Duration,
    place: Mutex<Place>,
}

/// Where this contender stands.
#[derive(Debug, Default)]
struct Place {
    lease: Option<u64>,
    /// The create revision of this contender's key, if the last attempt found it first.
    held: Option<u64>,
}

impl EtcdGuard {
    /// Prepares a contender in the election that a URL names, known there as `holder`; nothing is connected.
    ///
    /// `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/ELECTION?ttl=15s`, `etcds://` for TLS; the other parameters are those of the store.
    ///
    /// # Errors
    /// If the URL cannot be read, or the process has no threads left. No message shows the URL.
    pub fn open(url: &str, holder: &str) -> Result<Self, StoreError> {
        let (url, ttl) = URL.guard_ttl(url)?;
        if UrlParts::of(&url).is_none_or(|parts| parts.path.trim_matches('/').is_empty()) {
            return Err(URL.refuse(
                "the URL of a guard lock names an election: write etcd://HOST:PORT/ELECTION?ttl=15s",
            ));
        }
        let settings = Arc::new(EtcdSettings::parse(&url)?);
        let members = Members::new(settings, Arc::new(Watches::default()))?;
        let contender = Contender { members, holder: holder.to_owned(), ttl, place: Mutex::default() };
        Ok(Self { contender: Arc::new(contender), thread: ConnectionThread::open(STORE)? })
    }
}

impl fmt::Debug for EtcdGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdGuard").field("url", &self.to_string()).finish_non_exhaustive()
    }
}

impl fmt::Display for EtcdGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.contender.members.settings, f)
    }
}

/// Attempts run on the thread of the lock, one after the other, also if the caller went away.
#[async_trait]
impl GuardLock for EtcdGuard {
    fn ttl(&self) -> Duration {
        self.contender.ttl
    }

    async fn hold(&self) -> Result<Hold, StoreError> {
        let contender = self.contender.clone();
        self.thread.run(async move { contender.hold().await }).await
    }

    async fn release(&self) -> Result<(), StoreError> {
        let contender = self.contender.clone();
        self.thread.run(async move { contender.release().await }).await
    }
}

impl Contender {
    async fn hold(&self) -> Result<Hold, StoreError> {
        let mut place = self.place.lock().await;
        let lease = match place.lease {
            Some(lease) if self.keep_alive(lease).await? => lease,
            _ => {
                let lease = self.grant().await?;
                place.lease = Some(lease);
                lease
            }
        };
        let first = match self.stand_in_line(lease).await {
            Ok(answer) => answer,
            Err(error) => {
                // The lease ran out meanwhile: the next attempt begins anew.
                place.lease = place.lease.filter(|_| !error.message().contains("lease not found"));
                return Err(error);
            }
        };
        let is_first = first.key.0 == self.key(lease).into_bytes();
        let held = place.held.take();
        if !is_first {
            return Ok(Hold::HeldBy(String::from_utf8_lossy(&first.value.0).into_owned()));
        }
        // A key that had to be made anew was gone for a while: another contender may have led.
        if held.is_some_and(|revision| revision != first.create_revision) {
            return Ok(Hold::HeldBy("no program now: this node's key was gone for a while".to_owned()));
        }
        place.held = Some(first.create_revision);
        Ok(Hold::Held)
    }

    async fn release(&self) -> Result<(), StoreError> {
        let mut place = self.place.lock().await;
        let Some(lease) = place.lease else { return Ok(()) };
        place.held = None;
        let question = OfLease { id: lease.to_string() };
        match self.members.ask::<Nothing>(Effect::Reads, path::LEASE_REVOKE, &question).await {
            Err(error) if !error.message().contains("lease not found") => Err(error),
            _ => {
                place.lease = None;
                Ok(())
            }
        }
    }

    async fn grant(&self) -> Result<u64, StoreError> {
        let question = Grant { ttl: self.ttl.as_secs().to_string() };
        let answer: LeaseAnswer = self.members.ask(Effect::Writes, path::LEASE_GRANT, &question).await?;
        let strange = || StoreError::unknown(STORE, "the server grants a lease without a number");
        answer.id.parse().map_err(|_| strange())
    }

    /// False if the lease has run out.
    async fn keep_alive(&self, lease: u64) -> Result<bool, StoreError> {
        let question = OfLease { id: lease.to_string() };
        let kept: KeptAlive = self.members.ask(Effect::Reads, path::LEASE_KEEP_ALIVE, &question).await?;
        Ok(kept.result.ttl > 0)
    }

    /// Makes the key of this contender unless it is there; gives the key that leads.
    async fn stand_in_line(&self, lease: u64) -> Result<KeyValue, StoreError> {
        let key = self.key(lease);
        let first = || {
            let all = Range::below(&self.prefix());
            Op::Range(Range {
                limit: Some("1"),
                sort_order: Some("ASCEND"),
                sort_target: Some("CREATE"),
                ..all
            })
        };
        let put = Op::Put {
            key: key.as_str().into(),
            value: self.holder.as_str().into(),
            lease: Some(lease.to_string()),
        };
        let question =
            Txn { compare: vec![Compare::absent(&key)], success: vec![put, first()], failure: vec![first()] };
        let answer: TxnAnswer = self.members.ask(Effect::Writes, path::TXN, &question).await?;
        let last = answer.responses.into_iter().next_back();
        let found = last.and_then(|OpAnswer { response_range, .. }| response_range?.kvs.into_iter().next());
        let strange = || StoreError::unknown(STORE, "the server shows no contender of the election");
        found.ok_or_else(strange)
    }

    fn prefix(&self) -> String {
        format!("{}/", self.members.settings.prefix)
    }

    fn key(&self, lease: u64) -> String {
        format!("{}{lease:x}", self.prefix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_name_an_election_and_a_time_and_nothing_shows_a_secret() {
        let lock =
            EtcdGuard::open("etcd://u:hunter2@127.0.0.1:1//app/leader?ttl=7s&timeout=1s", "me").unwrap();
        assert_eq!(lock.ttl(), Duration::from_secs(7));
        assert_eq!(lock.contender.key(0x1f), "/app/leader/1f");
        let error = lock.hold().await.unwrap_err();
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {lock:?} {lock}").contains("hunter2"));
        lock.release().await.unwrap();
        for (url, part) in [
            ("etcd://u:hunter2@h", "names an election"),
            ("etcd://u:hunter2@h/?ttl=5s", "names an election"),
            ("etcd://u:hunter2@h/x?ttl=500ms", "whole seconds"),
            ("etcd://u:hunter2@h/x?ttl=1s", "whole seconds"),
            ("etcd://u:hunter2@h/x?hunter2=1", "timeout, ca, cert and key"),
        ] {
            let message = EtcdGuard::open(url, "me").expect_err(url).to_string();
            assert!(message.contains(part) && !message.contains("hunter2"), "{url}: {message}");
        }
    }
}
