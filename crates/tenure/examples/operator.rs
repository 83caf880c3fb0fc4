//! An operator: who leads, hand over, pause, and the audit trail.
//!
//! Run with `cargo run -p tenure --example operator`.

use std::sync::Arc;
use std::time::Duration;

use tenure::testing::{Memory, node_on};
use tenure::{Name, Operator};

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
pub(crate) async fn main() -> Result<(), tenure::Error> {
    let store = Memory::new();
    let mut nodes = Vec::new();
    for name in ["web-1", "web-2"] {
        let node = node_on(&store).name(name).start().await?;
        let working = node.clone();
        tokio::spawn(async move { working.lead("scheduler", async |lead| lead.draining().await).await });
        nodes.push(node);
    }

    let role = Name::new("scheduler")?;
    let operator = Operator::new(Arc::new(store), Name::new(tenure::DEFAULT_NAMESPACE)?, "ada");
    let candidates = loop {
        let snapshot = operator.snapshot().await?;
        match snapshot.role(&role) {
            Some(report) if report.leader.is_some() && !report.candidates.is_empty() => {
                println!("{:?} leads, {:?} would be next", report.leader, report.candidates);
                break report.candidates.clone();
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };

    let leader = operator.transfer(&role, &candidates[0], "an example", PATIENCE, PATIENCE).await?;
    println!("{} leads under token {}", leader.node, leader.token);
    assert_eq!(operator.pause(&role, "an example", PATIENCE).await?, None, "the role has no leader");
    assert!(operator.resume(&role, "it is over").await?);
    for entry in operator.audit().await? {
        println!("{} did {:?} to {}: {}", entry.by, entry.action, entry.subject, entry.why);
    }
    for node in nodes {
        node.stop().await;
    }
    Ok(())
}
