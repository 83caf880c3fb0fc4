//! Campaign, work while leading, give up cleanly, campaign again: one call.
//!
//! Run with `cargo run -p tenure --example campaign`. It takes three ticks, then stops its node.

use std::time::Duration;

#[tokio::main]
pub(crate) async fn main() -> Result<(), tenure::Error> {
    let node = tenure::Node::builder("memory:campaign").name("web-1").start().await?;
    let stopper = node.clone();
    let mut ticks = 0;
    node.lead("scheduler", async |lead| {
        // Check before every act: leadership is a deadline, not a flag.
        while lead.check() && ticks < 3 {
            ticks += 1;
            println!("tick {ticks} under token {}", lead.token());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Without this the node would campaign again after its work.
        tokio::spawn({
            let stopper = stopper.clone();
            async move { stopper.stop().await }
        });
        lead.draining().await;
    })
    .await
}
