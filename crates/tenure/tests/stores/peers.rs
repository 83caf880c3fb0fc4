//! The peers store keeps the contract: three members in one process, and clients of theirs.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::peers_kit::{SECRET, Town};
use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{Peers, SharedStore, Store};

/// On a machine that is busy with other things an election may take a while.
const PATIENT: &str = "&timeout=60s";

/// Handles that are clients, all of one group.
struct Clients;

static GROUP: OnceLock<Town> = OnceLock::new();

#[async_trait]
impl Harness for Clients {
    async fn open(&self) -> SharedStore {
        let town = GROUP.get_or_init(|| Town::with(3, PATIENT));
        town.all_settled().await;
        town.client()
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}

/// Handles that are members themselves, as many as there are; the rest are clients.
struct Members {
    town: Town,
    taken: Mutex<Vec<(usize, Weak<Peers>)>>,
}

#[async_trait]
impl Harness for Members {
    async fn open(&self) -> SharedStore {
        self.town.all_settled().await;
        let mut taken = self.taken.lock().unwrap();
        taken.retain(|(_, handle)| handle.strong_count() > 0);
        let free = (0..self.town.size()).find(|nth| !taken.iter().any(|(other, _)| other == nth));
        let Some(nth) = free else { return self.town.client() };
        let handle = self.town.member(nth);
        taken.push((nth, Arc::downgrade(&handle)));
        handle
    }

    async fn restart(&self) {
        self.town.power_loss().await;
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}

mod by_client {
    use super::*;

    tenure::conformance!(Clients);
}

mod by_member {
    use super::*;

    tenure::conformance!(Members { town: Town::with(3, PATIENT), taken: Mutex::default() });
}

#[tokio::test]
async fn a_member_says_what_it_is() {
    let town = Town::of(2);
    let described = town.client().describe().await.unwrap();
    assert_eq!(described.class, tenure::store::Class::A);
    assert!(described.remarks.iter().any(|remark| remark.contains("two members")), "{described:?}");
    assert!(described.identity.starts_with("peers:tenure#"));
    assert_eq!(town.member(0).describe().await.unwrap().identity, described.identity);
}
