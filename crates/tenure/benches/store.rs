//! What the embedded store costs, next to what SQLite and the kernel cost by themselves in the same run.
//!
//! Run with `cargo bench -p tenure --bench store`. It writes to a temporary directory: set `TMPDIR` to the disk that
//! you want to know about, since `synchronous=FULL` waits for it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use futures_util::StreamExt;
use hdrhistogram::Histogram;
use rusqlite::{Connection, params};
use rustix::fs::inotify;
use tenure::store::entropy::KernelEntropy;
use tenure::store::{
    Epoch, Key, Kind, LivenessLocks as _, Name, Outcome, SessionId, Signal, Sqlite, Store, Value, Version,
    Write,
};
use tenure_core::Entropy;

const HOLD_FILE: &str = "TENURE_BENCH_HOLD_FILE";
const HOLD_SESSION: &str = "TENURE_BENCH_HOLD_SESSION";
const RECORD: &str =
    r#"{"node":"web-1","beat":1,"freed":0,"ttl":5000,"takeover":"strict","grace":2500,"state":"live"}"#;

/// Without `--bench`, as under `cargo test`, it only shows that it runs.
fn main() {
    if let (Some(path), Ok(session)) = (std::env::var_os(HOLD_FILE), std::env::var(HOLD_SESSION)) {
        return hold(Path::new(&path), &session);
    }
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 3000 } else { 3 };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("{rounds} rounds each, in {}", dir.path().display());
    let raw = raw_writes(&dir.path().join("raw.db"), rounds);
    let ours = runtime.block_on(writes(&dir.path().join("tenure.db"), rounds, 1));
    report("compare-and-set", &raw, &ours);
    let batch = runtime.block_on(writes(&dir.path().join("batch.db"), rounds.div_ceil(30), 256));
    show("batch of 256", &batch, "");
    let raw = raw_signals(&dir.path().join("raw-signal.db"), rounds);
    let ours = runtime.block_on(signals(&dir.path().join("signal.db"), rounds));
    report("write begun -> another handle has it", &raw, &ours);
    let (raw, ours) = runtime.block_on(deaths(&dir.path().join("deaths.db"), rounds.div_ceil(15)));
    report("kill -9 -> known dead", &raw, &ours);
}

fn report(what: &str, raw: &Histogram<u64>, ours: &Histogram<u64>) {
    let ratio = |quantile| ours.value_at_quantile(quantile) as f64 / raw.value_at_quantile(quantile) as f64;
    show(&format!("{what}, floor"), raw, "");
    show(&format!("{what}, tenure"), ours, &format!("  x{:.2} / x{:.2}", ratio(0.5), ratio(0.99)));
}

fn show(what: &str, times: &Histogram<u64>, note: &str) {
    let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    println!("{what:<52} p50 {:>7.1} us  p99 {:>7.1} us{note}", micros(0.5), micros(0.99));
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("a histogram")
}

fn record(times: &mut Histogram<u64>, since: Instant) {
    times.record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)).expect("in range");
}

fn raw_connection(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("a database");
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE IF NOT EXISTS r (name TEXT PRIMARY KEY, version TEXT, value TEXT) WITHOUT ROWID;
             INSERT OR IGNORE INTO r VALUES ('a', '0', '')",
        )
        .expect("a table");
    connection
}

fn raw_write(connection: &Connection, old: u64) {
    let run =
        |sql| connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).expect(sql);
    run("BEGIN IMMEDIATE");
    let sql = "UPDATE r SET version = ?1, value = ?2 WHERE name = 'a' AND version = ?3";
    let row = params![(old + 1).to_string(), RECORD, old.to_string()];
    let changed =
        connection.prepare_cached(sql).and_then(|mut update| update.execute(row)).expect("an update");
    assert_eq!(changed, 1);
    run("COMMIT");
}

fn raw_writes(path: &Path, rounds: u64) -> Histogram<u64> {
    let (connection, mut times) = (raw_connection(path), histogram());
    for round in 0..rounds {
        let begun = Instant::now();
        raw_write(&connection, round);
        record(&mut times, begun);
    }
    times
}

/// The least that waking another process takes: commit, write to a file that it watches, and let it read the row.
fn raw_signals(path: &Path, rounds: u64) -> Histogram<u64> {
    let (writer, reader, mut times) = (raw_connection(path), raw_connection(path), histogram());
    let notify_path = path.with_extension("notify");
    let notifier = File::create(&notify_path).expect("a notifier");
    let queue = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    inotify::add_watch(&queue, &notify_path, inotify::WatchFlags::MODIFY).expect("a watch");
    let (seen, sees) = mpsc::channel();
    let listener = std::thread::spawn(move || {
        for round in 1..=rounds {
            loop {
                rustix::io::read(&queue, &mut [0_u8; 4096][..]).expect("a notification");
                let mut select =
                    reader.prepare_cached("SELECT version FROM r WHERE name = 'a'").expect("a query");
                if select.query_row([], |row| row.get::<_, String>(0)).expect("a row") == round.to_string() {
                    break;
                }
            }
            seen.send(Instant::now()).expect("the receiver waits");
        }
    });
    for round in 0..rounds {
        let begun = Instant::now();
        raw_write(&writer, round);
        notifier.write_at(b"!", 0).expect("a notification");
        let at: Instant = sees.recv().expect("it was seen");
        times.record(u64::try_from((at - begun).as_nanos()).unwrap_or(u64::MAX)).expect("in range");
    }
    listener.join().expect("the listener came through");
    times
}

fn put(name: &str, expect: Option<Version>, notify: bool) -> Write {
    let key = Key::Named(Epoch::new(1), Kind::Node, Name::new(name).expect("a name"));
    let value = Value { token: None, json: RECORD.into() };
    Write {
        key,
        expect,
        put: Some((Version::new(KernelEntropy.nonce()), value)),
        notify,
        requires_lock: false,
    }
}

fn version(write: &Write) -> Option<Version> {
    write.put.as_ref().map(|(version, _)| *version)
}

async fn writes(path: &Path, rounds: u64, size: usize) -> Histogram<u64> {
    let (store, space) = (Sqlite::open(path).expect("a store"), Name::new("bench").expect("a name"));
    let mut times = histogram();
    let mut expect = vec![None; size];
    for _ in 0..rounds {
        let batch: Vec<_> =
            expect.iter().enumerate().map(|(nth, old)| put(&format!("n{nth}"), *old, false)).collect();
        let begun = Instant::now();
        let outcomes = store.write(&space, &batch).await.expect("an answer");
        record(&mut times, begun);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied)));
        expect = batch.iter().map(version).collect();
    }
    store.close().await;
    times
}

async fn signals(path: &Path, rounds: u64) -> Histogram<u64> {
    let (writer, watcher) = (Sqlite::open(path).expect("a store"), Sqlite::open(path).expect("a store"));
    let (space, mut times, mut expect) = (Name::new("bench").expect("a name"), histogram(), None);
    let mut watch = watcher.watch(&space);
    watcher.describe().await.expect("a description");
    for _ in 0..rounds {
        let batch = [put("a", expect, true)];
        expect = version(&batch[0]);
        let begun = Instant::now();
        let seen = async {
            while !matches!(watch.next().await, Some(Signal::Changed(key)) if key == batch[0].key) {}
            record(&mut times, begun);
        };
        let (written, ()) = tokio::join!(writer.write(&space, &batch), seen);
        written.expect("an answer");
    }
    times
}

/// As another process: acquires the lock of a session, says so, and waits to be killed.
fn hold(path: &Path, session: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = Sqlite::open(path).expect("a store");
    let space = Name::new("bench").expect("a name");
    let lock = runtime
        .block_on(store.liveness().acquire_lock(
            &space,
            session.parse().expect("an id"),
            tenure::Takeover::Strict,
        ))
        .expect("an answer");
    println!("{}", lock.expect("a lock").id);
    let _ = std::io::stdin().lines().next();
}

/// From killing a process to having the evidence; and, at the same death, to a thread that waited for the lock.
async fn deaths(path: &Path, rounds: u64) -> (Histogram<u64>, Histogram<u64>) {
    let (store, space) = (Sqlite::open(path).expect("a store"), Name::new("bench").expect("a name"));
    let (mut raw, mut ours, mut watch) = (histogram(), histogram(), store.watch(&space));
    for _ in 0..rounds {
        let session = SessionId::new(KernelEntropy.nonce());
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .env(HOLD_FILE, path)
            .env(HOLD_SESSION, session.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let says = BufReader::new(child.stdout.take().expect("its words")).lines().next();
        let id = says.expect("a line").expect("a line");
        let lock = path.with_extension("db-locks").join(format!("{session}.lock"));
        let waiter = std::thread::spawn(move || {
            let file = File::open(lock).expect("the lock");
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).expect("the lock");
            Instant::now()
        });
        store.liveness().watch_lock(&space, session, &id, tenure::Takeover::Strict);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let begun = Instant::now();
        child.kill().expect("a death");
        while !matches!(watch.next().await, Some(Signal::Evidence(_))) {}
        record(&mut ours, begun);
        let granted = waiter.join().expect("the waiter came through") - begun;
        raw.record(u64::try_from(granted.as_nanos()).unwrap_or(u64::MAX)).expect("in range");
        child.wait().expect("an end");
    }
    (raw, ours)
}
