//! A claim and the read after it are one round trip on servers that a link leads to.

use std::fmt;

use tenure::store::{Layer, SharedStore, Store, open};
use tenure_torture::proxy::Proxy;

use crate::server_kit::a_claim_and_the_read_after_it_are_one_round_trip;
use crate::{mysql_kit, postgres_kit};
use tenure_torture::servers::{mysql, redis};

async fn is_one_round_trip(url: &str, link: &Proxy, linked: &str) {
    let open = |url: &str| open(&format!("{url}?timeout=20s")).expect("a good URL");
    a_claim_and_the_read_after_it_are_one_round_trip(&*open(url), &*open(linked), link).await;
}

#[tokio::test]
async fn on_postgres() {
    let server = postgres_kit::OneServer::new();
    let (url, address) = (server.url(), server.server().address());
    let link = Proxy::to(address);
    is_one_round_trip(&url, &link, &url.replace(&address.to_string(), &link.address().to_string())).await;
}

#[tokio::test]
async fn on_mysql() {
    let server = mysql_kit::OneServer::new();
    let address = server.server().address();
    let link = Proxy::to(address);
    is_one_round_trip(&server.url(), &link, &mysql::url("app", link.address())).await;
}

#[tokio::test]
async fn on_redis() {
    let server = redis::durable();
    let link = Proxy::to(server.address());
    let url = |address| format!("redis://{address}/0");
    is_one_round_trip(&url(server.address()), &link, &url(link.address())).await;
}

/// The check can fail: this asks for the read when the write is answered.
#[derive(Debug)]
struct TwoTrips(SharedStore);

impl fmt::Display for TwoTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Layer for TwoTrips {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }
}

#[tokio::test]
#[should_panic(expected = "it was asked with the claim")]
async fn two_are_caught() {
    let server = redis::durable();
    let link = Proxy::to(server.address());
    let direct = open(&format!("redis://{}/0", server.address())).expect("a good URL");
    let linked = TwoTrips(open(&format!("redis://{}/0?timeout=5s", link.address())).expect("a good URL"));
    a_claim_and_the_read_after_it_are_one_round_trip(&*direct, &linked, &link).await;
}
