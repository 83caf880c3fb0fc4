//! What agents say is what happened, on the stores whose servers few machines have: `./test --stores` runs it.

#[path = "../agent/browser.rs"]
#[allow(dead_code, reason = "the tests of the dashboard use the rest")]
mod browser;
mod contest;
#[path = "../agent/kit.rs"]
#[allow(dead_code, reason = "the tests of the agent use the rest")]
mod kit;
#[path = "../agent/outage_kit.rs"]
mod outage_kit;

use outage_kit::{ALL, TestStore, run_steps};
use rustix::process::Signal;
use tenure_torture::servers::etcd::Etcd;
use tenure_torture::servers::kubernetes::{ADMIN, Kubernetes};

/// The work of the agents: this same binary.
#[test]
fn worker() {
    if let Some(dir) = std::env::var_os("WITNESS_DIRECTORY") {
        outage_kit::note_start(dir.as_ref());
        let pause = std::time::Duration::from_millis(5);
        tenure_torture::witness::work(dir.as_ref(), pause).expect("the witness can write");
    }
}

/// Every server of a group is stopped, or goes on.
fn signalled(count: usize, signal: impl Fn(usize, Signal) + 'static) -> impl FnMut(bool) + 'static {
    move |frozen| (0..count).for_each(|nth| signal(nth, if frozen { Signal::STOP } else { Signal::CONT }))
}

#[test]
fn what_agents_on_etcd_say_is_what_happened() {
    let etcd = Etcd::start(3, &[]);
    let (url, count) = (format!("etcd://{}/tenure", etcd.hosts()), etcd.count());
    run_steps(TestStore::beyond(url, signalled(count, move |nth, signal| etcd.signal(nth, signal))), ALL);
}

#[test]
fn what_agents_on_kubernetes_say_is_what_happened() {
    let servers = Kubernetes::start(1);
    servers.make_namespace("team");
    let url = format!("kubernetes:team?kubeconfig={}", servers.kubeconfig(ADMIN, true).display());
    let count = servers.count();
    run_steps(TestStore::beyond(url, signalled(count, move |nth, signal| servers.signal(nth, signal))), ALL);
}

#[cfg(feature = "nats")]
#[test]
fn what_agents_on_nats_say_is_what_happened() {
    let servers = tenure_torture::servers::nats::Nats::start(3, "");
    let (url, count) = (format!("nats://{}/tenure?sync=always", servers.hosts()), servers.count());
    run_steps(TestStore::beyond(url, signalled(count, move |nth, signal| servers.signal(nth, signal))), ALL);
}

#[cfg(feature = "zookeeper")]
#[test]
fn what_agents_on_zookeeper_say_is_what_happened() {
    let servers = tenure_torture::servers::zookeeper::ZooKeeper::start(3, "");
    let (url, count) = (format!("zookeeper://{}/tenure", servers.hosts()), servers.count());
    run_steps(TestStore::beyond(url, signalled(count, move |nth, signal| servers.signal(nth, signal))), ALL);
}

#[cfg(feature = "object")]
#[test]
fn what_agents_on_minio_say_is_what_happened() {
    let server = tenure_torture::servers::minio::Minio::start();
    let url = server.url(server.address());
    run_steps(TestStore::beyond(url, signalled(1, move |_, signal| server.signal(signal))), ALL);
}
