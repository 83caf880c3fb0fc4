//! Figures of a group of peers: three member processes on this machine.
//!
//! `cargo bench -p tenure --features peers --bench peers -- [KILLS]`

#[path = "../tests/peers_kit/mod.rs"]
mod peers_kit;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use peers_kit::{SECRET, free_address, must_write, put, space};
use tempfile::TempDir;
use tenure::store::{Outcome, Peers, Store};

const PART: &str = "TENURE_BENCH_MEMBER";

fn main() {
    if let Ok(url) = std::env::var(PART) {
        return be_a_member(&url);
    }
    let kills = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(30);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut group = Group::start();
        throughput(&group).await;
        hand_over(&mut group, kills).await;
        fail_over(&mut group, kills).await;
        recovery(&mut group).await;
    });
}

fn be_a_member(url: &str) {
    let member = Peers::open(url).expect("a member");
    println!("started");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(member.close());
}

/// Three members, killed with the benchmark.
struct Group {
    dir: TempDir,
    addresses: Vec<String>,
    members: Vec<Child>,
}

impl Group {
    fn start() -> Self {
        let dir = TempDir::new().expect("a directory");
        std::fs::write(dir.path().join("secret"), SECRET).expect("a secret");
        let mut group =
            Self { dir, addresses: (0..3).map(|_| free_address()).collect(), members: Vec::new() };
        group.members = (0..3).map(|nth| group.member(nth)).collect();
        group
    }

    fn url(&self) -> String {
        let secret = self.dir.path().join("secret");
        format!("peers://{}?secret-file={}", self.addresses.join(","), secret.display())
    }

    fn client(&self) -> Peers {
        Peers::open(&self.url()).expect("a client")
    }

    fn member(&self, nth: usize) -> Child {
        let dir = self.dir.path().join(nth.to_string());
        let url = format!("{}&me={}&dir={}", self.url(), self.addresses[nth], dir.display());
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(PART, url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let output = child.stdout.take().expect("its output");
        assert!(BufReader::new(output).lines().next().is_some(), "a member starts");
        child
    }

    /// Which member leads the Raft group, once all members are reached.
    async fn leader(&self, client: &Peers) -> usize {
        loop {
            if let Ok(group) = client.group().await
                && group.seats.iter().all(|seat| seat.reached)
                && let Some(leader) = group.seats.iter().find(|seat| seat.leads)
                && let Some(nth) = self.addresses.iter().position(|address| *address == leader.address)
            {
                return nth;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// Writes a second, of one client and of sixty-four at once.
async fn throughput(group: &Group) {
    must_write(&group.client(), put("first", None, 1)).await;
    for writers in [1_usize, 64] {
        let until = Instant::now() + Duration::from_secs(5);
        let client = std::sync::Arc::new(group.client());
        let write = |nth: usize| {
            let (client, name) = (client.clone(), format!("w{writers}-{nth}"));
            tokio::spawn(async move {
                let mut at = 0;
                while Instant::now() < until {
                    let write = put(&name, (at > 0).then_some(at), at + 1);
                    let outcomes = client.write(&space(), &[write]).await;
                    assert!(matches!(outcomes.as_deref(), Ok([Outcome::Applied])), "{outcomes:?}");
                    at += 1;
                }
                at
            })
        };
        let mut total = 0;
        for task in (0..writers).map(write).collect::<Vec<_>>() {
            total += task.await.expect("a writer");
        }
        println!("{:>9.0} writes a second, {writers} at once", total as f64 / 5.0);
    }
}

/// The next write after the Raft leader was stopped cleanly.
async fn hand_over(group: &mut Group, rounds: u32) {
    let mut figures = Histogram::<u64>::new(3).expect("a histogram");
    for round in 0..rounds {
        let client = group.client();
        let leader = group.leader(&client).await;
        drop(group.members[leader].stdin.take());
        let _ = group.members[leader].wait();
        figures.saturating_record(next_write(&client, &format!("h{round}")).await);
        group.members[leader] = group.member(leader);
    }
    print("the next write after the Raft leader was stopped", &figures);
}

/// The next write after the Raft leader was killed.
async fn fail_over(group: &mut Group, rounds: u32) {
    let mut figures = Histogram::<u64>::new(3).expect("a histogram");
    for round in 0..rounds {
        let client = group.client();
        let leader = group.leader(&client).await;
        let _ = group.members[leader].kill();
        figures.saturating_record(next_write(&client, &format!("k{round}")).await);
        let _ = group.members[leader].wait();
        group.members[leader] = group.member(leader);
    }
    print("the next write after the Raft leader was killed", &figures);
}

/// How long a group takes to answer after all of it was killed, with a log as long as it ever gets.
async fn recovery(group: &mut Group) {
    let client = group.client();
    let filler = "x".repeat(1000);
    for nth in 0..8000_u32 {
        let mut write = put(&format!("r{}", nth % 2000), None, u128::from(nth) + 1);
        write.key = peers_kit::key(&format!("r{nth}"));
        write.put = write.put.map(|(version, _)| (version, tenure::store::Value::of(&filler, None)));
        must_write(&client, write).await;
    }
    let size = std::fs::metadata(group.dir.path().join("0/log")).map_or(0, |found| found.len());
    for member in &mut group.members {
        let _ = member.kill();
        let _ = member.wait();
    }
    let started = Instant::now();
    group.members = (0..3).map(|nth| group.member(nth)).collect();
    next_write(&client, "recovered").await;
    println!(
        "{:>9.0} ms from starting all members to the next write, log of {size} bytes",
        started.elapsed().as_millis()
    );
}

async fn next_write(client: &Peers, name: &str) -> u64 {
    let started = Instant::now();
    must_write(client, put(name, None, 1)).await;
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn print(what: &str, figures: &Histogram<u64>) {
    let ms = |quantile| figures.value_at_quantile(quantile) as f64 / 1000.0;
    let count = figures.len();
    println!(
        "{:>9.1} / {:.1} / {:.1} ms: {what} (median, p99, worst of {count})",
        ms(0.5),
        ms(0.99),
        ms(1.0)
    );
}
