//! What the MySQL store costs, next to what the server costs by itself in the same run.
//!
//! Run with `cargo bench -p tenure --all-features --bench mysql`. It starts a private MariaDB in a temporary directory: set
//! `TMPDIR` to the disk that you want to know about, since every commit waits for it.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hdrhistogram::Histogram;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tenure::store::entropy::KernelEntropy;
use tenure::store::{Epoch, Key, Kind, Mysql, Name, Outcome, Signal, Store, Value, Version, Write};
use tenure::{Candidate, Node};
use tenure_core::Entropy;
use tenure_torture::servers::mysql::Mysql as Server;

/// Without `--bench`, as under `cargo test`, it only shows that it runs.
fn main() {
    let measure = std::env::args().any(|argument| argument == "--bench");
    let rounds = if measure { 1000 } else { 3 };
    let server = Server::start(&[]);
    let url = format!("{}?timeout=20s", server.url("app"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("{rounds} rounds each, hand-over and batches fewer; p50 / p99");
    runtime.block_on(async {
        let store = Mysql::open(&url).expect("a URL");
        store.describe().await.expect("the server is there");
        show("update by primary key, flushed (floor)", &raw(&url, rounds).await);
        show("compare-and-set", &writes(&store, rounds, 1, false).await);
        show("compare-and-set that notifies", &writes(&store, rounds, 1, true).await);
        show("batch of 256 that notify", &writes(&store, rounds.div_ceil(20), 256, true).await);
        show("write begun -> another handle has it", &signals(&url, rounds).await);
        show("clean hand-over between two nodes", &hand_overs(&url, rounds.div_ceil(10)).await);
        idle(&url, if measure { Duration::from_secs(60) } else { Duration::ZERO }).await;
    });
}

fn show(what: &str, times: &Histogram<u64>) {
    let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    println!("{what:<44} {:>9.1} / {:>9.1} us", micros(0.5), micros(0.99));
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("a histogram")
}

fn record(times: &mut Histogram<u64>, since: Instant) {
    times.record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)).expect("in range");
}

async fn connect(url: &str) -> Conn {
    let plain = url.split('?').next().unwrap_or_default();
    Conn::new(Opts::from_url(plain).expect("a URL")).await.expect("it connects")
}

async fn raw(url: &str, rounds: u64) -> Histogram<u64> {
    let (mut conn, mut times) = (connect(url).await, histogram());
    conn.query_drop("CREATE TABLE raw (id INT PRIMARY KEY, n BIGINT) ENGINE = InnoDB")
        .await
        .expect("a table");
    conn.query_drop("INSERT INTO raw VALUES (1, 0)").await.expect("a row");
    for round in 1..=rounds {
        let begun = Instant::now();
        conn.query_drop(format!("UPDATE raw SET n = {round} WHERE id = 1")).await.expect("an update");
        record(&mut times, begun);
    }
    times
}

fn space() -> Name {
    Name::new("bench").expect("a name")
}

fn put(name: &str, expect: Option<Version>, notify: bool) -> Write {
    let key = Key::Named(Epoch::new(1), Kind::Node, Name::new(name).expect("a name"));
    let put = Some((Version::new(KernelEntropy.nonce()), Value::of(&"a value of some length", None)));
    Write { key, expect, put, notify, requires_lock: false }
}

fn version(write: &Write) -> Option<Version> {
    write.put.as_ref().map(|(version, _)| *version)
}

async fn writes(store: &Mysql, rounds: u64, size: usize, notify: bool) -> Histogram<u64> {
    let mut times = histogram();
    let mut last: Vec<_> =
        (0..size).map(|nth| put(&format!("w{size}-{notify}-{nth}"), None, notify)).collect();
    store.write(&space(), &last).await.expect("it writes");
    for _ in 0..rounds {
        let next =
            last.iter().map(|write| put(&write.key.name(), version(write), notify)).collect::<Vec<_>>();
        let begun = Instant::now();
        let outcomes = store.write(&space(), &next).await.expect("it writes");
        record(&mut times, begun);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied)));
        last = next;
    }
    times
}

async fn signals(url: &str, rounds: u64) -> Histogram<u64> {
    let open = || Mysql::open(url).expect("a URL");
    let (writer, watcher, mut times) = (open(), open(), histogram());
    assert!(watcher.describe().await.expect("a description").notifies);
    let mut watch = watcher.watch(&space());
    let mut last = None;
    for _ in 0..rounds {
        let write = put("signal", last, true);
        last = version(&write);
        let begun = Instant::now();
        let heard = async {
            while let Some(signal) = watch.next().await {
                if matches!(&signal, Signal::Changed(found) if *found == write.key) {
                    return Instant::now();
                }
            }
            panic!("the watch goes on")
        };
        let (place, batch) = (space(), [write.clone()]);
        let (written, heard) = tokio::join!(writer.write(&place, &batch), heard);
        written.expect("it writes");
        times.record(u64::try_from((heard - begun).as_nanos()).unwrap_or(u64::MAX)).expect("in range");
    }
    times
}

async fn node(url: &str, name: &str, ttl: Duration) -> (Node, Candidate) {
    let store = std::sync::Arc::new(Mysql::open(url).expect("a URL"));
    let node = Node::builder_with_store(store).name(name).ttl(ttl).start().await.expect("it starts");
    let candidate = node.candidate("scheduler").await.expect("it stands");
    (node, candidate)
}

/// From giving the role up to the next election, normally the other's.
async fn hand_overs(url: &str, rounds: u64) -> Histogram<u64> {
    let ttl = Duration::from_secs(10);
    let (nodes, mut times) = ([node(url, "a", ttl).await, node(url, "b", ttl).await], histogram());
    let mut tenure = nodes[0].1.elected().await.expect("an election");
    for _ in 0..rounds {
        let begun = Instant::now();
        drop(tenure);
        tenure = tokio::select! {
            elected = nodes[0].1.elected() => elected,
            elected = nodes[1].1.elected() => elected,
        }
        .expect("an election");
        record(&mut times, begun);
    }
    times
}

/// What the server counts while one node leads and does nothing else.
async fn idle(url: &str, span: Duration) {
    let (node, candidate) = node(url, "idle", Duration::from_secs(30)).await;
    let _candidate = candidate;
    let mut conn = connect(url).await;
    tokio::time::sleep(span / 2).await;
    let before = questions(&mut conn).await;
    tokio::time::sleep(span).await;
    let after = questions(&mut conn).await;
    println!("statements in {span:?} of an idle node, ttl 30 s, beat 6 s: {}", after - before - 1);
    node.stop().await;
}

async fn questions(conn: &mut Conn) -> u64 {
    let row: Option<(String, u64)> =
        conn.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await.expect("a row");
    row.expect("a count").1
}
