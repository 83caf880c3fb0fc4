//! What ten thousand tasks cost: `cargo bench -p tenure --features schedule --bench schedule`.
//!
//! Prints the time to find the next tick, the time from a tick to its run with one task and with ten thousand that wait
//! beside it, and the memory of each task.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tenure::schedule::{Recurrence, Schedule, Task, TaskSettings};
use tenure::testing::{Memory, node_on};
use tenure::{Operator, Timestamp};

const TASKS: usize = 10_000;

fn main() {
    // `cargo test` asks every target, with this.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    next_tick();
    let before = resident();
    let tasks: Vec<TaskSettings> = (0..TASKS).map(idle).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let alone = runtime.block_on(latency(Vec::new()));
    let crowded = runtime.block_on(latency(tasks));
    let each = (resident().saturating_sub(before)) / TASKS;
    println!("from tick to run, 1 task            p50 {:>7.3} ms", alone.as_secs_f64() * 1e3);
    println!("from tick to run, beside {TASKS} tasks p50 {:>7.3} ms", crowded.as_secs_f64() * 1e3);
    println!("ratio                                   {:>7.2}", crowded.as_secs_f64() / alone.as_secs_f64());
    println!("memory of each task, its register in the memory store included  {each} bytes");
}

fn idle(nth: usize) -> TaskSettings {
    TaskSettings::cron(&format!("idle-{nth}"), "30 2 1 1 *").expect("a task")
}

fn next_tick() {
    for (text, zone) in [("*/5 * * * *", "UTC"), ("30 2 * * mon-fri", "Europe/Vienna"), ("0 0 29 2 *", "UTC")]
    {
        let when = Recurrence::cron(text, zone).expect("an expression");
        let (rounds, mut at) = (2_000, Timestamp::from_micros(1_767_225_600_000_000));
        let begun = Instant::now();
        for _ in 0..rounds {
            at = when.next(at).unwrap_or(Timestamp::from_micros(1_767_225_600_000_000));
        }
        let each = begun.elapsed() / rounds;
        println!("next tick of {text:<20} {zone:<15} {:>8.2} µs", each.as_secs_f64() * 1e6);
    }
}

/// The median time from a tick to the first line of its run, with those tasks beside it.
async fn latency(others: Vec<TaskSettings>) -> Duration {
    let store = Memory::new();
    let node = node_on(&store).name("a").start().await.expect("a node");
    let seen: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let noted = seen.clone();
    let often = TaskSettings::every("often", Duration::from_millis(100)).expect("a task");
    let task = Task::new(often, move |run| {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        noted.lock().unwrap().push(since_1970.saturating_sub(Duration::from_micros(run.tick().as_micros())));
        async { Ok::<(), String>(()) }
    });
    let mut schedule = Schedule::new().task(task.expect("a task")).expect("one of that name");
    let wanted = others.len() + 1;
    for settings in others {
        let task = Task::new(settings, |_| async { Ok::<(), String>(()) }).expect("a task");
        schedule = schedule.task(task).expect("one of that name");
    }
    let stand = node.candidate("scheduler");
    let leading = tokio::spawn(async move { schedule.lead(stand).await });
    let operator = Operator::new(Arc::new(store.clone()), "default".parse().expect("a name"), "bench");
    while operator.tasks(None).await.expect("a ledger").len() < wanted {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    seen.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut spread = seen.lock().unwrap().clone();
    node.stop().await;
    let _ = leading.await;
    spread.sort_unstable();
    spread[spread.len() / 2]
}

/// The memory of this process that is in RAM, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or_default() * 1024
}
