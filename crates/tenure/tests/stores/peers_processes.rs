//! Members as processes that are really killed, all at once, and whose disk is really full.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::peers_kit::processes::{Processes, be_a_member};
use crate::peers_kit::*;
use tenure::store::{Outcome, Peers, Query, Store, Value, Write};

/// Not a test of its own: what the copies of this program do.
#[test]
fn member_process() {
    be_a_member();
}

const MEMBER: &[&str] = &["--exact", "peers_processes::member_process", "--nocapture"];

/// Reads a register, however often it takes.
async fn must_read(store: &Peers, name: &str) -> Option<u128> {
    let started = Instant::now();
    loop {
        match version(store, name).await {
            Ok(found) => return found,
            Err(error) => assert!(started.elapsed() < EVENTUALLY, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One who writes 1, 2, 3 … into a register of its own until it is told to stop; gives the last that was acknowledged,
/// and the last that was tried.
async fn count(url: String, name: String, mut at: u128, stop: Instant) -> (u128, u128) {
    let store = Peers::open(&url).unwrap();
    let mut tried = at;
    while Instant::now() < stop {
        tried = at + 1;
        let write = put(&name, (at > 0).then_some(at), tried);
        match store.write(&space(), &[write]).await.map(|mut outcomes| outcomes.remove(0)) {
            Ok(Outcome::Applied) => at = tried,
            Ok(Outcome::Conflict(Some(found))) if found.version.get() == tried => at = tried,
            _ => break,
        }
    }
    (at, tried)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_loss_takes_nothing_back() {
    let rounds = if std::env::var_os("TENURE_LONG").is_some() { 100 } else { 10 };
    let mut group = Processes::of(3);
    let url = format!("{}&timeout=500ms", group.url(&group.addresses.join(",")));
    let client = group.client();
    let mut counts = [0; 4];
    for _ in 0..rounds {
        group.start_all(MEMBER);
        let mut known = [0; 4];
        for (nth, known) in known.iter_mut().enumerate() {
            *known = must_read(&client, &format!("c{nth}")).await.unwrap_or(0);
        }
        for nth in 0..4 {
            assert!(known[nth] >= counts[nth], "c{nth} was {} and is {}", counts[nth], known[nth]);
        }
        let stop = Instant::now() + Duration::from_secs(2);
        let writers: Vec<_> =
            (0..4).map(|nth| tokio::spawn(count(url.clone(), format!("c{nth}"), known[nth], stop))).collect();
        // While they write, and they do: the first of them is seen to.
        while must_read(&client, "c0").await.unwrap_or(0) == known[0] && Instant::now() < stop {}
        group.power_loss();
        for (nth, writer) in writers.into_iter().enumerate() {
            let (acknowledged, tried) = writer.await.unwrap();
            assert!(acknowledged <= tried);
            counts[nth] = acknowledged;
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// A member whose disk is full takes no part, the others go on, and it comes back by itself when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_one_member_only_and_it_comes_back() {
    let mut group = Processes::of(3);
    group.start_after(0, "trap '' XFSZ; ulimit -S -f 400;", MEMBER);
    group.start(1, MEMBER);
    group.start(2, MEMBER);
    let client = group.client();
    must_read(&client, "x").await;
    let filler = "x".repeat(20_000);
    for nth in 0..30_u128 {
        let mut write: Write = put(&format!("big{nth}"), None, nth + 1);
        write.put = write.put.map(|(version, _)| (version, Value::of(&filler, None)));
        must_write(&client, write).await;
    }
    let full = group.client_of(0);
    let started = Instant::now();
    loop {
        match version(&full, "big29").await {
            Err(error) if error.to_string().contains("cannot be written") => break,
            other => {
                assert!(started.elapsed() < EVENTUALLY, "it does not say that its disk is full: {other:?}")
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pid = group.children[0].as_ref().unwrap().id().to_string();
    let lifted =
        Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status().unwrap();
    assert!(lifted.success());
    assert_eq!(must_read(&full, "big29").await, Some(30));
    let all = client.read(&space(), &Query { keys: vec![key("big0")], kinds: Vec::new() }).await.unwrap();
    assert_eq!(all.len(), 1);
}
