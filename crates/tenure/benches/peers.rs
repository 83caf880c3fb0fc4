//! Figures of a group of peers: three member processes on this machine, and what one write costs them in the same run.
//!
//! `cargo bench -p tenure --features peers --bench peers -- [ROUNDS] [REGISTERS]`: so many kills of the Raft leader (30;
//! fewer of what takes longer), and so many registers in the largest group (100 000). Set `TMPDIR` to the disk that you
//! want to know about: every acknowledged write waits for two of them.

#[path = "../tests/stores/peers_kit/mod.rs"]
mod peers_kit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hdrhistogram::Histogram;
use peers_kit::processes::{Processes, be_a_member, size_of};
use peers_kit::{key, must_write, put, space, version};
use tenure::clock::lease_nanos;
use tenure::store::{Outcome, Peers, Signal, Store, Value, Version, Write};
use tenure::{Candidate, Node};
use tenure_torture::judge::{Note, NoteKind, NoteReader};

const TTL: Duration = Duration::from_secs(2);

fn main() {
    be_a_member();
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let (rounds, registers) = (numbers.next().unwrap_or(30), numbers.next().unwrap_or(100_000));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut group = Processes::of(3);
        group.start_all(&[]);
        let floor = floors(&group).await;
        throughput(&group).await;
        role_hand_over(&group, &floor).await;
        raft_leader_ends(&mut group, rounds.min(60), "stopped", Processes::stop).await;
        raft_leader_ends(&mut group, rounds, "killed", Processes::kill).await;
        drop(group);
        role_fail_over(rounds.min(40)).await;
        many_registers(registers / 10).await;
        many_registers(registers).await;
    });
}

/// One write after the other, one read after the other, and how long it takes until another handle hears of a write.
async fn floors(group: &Processes) -> Histogram<u64> {
    let (writer, watcher) = (group.client(), group.client());
    must_write(&writer, put("floor", None, 1)).await;
    let mut watch = watcher.watch(&space());
    version(&watcher, "floor").await.expect("it is connected");
    let (mut writes, mut reads, mut hints) = (histogram(), histogram(), histogram());
    for at in 1..=1000 {
        let (begun, place, batch) = (Instant::now(), space(), [put("floor", Some(at), at + 1)]);
        let write = async {
            let written = writer.write(&place, &batch).await;
            assert!(matches!(written.as_deref(), Ok([Outcome::Applied])), "{written:?}");
            record(&mut writes, begun);
        };
        let hear = async {
            while let Some(signal) = watch.next().await {
                if matches!(&signal, Signal::Changed(found) if *found == batch[0].key) {
                    return record(&mut hints, begun);
                }
            }
        };
        tokio::join!(write, hear);
        let begun = Instant::now();
        version(&writer, "floor").await.expect("it reads");
        record(&mut reads, begun);
    }
    show("a write, acknowledged by a majority", &writes);
    show("a read", &reads);
    show("a write begun -> another handle has it (floor of a hand-over)", &hints);
    hints
}

/// Writes a second, of one client and of sixty-four at once.
async fn throughput(group: &Processes) {
    for writers in [1_usize, 64] {
        let until = Instant::now() + Duration::from_secs(5);
        let client = Arc::new(group.client());
        must_write(&*client, put(&format!("first{writers}"), None, 1)).await;
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

/// From giving a role up to the next election, normally the other's; both nodes are clients.
async fn role_hand_over(group: &Processes, floor: &Histogram<u64>) {
    let node = async |name: &str| -> (Node, Candidate) {
        let node = Node::builder_with_store(Arc::new(group.client())).name(name).ttl(Duration::from_secs(10));
        let node = node.start().await.expect("it starts");
        let candidate = node.candidate("scheduler").await.expect("it stands");
        (node, candidate)
    };
    let (nodes, mut times) = ([node("a").await, node("b").await], histogram());
    let next = async || {
        tokio::select! {
            elected = nodes[0].1.elected() => elected,
            elected = nodes[1].1.elected() => elected,
        }
        .expect("an election")
    };
    let mut tenure = next().await;
    for _ in 0..100 {
        let begun = Instant::now();
        drop(tenure);
        tenure = next().await;
        record(&mut times, begun);
    }
    show("clean hand-over of a role between two clients", &times);
    let median = |times: &Histogram<u64>| times.value_at_quantile(0.5) as f64;
    println!("{:>9.2} x the floor, by the medians", median(&times) / median(floor));
    drop(tenure);
    futures_util::future::join(nodes[0].0.stop(), nodes[1].0.stop()).await;
}

/// The next write after the Raft leader ended.
async fn raft_leader_ends(group: &mut Processes, rounds: u32, how: &str, end: fn(&mut Processes, usize)) {
    let mut figures = histogram();
    for round in 0..rounds {
        let client = group.client();
        let leader = raft_leader(group, &client).await;
        end(group, leader);
        let begun = Instant::now();
        must_write(&client, put(&format!("{how}{round}"), None, 1)).await;
        record(&mut figures, begun);
        group.start(leader, &[]);
    }
    show(&format!("the next write after the Raft leader was {how}"), &figures);
}

/// Which member leads the Raft group, once all members are reached.
async fn raft_leader(group: &Processes, client: &Peers) -> usize {
    loop {
        if let Ok(found) = client.group().await
            && found.members.iter().all(|member| member.reached)
            && let Some(leader) = found.members.iter().find(|member| member.leads)
            && let Some(nth) = group.addresses.iter().position(|address| *address == leader.address)
        {
            return nth;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The next tenure after the process ended that led the role: as the Raft leader too, or not; killed, or stopped.
async fn role_fail_over(rounds: u32) {
    let mut group = Processes::of(3).standing(TTL);
    group.start_all(&[]);
    let mut tail = NoteReader::of(&group.notes());
    let mut working = next_worker(&mut tail, 0).await;
    let bound = TTL.mul_f64(1.01) + TTL / 5 + Duration::from_millis(100);
    println!(
        "{:>9} ms at most after a crash of a role's leader; an election more if it led the Raft group",
        bound.as_millis()
    );
    for (how, end, rounds) in [
        ("killed", Processes::kill as fn(&mut Processes, usize), rounds),
        ("stopped", Processes::stop, rounds / 2),
    ] {
        let (mut both, mut one) = (histogram(), histogram());
        for _ in 0..rounds {
            let leader = raft_leader(&group, &group.client()).await;
            // Followers have to be nodes again, and to have seen the leader beat.
            tokio::time::sleep(TTL).await;
            for note in tail.read_on().expect("notes") {
                working = began(&note).unwrap_or(working);
            }
            let (ended, former) = (lease_nanos(), working.0);
            end(&mut group, former);
            working = next_worker(&mut tail, ended).await;
            let figures = if leader == former { &mut both } else { &mut one };
            figures.record((working.1 - ended) / 1000).expect("in range");
            group.start(former, &[]);
        }
        show(&format!("the next leader of a role after its leader was {how}, ttl {TTL:?}"), &one);
        show("... which led the Raft group too", &both);
    }
}

/// A group with so many registers of 300 bytes, as a role or a session has: what snapshots of it cost those who write
/// meanwhile, and how long it takes to come back after all of it was killed.
async fn many_registers(count: u32) {
    let mut group = Processes::of(3);
    group.start_all(&[]);
    let client = Arc::new(group.client());
    must_write(&*client, put("ready", None, 1)).await;
    fill(&client, count, 0).await;
    let log = group.place(0).join("log");
    let (leader, mut shortest) = (raft_leader(&group, &client).await, size_of(&log));
    // All of them are rewritten twice: that is longer than a log may be, so that there is a snapshot or two.
    let filler = tokio::spawn({
        let client = client.clone();
        async move {
            fill(&client, count, 1).await;
            fill(&client, count, 2).await;
        }
    });
    let (other, mut times, mut at, mut snapshots) = (group.client(), histogram(), 0, 0);
    while !filler.is_finished() {
        let begun = Instant::now();
        must_write(&other, put("meanwhile", (at > 0).then_some(at), at + 1)).await;
        record(&mut times, begun);
        (at, snapshots) = (at + 1, snapshots + u32::from(size_of(&log) < shortest));
        shortest = size_of(&log);
    }
    filler.await.expect("it writes");
    let same = raft_leader(&group, &client).await == leader;
    show(&format!("a write while {count} registers are rewritten"), &times);
    println!(
        "{snapshots:>9} snapshots meanwhile; the Raft leader is {}",
        if same { "the same" } else { "another one" }
    );
    let size = size_of(&log) as f64 / 1e6;
    group.power_loss();
    let started = Instant::now();
    group.start_all(&[]);
    must_write(&*client, put("recovered", None, 1)).await;
    let took = started.elapsed().as_millis();
    println!(
        "{took:>9} ms from starting all members to the next write, {count} registers, log of {size:.0} MB"
    );
}

/// Writes all of them, a hundred at once.
async fn fill(client: &Peers, count: u32, pass: u128) {
    let filler = "x".repeat(280);
    for first in (0..count).step_by(100) {
        let write = |nth: u32| {
            let put = Some((Version::new(pass + 1), Value::of(&filler, None)));
            let expect = (pass > 0).then_some(Version::new(pass));
            Write { key: key(&format!("r{nth}")), expect, put, notify: false, requires_lock: false }
        };
        let writes: Vec<_> = (first..count.min(first + 100)).map(write).collect();
        // Once more is no harm: what was written has that version already.
        while client.write(&space(), &writes).await.is_err() {}
    }
}

/// Who began to work after that instant, and when.
async fn next_worker(tail: &mut NoteReader, since: u64) -> (usize, u64) {
    loop {
        let notes = tail.read_on().expect("notes");
        if let Some(found) = notes.iter().filter_map(began).find(|(_, at)| *at > since) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Who began to work, and when, if that is what the note says.
fn began(note: &Note) -> Option<(usize, u64)> {
    let began = matches!(note.what, NoteKind::Work { on: true, .. });
    began.then(|| (note.node[1..].parse().expect("a number"), note.t))
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("a histogram")
}

fn record(times: &mut Histogram<u64>, since: Instant) {
    times.record(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)).expect("in range");
}

fn show(what: &str, figures: &Histogram<u64>) {
    let ms = |quantile| figures.value_at_quantile(quantile) as f64 / 1000.0;
    println!(
        "{:>9.2} / {:.2} / {:.2} ms: {what} (p50, p99, worst of {})",
        ms(0.5),
        ms(0.99),
        ms(1.0),
        figures.len()
    );
}
