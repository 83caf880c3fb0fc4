//! A rolling upgrade and a downgrade on one store, while leaders are killed, frozen and stopped: nodes of two versions
//! never work at once, tokens rise, and each version reads what the other wrote.
//!
//! `TENURE_EARLIER` names the binary of an earlier version, which `crates/cli/tests/upgrade/run` builds. Without it both
//! versions are this one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use tenure_torture::judge::WitnessVerdict;
use tenure_torture::servers::{self, free_port, mysql::Mysql, postgres::Postgres};
use tenure_torture::witness;

use crate::faults::{Leader, NODES, World};
use crate::fleet::TestDir;

const TIMES: &[&str] = &["--ttl", "1s"];

/// Harms to leaders in each direction. A frozen leader keeps its version, so the last harm of each four is a clean stop.
const HARMS: usize = 4;

/// Up and down so many times.
fn directions() -> usize {
    if std::env::var_os("TENURE_LONG").is_some() { 8 } else { 2 }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Earlier,
    This,
}

impl Version {
    fn binary(self) -> PathBuf {
        let this = env!("CARGO_BIN_EXE_tenure").into();
        match self {
            Self::Earlier => std::env::var_os("TENURE_EARLIER").map_or(this, PathBuf::from),
            Self::This => this,
        }
    }
}

/// Three nodes, and which version each of them is.
struct Fleet {
    world: World,
    versions: BTreeMap<&'static str, Version>,
    /// From which version to which one leadership went.
    hand_overs: Vec<(Version, Version)>,
}

impl Fleet {
    fn new(mut dir: TestDir) -> Self {
        dir.binary = Version::Earlier.binary();
        let versions = NODES.map(|node| (node, Version::Earlier)).into();
        Self { world: World::on(dir, TIMES), versions, hand_overs: Vec::new() }
    }

    /// Leaders are harmed and come back as that version; then every node that still is the other one is replaced.
    fn replace_all(&mut self, version: Version, mut leader: Leader) -> Leader {
        self.world.dir.binary = version.binary();
        for round in 0..HARMS {
            let (node, process) = (leader.node, self.world.nodes[leader.node].pid());
            let next = self.world.harm_leader(&leader, round);
            self.took_over(&leader, &next);
            leader = next;
            if self.world.nodes[node].pid() != process {
                self.versions.insert(node, version);
            }
            self.each_version_reads(&leader);
        }
        for node in NODES.into_iter().filter(|node| self.versions[node] != version).collect::<Vec<_>>() {
            let mut process = self.world.nodes.remove(node).expect("it is one of ours");
            process.signal(Signal::TERM);
            process.wait();
            if node == leader.node {
                let next = self.world.next_leader(leader.token);
                self.took_over(&leader, &next);
                leader = next;
            }
            self.world.start(node);
            self.versions.insert(node, version);
        }
        leader
    }

    fn took_over(&mut self, from: &Leader, to: &Leader) {
        self.hand_overs.push((self.versions[from.node], self.versions[to.node]));
    }

    /// The commands of either version find the same role, and a token that is no older than its leader's.
    fn each_version_reads(&self, leader: &Leader) {
        for version in [Version::Earlier, Version::This] {
            let mut status = Command::new(version.binary());
            status.args(self.world.dir.tenure().get_args()).args(["status", "job", "--format", "json"]);
            let output = status.env_remove("TENURE_STORE").output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout);
            let answer: serde_json::Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{version:?}: {error}: {text}{output:?}"));
            let token = answer.pointer("/roles/0/token").and_then(serde_json::Value::as_u64);
            assert!(token.is_some_and(|token| token >= leader.token), "{version:?} after {leader:?}: {text}");
        }
    }
}

/// Up and down, and what the witness saw.
fn up_and_down(dir: TestDir) {
    let mut fleet = Fleet::new(dir);
    let mut leader = fleet.world.next_leader(0);
    for turn in 0..directions() {
        let version = if turn % 2 == 0 { Version::This } else { Version::Earlier };
        leader = fleet.replace_all(version, leader);
    }
    for hand_over in [(Version::Earlier, Version::This), (Version::This, Version::Earlier)] {
        assert!(fleet.hand_overs.contains(&hand_over), "{hand_over:?} never came: {:?}", fleet.hand_overs);
    }
    drop(fleet.world.nodes);
    let beats = witness::read(fleet.world.dir.path()).expect("the witness is whole");
    let verdict = WitnessVerdict::of_beats(&beats);
    verdict.assert_sound();
    assert!(verdict.tenures.len() > HARMS * directions(), "every harm had its own tenure: {verdict}");
    println!("{} tenures, {} of them handed from one version to the other", verdict.tenures.len(), {
        fleet.hand_overs.iter().filter(|(from, to)| from != to).count()
    });
}

#[test]
fn up_and_down_on_sqlite() {
    up_and_down(TestDir::new());
}

#[test]
fn up_and_down_on_redis() {
    let server = servers::redis::durable();
    up_and_down(TestDir::on(format!("redis://{}/0", server.address())));
}

#[test]
fn up_and_down_on_postgres() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    up_and_down(TestDir::on(server.admin_url()));
}

#[test]
fn up_and_down_on_mysql() {
    let server = Mysql::start(&[]);
    up_and_down(TestDir::on(server.admin_url()));
}

/// The nodes are the members: they also speak to each other, and read each other's log.
#[test]
fn up_and_down_as_peers() {
    let papers = servers::scratch();
    let secret = papers.path().join("secret");
    write_secret(&secret);
    let members = NODES.map(|node| (node, format!("127.0.0.1:{}", free_port())));
    let addresses = members.clone().map(|(_, address)| address).join(",");
    let url = format!("peers://{addresses}?secret-file={}", secret.display());
    let mut dir = TestDir::on(url.clone());
    for (node, address) in members {
        dir = dir.of_node(node, format!("{url}&me={address}&dir={}", papers.path().join(node).display()));
    }
    up_and_down(dir);
}

/// For this user alone; others are rejected.
fn write_secret(file: &std::path::Path) {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(file).expect("a secret can be written");
    file.write_all(tenure::store::Peers::new_secret().as_bytes()).expect("a secret can be written");
}
