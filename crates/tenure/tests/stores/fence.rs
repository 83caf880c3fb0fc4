//! Fences on real databases: a former leader cannot commit, through every driver.

use crate::fence_kit::{Client, LONG, clauses, leader, soon};
use tenure::fence::Dialect;
use tenure::{FenceError, Token};
use tenure_torture::servers::mysql::Mysql;
use tenure_torture::servers::postgres::Postgres;

/// One server for all clauses of one driver, one after the other.
async fn keeps_every_clause<C: Client>(url: &str) {
    clauses::a_deposed_leader_cannot_commit::<C>(url).await;
    clauses::the_rest_is_refused_in_plain_words::<C>(url).await;
    clauses::two_at_once_come_one_after_the_other::<C>(url).await;
    clauses::a_leader_that_stops_halfway_is_ended_by_the_server::<C>(url).await;
}

#[tokio::test]
async fn tokio_postgres_keeps_every_clause() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    keeps_every_clause::<tokio_postgres::Client>(&server.admin_url()).await;
    clauses::a_writer_that_ignores_the_refusal_cannot_commit_either::<tokio_postgres::Client>(
        &server.admin_url(),
    )
    .await;
}

#[tokio::test]
async fn sqlx_keeps_every_clause_on_postgres() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    keeps_every_clause::<sqlx::PgConnection>(&server.admin_url()).await;
    clauses::a_writer_that_ignores_the_refusal_cannot_commit_either::<sqlx::PgConnection>(
        &server.admin_url(),
    )
    .await;
}

#[tokio::test]
async fn mysql_async_keeps_every_clause() {
    let server = Mysql::start(&[]);
    keeps_every_clause::<mysql_async::Conn>(&server.admin_url()).await;
}

#[tokio::test]
async fn sqlx_keeps_every_clause_on_mysql() {
    let server = Mysql::start(&[]);
    keeps_every_clause::<sqlx::MySqlConnection>(&server.admin_url()).await;
}

/// Limits of the user's own stay if they are shorter, and all of them are gone with the transaction.
#[tokio::test]
async fn postgres_limits_last_as_long_as_the_transaction() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    let lead = leader("scheduler", 1, LONG).await.tenure;
    crate::fence_kit::fresh::<tokio_postgres::Client>(&server.admin_url()).await;
    let mut client = <tokio_postgres::Client as Client>::connect(&server.admin_url()).await;
    client.run("SET lock_timeout = '250ms'; SET statement_timeout = '2h'").await.unwrap();
    let shown = "SELECT setting::bigint FROM pg_settings WHERE name = ANY($1) ORDER BY name";
    let names = vec!["idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"];
    let read = async |tx: &tokio_postgres::Transaction<'_>| -> Vec<i64> {
        tx.query(shown, &[&names]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let mut tx = client.transaction().await.unwrap();
    lead.fence(&mut tx, "ledger").await.unwrap();
    let [idle, lock, statement] = read(&tx).await[..] else { panic!("three limits") };
    let most = i64::try_from(LONG.as_millis()).unwrap();
    assert!(
        (1..=most).contains(&idle) && (1..=most).contains(&statement) && lock == 250,
        "{idle} {lock} {statement}"
    );
    tx.commit().await.unwrap();
    let tx = client.transaction().await.unwrap();
    assert_eq!(read(&tx).await, [0, 250, 7_200_000]);
}

/// Futures can be moved to other threads where the driver's transactions can.
#[test]
fn futures_can_be_spawned() {
    fn is_send<T: Send>(_: T) {}
    #[allow(dead_code)]
    fn all(
        lead: &tenure::Lead,
        a: &mut tokio_postgres::Transaction<'_>,
        b: &mut sqlx::Transaction<'_, sqlx::Postgres>,
        c: &mut sqlx::Transaction<'_, sqlx::MySql>,
        d: &mut mysql_async::Transaction<'_>,
    ) {
        is_send(lead.fence(a, "x"));
        is_send(lead.fence(b, "x"));
        is_send(lead.fence(c, "x"));
        is_send(lead.fence(d, "x"));
    }
}

#[tokio::test]
async fn sqlite_lets_writers_in_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let open = || rusqlite::Connection::open(dir.path().join("app.db")).unwrap();
    let (mut a, mut b) = (open(), open());
    a.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE ledger (line TEXT)").unwrap();
    a.execute_batch(Dialect::Sqlite.ddl()).unwrap();
    let (old, new) = (leader("scheduler", 1, LONG).await.tenure, leader("scheduler", 2, LONG).await.tenure);
    let other = leader("janitor", 3, LONG).await.tenure;

    // The old one's transaction is open; the new one waits for it in a thread of its own.
    let mut first = a.transaction().unwrap();
    old.fence(&mut first, "ledger").await.unwrap();
    first.execute_batch("INSERT INTO ledger VALUES ('old')").unwrap();
    let lead = new.lead();
    let waits = std::thread::spawn(move || {
        let mut tx = b.transaction().unwrap();
        lead.fence_blocking(&mut tx, "ledger").unwrap();
        let seen: i64 = tx.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0)).unwrap();
        tx.commit().unwrap();
        let patience: i64 = b.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap();
        (seen, patience)
    });
    first.commit().unwrap();
    assert_eq!(waits.join().unwrap(), (1, 5000), "it saw what was committed, and its own limit is back");

    let mut tx = a.transaction().unwrap();
    let refused = old.fence_blocking(&mut tx, "ledger").unwrap_err();
    assert!(
        matches!(refused, FenceError::Fenced { token, newer, .. } if (token.get(), newer.get()) == (1, 2)),
        "{refused}"
    );
    tx.rollback().unwrap();
    let mut tx = a.transaction().unwrap();
    new.fence_blocking(&mut tx, "ledger").unwrap();
    assert!(matches!(other.fence_blocking(&mut tx, "ledger"), Err(FenceError::OtherRole { .. })));
    tx.rollback().unwrap();
    // What was read before another writer wrote is too old to write on.
    let mut stale = a.transaction().unwrap();
    let _: i64 = stale.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0)).unwrap();
    open().execute_batch("INSERT INTO ledger VALUES ('another')").unwrap();
    assert!(matches!(new.fence_blocking(&mut stale, "ledger"), Err(FenceError::Database { .. })));
}

/// A writer that cannot get the lock in the time that is left gives up.
#[tokio::test]
async fn sqlite_waits_no_longer_than_the_tenure_lasts() {
    let dir = tempfile::tempdir().unwrap();
    let open = || rusqlite::Connection::open(dir.path().join("app.db")).unwrap();
    let (mut a, mut b) = (open(), open());
    a.execute_batch(Dialect::Sqlite.ddl()).unwrap();
    let (old, new) = (
        leader("scheduler", 1, LONG).await.tenure,
        leader("scheduler", 2, std::time::Duration::from_secs(1)).await.tenure,
    );
    b.busy_timeout(std::time::Duration::from_secs(3600)).unwrap();
    let mut stays = a.transaction().unwrap();
    old.fence(&mut stays, "ledger").await.unwrap();
    let lead = new.lead();
    let waits = tokio::task::spawn_blocking(move || {
        let mut tx = b.transaction().unwrap();
        lead.fence_blocking(&mut tx, "ledger").unwrap_err()
    });
    let gave_up = soon(waits).await.unwrap();
    assert!(matches!(gave_up, FenceError::Database { .. } | FenceError::Over { .. }), "{gave_up}");
}

#[tokio::test]
async fn a_redis_script_lets_only_the_newest_write() {
    let server = tenure_torture::servers::redis::durable();
    let client = redis::Client::open(format!("redis://{}/0", server.address())).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let (old, new) = (leader("scheduler", 1, LONG).await.tenure, leader("scheduler", 2, LONG).await.tenure);
    let other = leader("janitor", 3, LONG).await;
    let incr = redis::pipe().set("last", "x").incr("count", 1).get("missing").to_owned();
    for (lead, count) in [(&old, 1), (&old, 2), (&new, 3), (&new, 4)] {
        let answers: (String, i64, Option<String>) =
            lead.fence_redis(&mut redis, "ledger", &incr).await.unwrap();
        assert_eq!(answers, ("OK".to_owned(), count, None));
    }
    let refused = old.fence_redis::<redis::Value>(&mut redis, "ledger", &incr).await.unwrap_err();
    assert!(
        matches!(refused, FenceError::Fenced { token, newer, .. } if (token.get(), newer.get()) == (1, 2)),
        "{refused}"
    );
    let refused = other.tenure.fence_redis::<redis::Value>(&mut redis, "ledger", &incr).await.unwrap_err();
    assert!(matches!(refused, FenceError::OtherRole { .. }), "{refused}");
    tenure::testing::force_loss(&other.node);
    soon(other.tenure.cancelled()).await;
    let over = other.tenure.fence_redis::<redis::Value>(&mut redis, "attic", &incr).await.unwrap_err();
    assert!(matches!(over, FenceError::Over { .. }), "{over}");
    let count: i64 = redis::cmd("GET").arg("count").query_async(&mut redis).await.unwrap();
    assert_eq!(count, 4, "no other writer has written");

    // Tokens of stores that can forget begin at the wall clock: the last digit counts.
    let near = 1_763_230_000_123_457_u64;
    let set = redis::cmd("HSET")
        .arg("tenure_fence:{big}")
        .arg("role")
        .arg("scheduler")
        .arg("token")
        .arg(near)
        .to_owned();
    set.query_async::<i64>(&mut redis).await.unwrap();
    let refused = new.fence_redis::<redis::Value>(&mut redis, "big", &incr).await.unwrap_err();
    assert!(matches!(refused, FenceError::Fenced { newer, .. } if newer == Token::new(near)), "{refused}");
}
