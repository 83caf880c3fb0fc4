//! What every node does: the jobs that are assigned to its session, one after another.

use std::time::Duration;

use tenure::SessionId;
use tokio::sync::watch;
use tokio_postgres::{Client, Row};

use crate::database::{self, Fault};

/// How often to look for jobs.
const ROUND: Duration = Duration::from_millis(50);

/// For ever; a database that is gone is tried again.
pub(crate) async fn run(url: String, session: watch::Receiver<Option<SessionId>>) {
    loop {
        if let Err(error) = work(&url, session.clone()).await {
            eprintln!("jobs: {error}; trying again");
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn work(url: &str, session: watch::Receiver<Option<SessionId>>) -> Result<(), Fault> {
    let mut client = database::connect(url).await?;
    loop {
        let own = session.borrow().map(|session| session.to_string());
        let job = match &own {
            Some(own) => next(&client, own).await?,
            None => None,
        };
        match (own, job) {
            (Some(own), Some(job)) => perform(&mut client, &own, &job).await?,
            _ => tokio::time::sleep(ROUND).await,
        }
    }
}

async fn next(client: &Client, session: &str) -> Result<Option<Row>, Fault> {
    let query = "SELECT id, kind, attempts, assignment FROM jobs WHERE state = 'assigned' AND session = $1
                 ORDER BY assignment LIMIT 1";
    Ok(client.query_opt(query, &[&session]).await?)
}

/// What the job does and that it is done are one transaction, and it counts only if the job is still assigned to this
/// very session: one that was frozen, and whose jobs went to others, changes nothing.
async fn perform(client: &mut Client, session: &str, job: &Row) -> Result<(), Fault> {
    let (id, assignment): (i64, i64) = (job.get("id"), job.get("assignment"));
    let attempts: i32 = job.get("attempts");
    if let Err(error) = act(job.get("kind"), attempts).await {
        let wait = 0.1 * f64::from(1 << attempts.min(10));
        client
            .execute(
                "UPDATE jobs SET state = 'waiting', attempts = attempts + 1, error = $4, session = NULL,
                 assignment = NULL, run_at = now() + $5 * interval '1 second'
                 WHERE id = $1 AND session = $2 AND assignment = $3 AND state = 'assigned'",
                &[&id, &session, &assignment, &error, &wait],
            )
            .await?;
        return Ok(());
    }
    let transaction = client.transaction().await?;
    let done = transaction
        .execute(
            "UPDATE jobs SET state = 'done' WHERE id = $1 AND session = $2 AND assignment = $3 AND state = 'assigned'",
            &[&id, &session, &assignment],
        )
        .await?;
    if done == 1 {
        let effect = "INSERT INTO effects (job, session, assignment) VALUES ($1, $2, $3)";
        transaction.execute(effect, &[&id, &session, &assignment]).await?;
    }
    Ok(transaction.commit().await?)
}

/// The kinds of job that this example knows.
async fn act(kind: &str, attempts: i32) -> Result<(), String> {
    tokio::time::sleep(Duration::from_millis(30)).await;
    match kind {
        "ok" => Ok(()),
        "flaky" if attempts > 0 => Ok(()),
        "flaky" => Err("not the first time".to_owned()),
        kind => Err(format!("{kind} cannot be done")),
    }
}
