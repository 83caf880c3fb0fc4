//! A claim and the read after it are one round trip on servers that a link leads to.

use tenure::store::open;
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
