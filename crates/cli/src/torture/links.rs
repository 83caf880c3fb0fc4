//! The links: a proxy for each node, and the URL that leads through it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tenure_testkit::proxy::{Proxy, Way};

use super::fault::Kind;

/// A link for each node, if the store is reached over one.
#[derive(Debug)]
pub(super) struct Links {
    url: String,
    /// Where the host and the port stand in it.
    place: Option<std::ops::Range<usize>>,
    proxies: Vec<Proxy>,
}

impl Links {
    /// Links for so many nodes to the server in that URL.
    pub(super) fn to(url: &str, nodes: usize) -> Self {
        let place = place(url);
        let server = place.clone().and_then(|place| address(&url[place], url));
        let proxies =
            server.map(|server| (0..nodes).map(|_| Proxy::to(server)).collect()).unwrap_or_default();
        Self { url: url.to_owned(), place, proxies }
    }

    /// The URL that a node is given.
    pub(super) fn url(&self, node: usize) -> String {
        match (self.proxies.get(node), &self.place) {
            (Some(proxy), Some(place)) => {
                let mut url = self.url.clone();
                url.replace_range(place.clone(), &proxy.address().to_string());
                url
            }
            _ => self.url.clone(),
        }
    }

    /// Troubles the link of a node.
    pub(super) fn strike(&self, node: usize, kind: Kind, ttl: Duration) {
        let Some(link) = self.proxies.get(node) else { return };
        match kind {
            Kind::Refuse => {
                link.refuse(true);
                link.reset();
            }
            Kind::Reset => link.reset(),
            Kind::BlackHole => link.black_hole(),
            Kind::LoseRequests => link.lose(Way::Up),
            Kind::LoseReplies => link.lose(Way::Down),
            Kind::Delay => {
                link.delay(Way::Up, ttl / 20, Duration::ZERO);
                link.delay(Way::Down, ttl / 20, Duration::ZERO);
            }
            Kind::Jitter => link.delay(Way::Down, Duration::ZERO, ttl / 3),
            Kind::Throttle => link.throttle(Way::Down, 4_000),
            Kind::CutReply => link.cut_after(Way::Down, 20),
            _ => {}
        }
    }

    /// Heals the link of a node.
    pub(super) fn heal(&self, node: usize) {
        if let Some(link) = self.proxies.get(node) {
            link.heal();
        }
    }
}

/// Whether a proxy can stand between: one host, no TLS, which would notice.
pub(super) fn can_be_led(url: &str) -> bool {
    place(url).is_some_and(|place| address(&url[place], url).is_some())
}

/// Where the host and the port stand in a URL that names one server.
fn place(url: &str) -> Option<std::ops::Range<usize>> {
    let (scheme, rest) = url.split_once("://")?;
    let plain = ["redis", "valkey", "postgres", "postgresql", "mysql", "mariadb"].contains(&scheme);
    let secure = ["sslmode=require", "sslmode=verify", "ssl-mode=", "tls=", "ca="]
        .iter()
        .any(|word| rest.contains(word));
    if !plain || secure {
        return None;
    }
    let authority = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
    let host = authority.rfind('@').map_or(0, |at| at + 1);
    let begin = scheme.len() + 3;
    (!authority.contains(',') && host < authority.len()).then(|| begin + host..begin + authority.len())
}

fn address(host: &str, url: &str) -> Option<SocketAddr> {
    let port = match url.split(':').next() {
        Some("redis" | "valkey") => 6379,
        Some("postgres" | "postgresql") => 5432,
        _ => 3306,
    };
    let ends_with_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let found = if ends_with_port { host.to_socket_addrs() } else { (host, port).to_socket_addrs() };
    found.ok()?.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_in_urls_that_name_one_server_without_tls() {
        let found = |url: &'static str| place(url).map(|place| &url[place]);
        assert_eq!(found("redis://127.0.0.1:7000/0"), Some("127.0.0.1:7000"));
        assert_eq!(found("postgres://user:p@ss@db:5432/app?x=1"), Some("db:5432"));
        assert_eq!(found("mysql://root@localhost/app"), Some("localhost"));
        assert_eq!(found("redis://[::1]:7000"), Some("[::1]:7000"));
        for url in [
            "rediss://db:1",
            "redis+sentinel://a:1,b:2/main",
            "postgres://a:1,b:2/x",
            "postgres://db/x?sslmode=verify-full",
            "sqlite:x",
            "memory:",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
    }
}
