//! A proxy on the way from every member to every other one, so that each way can be cut by itself.

use tenure_torture::proxy::Proxy;

/// The ways between the members of a group.
pub struct Links {
    ways: Vec<(usize, usize, Proxy)>,
    addresses: Vec<String>,
}

impl Links {
    pub fn between(addresses: &[String]) -> Self {
        let pairs = (0..addresses.len()).flat_map(|from| (0..addresses.len()).map(move |to| (from, to)));
        let way = |(from, to): (usize, usize)| (from, to, Proxy::to(addresses[to].parse().unwrap()));
        Self { ways: pairs.filter(|(from, to)| from != to).map(way).collect(), addresses: addresses.to_vec() }
    }

    /// By way of which address that member reaches each of the others.
    pub fn routes(&self, nth: usize) -> Vec<(String, String)> {
        let own = self.ways.iter().filter(|(from, _, _)| *from == nth);
        own.map(|(_, to, proxy)| (self.addresses[*to].clone(), proxy.address().to_string())).collect()
    }

    /// Lets members of different parts hear nothing of each other.
    pub fn split(&self, parts: &[&[usize]]) {
        let part = |nth: usize| parts.iter().position(|part| part.contains(&nth));
        self.connect(|from, to| part(from) == part(to));
    }

    /// Lets messages pass exactly where `passes` says so, from one member to another. Elsewhere they vanish, and no member
    /// is told.
    pub fn connect(&self, passes: impl Fn(usize, usize) -> bool) {
        for (from, to, proxy) in &self.ways {
            if passes(*from, *to) { proxy.heal() } else { proxy.black_hole() }
        }
    }

    pub fn heal(&self) {
        self.connect(|_, _| true);
    }
}
