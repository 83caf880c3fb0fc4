//! A candidate, its tenures one by one, and an observer on another node.
//!
//! Run with `cargo run -p tenure --example step_by_step`.

use futures_util::StreamExt;
use tenure::testing::{Memory, node_on};
use tenure::{Error, WorkOutcome};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let store = Memory::new();
    let leader = node_on(&store).name("web-1").address("10.0.0.1:80").start().await?;
    let watcher = node_on(&store).name("web-2").start().await?;

    let candidate = leader.candidate("scheduler").priority(10).await?;
    let tenure = candidate.elected().await.expect("the node was not stopped");
    let observer = watcher.observer("scheduler").await?;
    let mut leaders = observer.leaders();
    let seen = loop {
        if let Some(Some(leader)) = leaders.next().await {
            break leader;
        }
    };
    println!("{} leads at {:?} under token {}", seen.node, seen.address, seen.token);

    match tenure.hold(|lead| async move { lead.token() }).await {
        WorkOutcome::Completed(token) => println!("the work under token {token} is done"),
        WorkOutcome::Lost(reason) => println!("lost: {reason}"),
    }
    let next = candidate.elected().await.expect("the node was not stopped");
    println!("elected again, under token {}", next.token());
    next.resign();
    leader.stop().await;
    watcher.stop().await;
    Ok(())
}
