//! The code of README.md as one program, so that it compiles together; a tidy test compares the two.

use tenure::schedule::{Schedule, Task, TaskSettings};
use tenure::work::{RestartPolicy, WorkError, Worker, WorkerContext, WorkerGroup};
use tenure::{Lead, Node, Token};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match std::env::args().nth(1).as_deref() {
        Some("schedule") => schedule(&Node::builder("sqlite:").start().await?).await,
        _ => lead().await,
    }
}

#[rustfmt::skip]
async fn lead() -> Result<(), Failure> {
    let node = tenure::Node::builder("sqlite:").name("web-1").start().await?;
    node.stop_on_signal()?; // SIGTERM and Ctrl-C: the next leader starts at once, and not a lease later

    // The whole of it: campaign, work while leading, give up cleanly, campaign again, until the node is stopped.
    node.lead("scheduler", async |lead| {
        while lead.check() {
            run_what_is_due(lead.token()).await?; // the token fences what you write; an error ends the tenure, and is told
        }
        Ok::<(), WorkError>(())
    }).await?;
    Ok(())
}

#[allow(dead_code, reason = "it takes a server")]
#[rustfmt::skip]
async fn write(mut client: tokio_postgres::Client, lead: Lead) -> Result<(), Failure> {
    let mut transaction = client.transaction().await?;      // tokio-postgres, sqlx, mysql_async or rusqlite
    lead.fence(&mut transaction, "ledger").await?;          // refused if a newer leader has been here
    Ok(transaction.commit().await?)
}

#[rustfmt::skip]
async fn schedule(node: &Node) -> Result<(), Failure> {
    let schedule = Schedule::new()
        .task(Task::new(TaskSettings::cron("report", "30 2 * * *")?, |run| async move { report(run.token()).await })?)?;
    let group = WorkerGroup::new()
        .worker(schedule.worker())
        .worker(Worker::new("aggregate", aggregate).restart(RestartPolicy::OnFailure));
    group.lead(node.candidate("scheduler")).await?;
    Ok(())
}

async fn run_what_is_due(token: Token) -> Result<(), WorkError> {
    println!("what is due, under token {token}");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    Ok(())
}

async fn report(token: Token) -> Result<(), WorkError> {
    println!("a report, under token {token}");
    Ok(())
}

async fn aggregate(context: WorkerContext) -> Result<(), WorkError> {
    context.stopping().await;
    Ok(())
}
