//! A supervised group of workers that runs while its node leads.
//!
//! Run with `cargo run -p tenure --example workers`.

use std::time::Duration;

use tenure::work::{HealthCheck, RestartPolicy, Worker, WorkerGroup};

#[tokio::main]
pub(crate) async fn main() -> Result<(), tenure::Error> {
    let node = tenure::Node::builder("memory:workers").name("web-1").start().await?;
    let group = WorkerGroup::new()
        .worker(
            Worker::new("cache", |context| async move {
                context.ready(); // the next worker may start
                context.stopping().await; // accept nothing new, finish what is in flight
                Ok(())
            })
            .ready_timeout(Duration::from_secs(5))
            .health(HealthCheck::every(Duration::from_secs(1), |_| async { Ok(()) }).failures(3)),
        )
        .worker(
            Worker::blocking("compact", |context| {
                while context.check() && !context.is_stopping() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            })
            .restart(RestartPolicy::OnFailure),
        );

    let stop = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        node.stop().await;
        Ok(())
    };
    tokio::try_join!(group.lead(node.candidate("scheduler")), stop)?;
    println!("every worker is joined, and the role is free");
    Ok(())
}
