//! Members as processes that are really killed, all at once, and whose disk is really full.

mod peers_kit;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peers_kit::*;
use tempfile::TempDir;
use tenure::store::{Outcome, Peers, Query, Store, Value, Write};

/// What tells a copy of this very program that it is to be a member.
const PART: &str = "TENURE_TEST_MEMBER";

/// Not a test of its own: what the copies do. They end with the process that started them, whose end of the pipe they
/// hold.
#[test]
fn member_process() {
    let Ok(url) = std::env::var(PART) else { return };
    let member = eventually(|| Peers::open(&url).ok());
    println!("started");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(member);
    std::process::exit(0);
}

/// A group whose members are processes.
struct Processes {
    dir: TempDir,
    addresses: Vec<String>,
    children: Vec<Option<Child>>,
}

impl Processes {
    fn of(count: usize) -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("secret"), SECRET).unwrap();
        let addresses = (0..count).map(|_| free_address()).collect();
        Self { dir, addresses, children: (0..count).map(|_| None).collect() }
    }

    fn url(&self, list: &str) -> String {
        format!("peers://{list}?secret-file={}", self.dir.path().join("secret").display())
    }

    fn client(&self) -> Peers {
        Peers::open(&self.url(&self.addresses.join(","))).unwrap()
    }

    fn client_of(&self, nth: usize) -> Peers {
        Peers::open(&self.url(&self.addresses[nth])).unwrap()
    }

    /// Starts a member; `before` is what a shell does first.
    fn start(&mut self, nth: usize, before: &str) {
        let me = &self.addresses[nth];
        let dir = self.dir.path().join(format!("member-{nth}"));
        let url = format!("{}&me={me}&dir={}", self.url(&self.addresses.join(",")), dir.display());
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{before} exec \"$0\" --exact member_process --nocapture")])
            .arg(program);
        command.env(PART, url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("started"))), "a member starts");
        self.children[nth] = Some(child);
    }

    /// Kills every member at once.
    fn power_loss(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
        }
        self.children.iter_mut().filter_map(Option::take).for_each(|mut child| drop(child.wait()));
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.power_loss();
    }
}

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
            Ok(Outcome::Conflict(Some(found))) if found.version.0 == tried => at = tried,
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
        (0..3).for_each(|nth| group.start(nth, ""));
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
    group.start(0, "trap '' XFSZ; ulimit -S -f 400;");
    group.start(1, "");
    group.start(2, "");
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
