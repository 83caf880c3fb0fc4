//! Leaders and workers are killed and frozen; every job is done once, or ends among the dead letters, and tokens only rise.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_torture::servers::postgres::Postgres;
use tokio_postgres::{Client, NoTls};

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of the example. Dropping it kills it.
struct Member(Child);

impl Member {
    fn start(url: &str, name: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_job-coordinator"));
        command.env("DATABASE_URL", url).env("NODE", name).env("TTL_MS", "1000");
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Member {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
}

/// Waits until a query says so.
async fn until(client: &Client, query: &str, wanted: impl Fn(i64) -> bool) {
    let begun = Instant::now();
    loop {
        // The tables may not be there yet.
        if let Ok(row) = client.query_one(query, &[]).await
            && wanted(row.get(0))
        {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{query} does not come true");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The node that leads, as the registers say.
async fn leader(client: &Client) -> String {
    let begun = Instant::now();
    loop {
        let query = "SELECT (value::jsonb)->'holder'->>'node' FROM tenure_registers WHERE kind = 'role'";
        if let Ok(Some(row)) = client.query_opt(query, &[]).await
            && let Some(node) = row.get::<_, Option<String>>(0)
        {
            return node;
        }
        assert!(begun.elapsed() < PATIENCE, "no node leads");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn every_job_is_done_once_or_buried_whichever_node_is_killed() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    let url = server.admin_url();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut members: Vec<(String, Member)> =
        ["a", "b", "c"].map(|name| (name.to_owned(), Member::start(&url, name))).into();
    until(&client, "SELECT count(*) FROM tenure_fence", |count| count == 1).await;
    let (good, flaky, bad) = (90, 20, 5);
    for (kind, count) in [("ok", good), ("flaky", flaky), ("bad", bad)] {
        let insert = "INSERT INTO jobs (kind) SELECT $1 FROM generate_series(1, $2::bigint)";
        client.execute(insert, &[&kind, &i64::from(count)]).await.unwrap();
    }
    // In the middle of it the leader dies, then a node that does not lead, and then a node is frozen that wakes later.
    let mut frozen = None;
    for (leading, dies) in [(true, true), (false, true), (false, false)] {
        let done = number(&client, "SELECT count(*) FROM effects").await;
        until(&client, "SELECT count(*) FROM effects", |count| count >= done + 5).await;
        let leader = leader(&client).await;
        let victim = members.iter().position(|(name, _)| (*name == leader) == leading).unwrap();
        let (name, victim) = members.remove(victim);
        if dies {
            drop(victim);
        } else {
            victim.signal("-STOP");
            frozen = Some(victim);
        }
        members.push((name.clone(), Member::start(&url, &format!("{name}-again"))));
    }
    until(&client, "SELECT count(*) FROM jobs WHERE state <> 'done'", |open| open == 0).await;
    let woken = frozen.expect("a node was frozen");
    woken.signal("-CONT");
    members.push(("woken".to_owned(), woken));
    client.execute("INSERT INTO jobs (kind) SELECT 'ok' FROM generate_series(1, 10)", &[]).await.unwrap();
    let good = good + 10;
    until(&client, "SELECT count(*) FROM jobs WHERE state <> 'done'", |open| open == 0).await;
    assert_eq!(number(&client, "SELECT count(*) FROM jobs").await, i64::from(good + flaky));
    assert_eq!(number(&client, "SELECT count(*) FROM effects").await, i64::from(good + flaky));
    assert_eq!(number(&client, "SELECT count(DISTINCT job) FROM effects").await, i64::from(good + flaky));
    assert_eq!(number(&client, "SELECT count(*) FROM dead_letters WHERE kind = 'bad'").await, i64::from(bad));
    assert_eq!(number(&client, "SELECT count(*) FROM dead_letters").await, i64::from(bad));
    assert_eq!(number(&client, "SELECT min(attempts)::bigint FROM dead_letters").await, 3);
    let back = "SELECT count(*) FROM assignments a JOIN assignments b ON a.id < b.id AND a.token > b.token";
    assert_eq!(number(&client, back).await, 0, "tokens only rise");
    assert!(
        number(&client, "SELECT count(DISTINCT token) FROM assignments").await >= 2,
        "there was a fail-over"
    );
    let counted = "SELECT coalesce(sum(count)::bigint, 0) FROM job_counts WHERE state IN ('done', 'dead')";
    until(&client, counted, |count| count == i64::from(good + flaky + bad)).await;
    stops_cleanly(&client, members).await;
}

/// Told to stop they give up what they lead, and end well.
async fn stops_cleanly(client: &Client, members: Vec<(String, Member)>) {
    for (name, mut member) in members {
        member.signal("-TERM");
        assert!(member.0.wait().unwrap().success(), "{name}");
    }
    let live =
        "SELECT count(*) FROM tenure_registers WHERE kind = 'session' AND (value::jsonb)->>'state' = 'live'";
    assert_eq!(number(client, live).await, 0);
}

/// A frozen worker may hold the row of its job: that keeps no other job of a dead node waiting.
#[tokio::test]
async fn a_row_that_a_transaction_holds_holds_up_no_other() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    let url = server.admin_url();
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (watcher, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let gone = Member::start(&url, "gone");
    until(&watcher, "SELECT count(*) FROM tenure_fence", |count| count == 1).await;
    drop(gone);
    let insert =
        "INSERT INTO jobs (kind, state, session) SELECT 'ok', 'assigned', 'gone' FROM generate_series(1, 3)";
    client.execute(insert, &[]).await.unwrap();
    let held = client.transaction().await.unwrap();
    let row = held.query_one("SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE", &[]).await.unwrap();
    let member = Member::start(&url, "a");
    until(&watcher, "SELECT count(*) FROM effects", |done| done == 2).await;
    drop((row, held));
    until(&watcher, "SELECT count(*) FROM effects", |done| done == 3).await;
    drop(member);
}

/// The transaction of a former leader fails, whatever it wants to change.
#[tokio::test]
async fn a_former_leader_is_refused_by_the_fence() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    let url = server.admin_url();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let member = Member::start(&url, "a");
    until(&client, "SELECT count(*) FROM tenure_fence", |count| count == 1).await;
    // A node with a much higher token was here: this leader is a former one.
    client.execute("UPDATE tenure_fence SET token = 1000", &[]).await.unwrap();
    client.execute("INSERT INTO jobs (kind) VALUES ('ok')", &[]).await.unwrap();
    let token = "SELECT max(((value::jsonb)->>'token')::bigint) FROM tenure_registers WHERE kind = 'role'";
    until(&client, token, |token| token > 1).await;
    assert_eq!(number(&client, "SELECT count(*) FROM assignments").await, 0, "it was refused, and gave up");
    assert_eq!(number(&client, "SELECT token FROM tenure_fence").await, 1000);
    drop(member);
}
