//! A group of peers that works for long: descriptors, threads and memory are after many changes what they were after a
//! few. It runs in a process of its own, because it counts what belongs to the whole process.

use std::process::Command;

use tenure::store::Store;

use crate::peers_kit::*;

/// Set in the process that soaks.
const ALONE: &str = "TENURE_TEST_SOAK";

/// Descriptors, threads and resident memory in pages of this process.
fn held() -> (usize, usize, u64) {
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap();
    (count("/proc/self/fd"), count("/proc/self/task"), resident)
}

#[test]
fn many_changes_leave_nothing_behind() {
    let mut soak = Command::new(std::env::current_exe().unwrap());
    soak.args(["--exact", "peers_soak::soaks_alone", "--nocapture"]).env(ALONE, "1");
    assert!(soak.status().unwrap().success());
}

/// Not a test by itself: what a copy of this program does.
#[tokio::test]
async fn soaks_alone() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let changes = if std::env::var_os("TENURE_LONG").is_some() { 1000 } else { 100 };
    let town = Town::of(3);
    let watcher = town.client();
    let _watch = watcher.watch(&space());
    must_write(&*watcher, put("soak", None, 1)).await;
    let (mut version, mut early) = (1, None);
    for nth in 0..changes {
        let visitor = town.client();
        must_write(&*visitor, put("soak", Some(version), version + 1)).await;
        version += 1;
        visitor.close().await;
        if nth % 25 == 24 {
            let leader = town.raft_leader().await;
            town.close(leader).await;
            town.settled(leader).await;
        }
        if nth == 49 {
            early = Some(settled().await);
        }
    }
    let (fds, threads, pages) = early.unwrap();
    let after = settled().await;
    println!(
        "descriptors, threads, resident pages after 50 changes {:?}, after {changes} {after:?}",
        (fds, threads, pages)
    );
    assert!(after.0 <= fds + 8, "descriptors went from {fds} to {}", after.0);
    assert!(after.1 <= threads + 2, "threads went from {threads} to {}", after.1);
    assert!(after.2 <= pages + 16_384, "resident pages went from {pages} to {}", after.2);
}

/// What is held once connections that are being closed are gone.
async fn settled() -> (usize, usize, u64) {
    let mut least = held();
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let now = held();
        least = (least.0.min(now.0), least.1.min(now.1), least.2.min(now.2));
    }
    least
}
