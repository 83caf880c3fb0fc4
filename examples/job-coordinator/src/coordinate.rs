//! What the leader does: recover, give up on the hopeless, assign. Each round is one transaction, fenced by the token.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::Operator;
use tenure::operator::NodeState;
use tenure::work::WorkerContext;
use tokio_postgres::{Client, Transaction};

use crate::database::{self, Fault};

/// What the leader's transactions are fenced by: one row, which only a later leader raises.
pub(crate) const FENCE: &str = "jobs";
/// A job that failed so often is hopeless.
const ATTEMPTS: i32 = 3;
/// So many jobs are assigned to one node at a time.
const EACH: i64 = 4;
/// How often the leader looks.
const ROUND: Duration = Duration::from_millis(100);

/// Round after round, until the work is told to stop.
pub(crate) async fn run(url: &str, operator: &Operator, scope: &WorkerContext) -> Result<(), Fault> {
    let mut client = database::connect(url).await?;
    loop {
        round(&mut client, operator, scope).await?;
        tokio::select! {
            () = scope.stopping() => return Ok(()),
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

async fn round(client: &mut Client, operator: &Operator, scope: &WorkerContext) -> Result<(), Fault> {
    let (live, present) = sessions(operator).await?;
    let mut transaction = client.transaction().await?;
    scope.lead().fence(&mut transaction, FENCE).await?;
    recover(&transaction, &present).await?;
    bury(&transaction, scope).await?;
    assign(&transaction, &live, scope).await?;
    Ok(transaction.commit().await?)
}

/// The sessions of nodes that are alive, and of those that may still be.
async fn sessions(operator: &Operator) -> Result<(Vec<String>, BTreeSet<String>), Fault> {
    let snapshot = operator.snapshot().await?;
    let mut live = Vec::new();
    let mut present = BTreeSet::new();
    for node in &snapshot.nodes {
        if !node.state.is_over() {
            present.insert(node.session.to_string());
        }
        if node.state == NodeState::Live {
            live.push(node.session.to_string());
        }
    }
    Ok((live, present))
}

/// What was assigned to a session that is over waits again. The node may be frozen, and wake: it can mark as done only
/// what is still assigned to it. A row that a transaction holds at this moment is left for the next round.
async fn recover(transaction: &Transaction<'_>, present: &BTreeSet<String>) -> Result<(), Fault> {
    let present: Vec<&String> = present.iter().collect();
    transaction
        .execute(
            "WITH left_over AS (
                 SELECT id FROM jobs WHERE state = 'assigned' AND NOT (session = ANY ($1)) FOR UPDATE SKIP LOCKED)
             UPDATE jobs SET state = 'waiting', session = NULL, assignment = NULL, run_at = now()
             FROM left_over WHERE jobs.id = left_over.id",
            &[&present],
        )
        .await?;
    Ok(())
}

/// What failed too often is moved to the dead letters.
async fn bury(transaction: &Transaction<'_>, scope: &WorkerContext) -> Result<(), Fault> {
    transaction
        .execute(
            "WITH hopeless AS (DELETE FROM jobs WHERE state = 'waiting' AND attempts >= $1 RETURNING *)
             INSERT INTO dead_letters (id, kind, payload, attempts, error, token)
             SELECT id, kind, payload, attempts, error, $2 FROM hopeless",
            &[&ATTEMPTS, &i64::try_from(scope.token().get())?],
        )
        .await?;
    Ok(())
}

/// What waits, and is due, goes to those alive, in turn, each up to its share.
async fn assign(transaction: &Transaction<'_>, live: &[String], scope: &WorkerContext) -> Result<(), Fault> {
    let token = i64::try_from(scope.token().get())?;
    for session in live {
        transaction
            .execute(
                "WITH due AS (
                     SELECT id FROM jobs WHERE state = 'waiting' AND run_at <= now() ORDER BY run_at, id
                     LIMIT greatest(0, $3 - (SELECT count(*) FROM jobs WHERE state = 'assigned' AND session = $1))
                     FOR UPDATE SKIP LOCKED),
                 made AS (INSERT INTO assignments (job, session, token) SELECT id, $1, $2 FROM due RETURNING id, job)
                 UPDATE jobs SET state = 'assigned', session = $1, assignment = made.id
                 FROM made WHERE jobs.id = made.job",
                &[session, &token, &EACH],
            )
            .await?;
    }
    Ok(())
}
