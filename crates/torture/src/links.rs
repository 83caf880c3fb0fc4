//! The links: a proxy from each node to each server, and the URL that leads through them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::proxy::{Direction, Proxy};

use crate::fault::FaultKind;

/// Links for each node, if the store is reached over any.
#[derive(Debug)]
pub(crate) struct Links {
    /// Of each node.
    urls: Vec<String>,
    /// For each node, one to each server.
    proxies: Vec<Vec<Proxy>>,
}

impl Links {
    /// Links for so many nodes to the servers in those URLs, which they take in turn.
    pub(crate) fn to(urls: &[String], nodes: usize) -> Self {
        let urls: Vec<String> = urls.iter().cycle().take(nodes).cloned().collect();
        let link = |url: &String| {
            let servers = servers(url).unwrap_or_default();
            servers.iter().map(|server| Proxy::to(*server)).collect()
        };
        Self { proxies: urls.iter().map(link).collect(), urls }
    }

    /// The URL that a node is given.
    pub(crate) fn url(&self, node: usize) -> String {
        let (mut url, proxies) = (self.urls[node].clone(), &self.proxies[node]);
        if let Some(place) = place(&url).filter(|_| !proxies.is_empty()) {
            let addresses: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
            url.replace_range(place, &addresses.join(","));
        }
        url
    }

    /// Troubles the links of a node.
    pub(crate) fn inject(&self, node: usize, kind: FaultKind, ttl: Duration) {
        for link in self.proxies.get(node).into_iter().flatten() {
            inject(link, kind, ttl);
        }
    }

    /// Heals the links of a node.
    pub(crate) fn heal(&self, node: usize) {
        self.proxies.get(node).into_iter().flatten().for_each(Proxy::heal);
    }
}

fn inject(link: &Proxy, kind: FaultKind, ttl: Duration) {
    match kind {
        FaultKind::Refuse => {
            link.refuse(true);
            link.reset();
        }
        FaultKind::Reset => link.reset(),
        FaultKind::BlackHole => link.black_hole(),
        FaultKind::LoseRequests => link.lose(Direction::Up),
        FaultKind::LoseReplies => link.lose(Direction::Down),
        FaultKind::Delay => {
            link.delay(Direction::Up, ttl / 20, Duration::ZERO);
            link.delay(Direction::Down, ttl / 20, Duration::ZERO);
        }
        FaultKind::Jitter => link.delay(Direction::Down, Duration::ZERO, ttl / 3),
        FaultKind::Throttle => link.throttle(Direction::Down, 4_000),
        FaultKind::CutReply => link.cut_after(Direction::Down, 20),
        _ => {}
    }
}

/// Whether a proxy can stand between: no TLS that would notice, and no servers that tell each other's addresses.
pub(crate) fn can_be_led(url: &str) -> bool {
    servers(url).is_some()
}

/// Every server that a URL names, if a proxy can stand before each.
fn servers(url: &str) -> Option<Vec<SocketAddr>> {
    url[place(url)?].split(',').map(|host| address(host, url)).collect()
}

/// Where the hosts and the ports stand in a URL.
fn place(url: &str) -> Option<std::ops::Range<usize>> {
    if url.starts_with("kubernetes:") {
        // Certificates of API servers name hosts, and no ports.
        let begin = url.find("server=")? + "server=".len();
        let length = url[begin..].find('&').unwrap_or(url.len() - begin);
        return Some(begin..begin + length);
    }
    let (scheme, rest) = url.split_once("://")?;
    if ["s3", "gs", "az"].contains(&scheme) {
        let begin = url.find("endpoint=http://")? + "endpoint=http://".len();
        let length = url[begin..].find(['/', '&']).unwrap_or(url.len() - begin);
        return Some(begin..begin + length);
    }
    let plain = ["redis", "valkey", "postgres", "postgresql", "mysql", "mariadb", "etcd", "nats", "peers"]
        .contains(&scheme);
    let secure = ["sslmode=require", "sslmode=verify", "ssl-mode=", "tls=", "ca="]
        .iter()
        .any(|word| rest.contains(word));
    if !plain || secure {
        return None;
    }
    let authority = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
    let host = authority.rfind('@').map_or(0, |at| at + 1);
    let begin = scheme.len() + 3;
    // Only of peers, etcd and NATS may there be several: clients ask whichever is named, and never those that it tells of.
    let single = ["etcd", "nats", "peers"].contains(&scheme) || !authority.contains(',');
    (single && host < authority.len()).then(|| begin + host..begin + authority.len())
}

fn address(host: &str, url: &str) -> Option<SocketAddr> {
    let port = match url.split(':').next() {
        Some("redis" | "valkey") => 6379,
        Some("postgres" | "postgresql") => 5432,
        Some("etcd") => 2379,
        Some("kubernetes") => 6443,
        Some("nats") => 4222,
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
    fn hosts_are_found_in_urls_that_a_proxy_can_lead() {
        let found = |url: &'static str| place(url).map(|place| &url[place]);
        assert_eq!(found("redis://127.0.0.1:7000/0"), Some("127.0.0.1:7000"));
        assert_eq!(found("postgres://user:p@ss@db:5432/app?x=1"), Some("db:5432"));
        assert_eq!(found("mysql://root@localhost/app"), Some("localhost"));
        assert_eq!(found("redis://[::1]:7000"), Some("[::1]:7000"));
        assert_eq!(found("peers://a:1,b:2,c:3?secret-file=x"), Some("a:1,b:2,c:3"));
        assert_eq!(found("etcd://u:p@a:1,b:2,c:3/x"), Some("a:1,b:2,c:3"));
        assert_eq!(
            found("kubernetes:x?class=a&server=127.0.0.1:1,127.0.0.1:2&prefix=y"),
            Some("127.0.0.1:1,127.0.0.1:2")
        );
        assert_eq!(found("nats://u:p@a:1,b:2,c:3/x?sync=always"), Some("a:1,b:2,c:3"));
        assert_eq!(found("s3://k:s@b/x?endpoint=http://a:1&timeout=1s"), Some("a:1"));
        assert_eq!(servers("peers://127.0.0.1:1,127.0.0.1:2?secret-file=x").unwrap().len(), 2);
        for url in [
            "kubernetes:x",
            "rediss://db:1",
            "s3://k:s@b/x?region=r",
            "s3://k:s@b/x?endpoint=https://a:1",
            "etcds://a:1,b:2/x",
            "tls://a:1,b:2/x",
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
