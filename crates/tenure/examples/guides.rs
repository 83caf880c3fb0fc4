//! The code of docs/guides as one program, so that it compiles; a tidy test compares the two.
//!
//! Run with `cargo run -p tenure --all-features --example guides`.

use std::time::Duration;

use tenure::work::WorkError;
use tenure::{Lead, Node, Timestamp, Token};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let node = Node::builder("memory:guides").name("web-1").start().await?;
    node.stop_on_signal()?;
    match std::env::args().nth(1).as_deref() {
        Some("schedules") => schedules(&node).await,
        _ => work(&node).await,
    }
}

#[rustfmt::skip]
async fn work(node: &Node) -> Result<(), Failure> {
    use tenure::work::{HealthCheck, RestartPolicy, Worker, WorkerGroup};

    let group = WorkerGroup::new()
        .worker(Worker::new("cache", |context| async move {
            warm_up().await?;
            context.ready();                        // the next worker may start
            context.stopping().await;               // accept nothing new …
            finish_what_is_in_flight().await      // … and finish
        }).ready_timeout(Duration::from_secs(10)))
        .worker(Worker::new("aggregate", |context| aggregate(context.lead().clone()))
            .restart(RestartPolicy::OnFailure).limit(3, Duration::from_secs(60))
            .health(HealthCheck::every(Duration::from_secs(5), |_| ping()).failures(2)))
        .worker(Worker::blocking("compact", |context| {
            while context.check() && !context.is_stopping() { compact_a_little()? }
            Ok(())
        }));

    group.lead(node.candidate("scheduler")).await?;   // campaign, work, give up cleanly, campaign again
    Ok(())
}

#[rustfmt::skip]
async fn schedules(node: &Node) -> Result<(), Failure> {
    use tenure::schedule::{Schedule, Task, TaskSettings};

    let nightly = TaskSettings { zone: "Europe/Vienna".into(), ..TaskSettings::cron("report", "30 2 * * *")? };
    let schedule = Schedule::new()
        .task(Task::new(nightly, |run| async move { write_report(run.tick(), run.token()).await })?)?;

    schedule.lead(node.candidate("scheduler")).await?;
    Ok(())
}

#[allow(dead_code, reason = "it takes a server")]
#[rustfmt::skip]
async fn fencing(mut client: tokio_postgres::Client, lead: Lead) -> Result<(), Failure> {
    let mut transaction = client.transaction().await?;
    lead.fence(&mut transaction, "ledger").await?; // refused: `?` drops the transaction, which rolls back
    transaction.execute("INSERT INTO ledger VALUES ('what a leader writes')", &[]).await?;
    transaction.commit().await?;
    Ok(())
}

async fn warm_up() -> Result<(), WorkError> {
    Ok(())
}

async fn finish_what_is_in_flight() -> Result<(), WorkError> {
    Ok(())
}

async fn aggregate(lead: Lead) -> Result<(), WorkError> {
    lead.lost().await;
    Ok(())
}

async fn ping() -> Result<(), WorkError> {
    Ok(())
}

fn compact_a_little() -> Result<(), WorkError> {
    std::thread::sleep(Duration::from_millis(10));
    Ok(())
}

async fn write_report(tick: Timestamp, token: Token) -> Result<(), WorkError> {
    println!("the report of {tick:?}, under token {token}");
    Ok(())
}
