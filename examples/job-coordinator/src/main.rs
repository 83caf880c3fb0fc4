//! A small product on Tenure: of several processes one leads, and assigns the jobs of a PostgreSQL table to those alive.
//!
//! Run with `DATABASE_URL=postgres://… NODE=web-1 cargo run -p job-coordinator`, as often as you like.
//!
//! - [`coordinate`]: what the leader does, in one fenced transaction after another: it recovers what dead nodes left,
//!   moves what is hopeless to the dead letters, and assigns what waits.
//! - [`count`]: what the leader does by the clock: it counts the jobs of the whole cluster.
//! - [`perform`]: what every node does: the jobs that are assigned to its session.

mod coordinate;
mod count;
mod database;
mod perform;

use std::error::Error;
use std::time::Duration;

use tenure::event::EventKind;
use tenure::work::{Worker, WorkerGroup};
use tenure::{Node, Operator, SessionId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The role whose leader assigns.
const ROLE: &str = "coordinator";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("set {name}"));
    let (url, name) = (variable("DATABASE_URL")?, variable("NODE")?);
    let ttl = std::env::var("TTL_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(5000);
    database::prepare(&url).await?;

    // The session is the identity of this process: jobs are assigned to it, and to no other process of this name.
    let (sender, session) = watch::channel(None::<SessionId>);
    let node = Node::builder(url.clone()).name(name).ttl(Duration::from_millis(ttl));
    let node = node.listen(move |event| match &event.kind {
        EventKind::SessionOpened { session } => _ = sender.send_replace(Some(*session)),
        EventKind::SessionOver { .. } => _ = sender.send_replace(None),
        _ => {}
    });
    let node = node.start().await?;

    let operator = Operator::new(node.store().clone(), node.namespace().clone(), "coordinator");
    let database = url.clone();
    let assigning = Worker::new("assign", move |scope| {
        let (database, operator) = (database.clone(), operator.clone());
        async move { coordinate::run(&database, &operator, &scope).await }
    });
    let group = WorkerGroup::new().worker(assigning).worker(count::schedule(&url)?.worker());
    let performing = tokio::spawn(perform::run(url, session));
    let mut terminate = signal(SignalKind::terminate())?;
    let stopped = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        node.stop().await;
    };
    let (led, ()) = tokio::join!(group.lead(node.candidate(ROLE)), stopped);
    performing.abort();
    Ok(led?)
}
