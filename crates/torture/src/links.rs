//! The links: a proxy from each node to each server, and the URL that leads through them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
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
        if let Some((place, _)) = place(&url).filter(|_| !proxies.is_empty()) {
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
        other => unreachable!("{} is no fault of a link", other.name()),
    }
}

/// Whether a proxy can stand between: no TLS that would notice, and no servers that tell each other's addresses.
pub(crate) fn can_be_led(url: &str) -> bool {
    servers(url).is_some()
}

/// Every server that a URL names, if a proxy can stand before each.
fn servers(url: &str) -> Option<Vec<SocketAddr>> {
    let (place, port) = place(url)?;
    url[place].split(',').map(|host| address(host, port)).collect()
}

/// Where the servers stand in a URL, and the port of one that is named without.
fn place(url: &str) -> Option<(Range<usize>, u16)> {
    let servers = tenure::store::backend_for_url(url).ok()?.servers?;
    Some((servers.find(url)?, servers.port()))
}

fn address(host: &str, port: u16) -> Option<SocketAddr> {
    let ends_with_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let found = if ends_with_port { host.to_socket_addrs() } else { (host, port).to_socket_addrs() };
    found.ok()?.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_where_a_proxy_can_stand() {
        assert_eq!(servers("peers://127.0.0.1:1,127.0.0.1:2?secret-file=x").unwrap().len(), 2);
        assert!(!can_be_led("sqlite:x") && !can_be_led("memory:") && !can_be_led("nope://a:1"));
    }

    #[test]
    fn a_node_is_led_through_its_proxies() {
        let links = Links::to(&["peers://127.0.0.1:1,127.0.0.1:2?secret-file=x".to_owned()], 1);
        let [first, second] = &links.proxies[0][..] else { panic!("a proxy for each server") };
        let (first, second) = (first.address(), second.address());
        assert_eq!(links.url(0), format!("peers://{first},{second}?secret-file=x"));
    }
}
