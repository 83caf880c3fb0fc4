//! A schedule that only the leader runs, with a ledger of ticks in the store.
//!
//! Run with `cargo run -p tenure --features schedule --example schedule`.

use std::time::Duration;

use tenure::Name;
use tenure::schedule::{Schedule, Task, TaskSettings};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = tenure::Node::builder("memory:schedule-example").name("web-1").start().await?;
    let poll = TaskSettings::every("poll", Duration::from_millis(100))?;
    let schedule = Schedule::new().task(Task::new(poll, |run| async move {
        println!("{} under token {}", run.id(), run.token());
        Ok::<(), std::io::Error>(())
    })?)?;

    let stop = async {
        while schedule.counters().of(&Name::new("poll")?).is_none_or(|counts| counts.succeeded() < 2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        node.stop().await;
        Ok(())
    };
    tokio::try_join!(schedule.lead(node.candidate("scheduler")), stop)?;
    Ok(())
}
