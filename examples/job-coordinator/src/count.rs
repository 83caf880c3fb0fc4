//! What the leader counts by the clock: how many jobs there are of each state. A tick is started once, whichever node leads.

use std::time::Duration;

use tenure::schedule::{RunContext, Schedule, Task, TaskError, TaskSettings};

use crate::coordinate::FENCE;
use crate::database::{self, Fault};

/// How often.
const EVERY: Duration = Duration::from_secs(1);

/// The schedule of the leader.
pub(crate) fn schedule(url: &str) -> Result<Schedule, TaskError> {
    let url = url.to_owned();
    let count = move |run: RunContext| {
        let url = url.clone();
        async move { count(&url, &run).await }
    };
    Schedule::new().task(Task::new(TaskSettings::every("count-jobs", EVERY)?, count)?)
}

async fn count(url: &str, run: &RunContext) -> Result<(), Fault> {
    let lead = run.lead().ok_or("only a leader counts")?;
    let mut client = database::connect(url).await?;
    let mut transaction = client.transaction().await?;
    lead.fence(&mut transaction, FENCE).await?;
    transaction
        .execute(
            "WITH states AS (SELECT unnest(ARRAY['waiting', 'assigned', 'done', 'dead']) AS state),
                  there AS (SELECT state FROM jobs UNION ALL SELECT 'dead' FROM dead_letters)
             INSERT INTO job_counts (state, count, token)
             SELECT states.state, (SELECT count(*) FROM there WHERE there.state = states.state), $1 FROM states
             ON CONFLICT (state) DO UPDATE SET count = excluded.count, token = excluded.token, at = now()",
            &[&i64::try_from(run.token().get())?],
        )
        .await?;
    Ok(transaction.commit().await?)
}
