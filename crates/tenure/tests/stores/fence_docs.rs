//! What `docs/guides/fencing.md` tells people to type does what it says, on the real servers.

use crate::fence_kit::{Client, LONG, fresh, leader, lines};
use mysql_async::prelude::Queryable;
use tenure_torture::servers::{mysql, postgres, redis as redis_server};

const DOCUMENT: &str = include_str!("../../../../docs/guides/fencing.md");

/// The first block in that language below that heading.
fn block(heading: &str, language: &str) -> &'static str {
    let section = DOCUMENT.split(&format!("\n## {heading}\n")).nth(1).expect(heading);
    let block = section.split(&format!("```{language}\n")).nth(1).expect(heading);
    block.split("```").next().expect("it ends")
}

/// The same, typed by another leader.
fn as_leader(text: &str, role: &str, token: u64) -> String {
    assert!(text.contains("17") && text.contains("'scheduler'"), "{text}");
    text.replace("'scheduler'", &format!("'{role}'")).replace("17", &token.to_string())
}

#[tokio::test]
async fn the_sql_for_postgres() {
    type C = tokio_postgres::Client;
    let server = postgres::Postgres::start(&["shared_buffers=16MB"]);
    let url = server.admin_url();
    fresh::<C>(&url).await;
    let sql = block("PostgreSQL", "sql");
    for (role, token, passes) in [
        ("scheduler", 17, true),
        ("scheduler", 17, true),
        ("scheduler", 18, true),
        ("scheduler", 17, false),
        ("janitor", 19, false),
    ] {
        let mut client = <C as Client>::connect(&url).await;
        let ran = client.run(&as_leader(sql, role, token)).await;
        assert_eq!(ran.is_ok(), passes, "{role} {token}: {ran:?}");
        // A writer that goes on nevertheless commits nothing.
        let _ = client.run("INSERT INTO ledger VALUES ('stale')").await;
        let _ = client.run("COMMIT").await;
    }
    assert_eq!(lines::<C>(&url).await, 3 + 3, "three leaders' writes, and what each typed afterwards");
}

#[test]
fn a_fence_raised_after_a_savepoint_is_undone_with_it() {
    let file = rusqlite::Connection::open_in_memory().unwrap();
    file.execute_batch(tenure::fence::Dialect::Sqlite.ddl()).unwrap();
    file.execute_batch("CREATE TABLE ledger (line TEXT)").unwrap();
    let body = block("SQLite", "sql").replace("BEGIN IMMEDIATE;", "").replace("COMMIT;", "");
    let typed = |token| as_leader(&body, "scheduler", token);
    let tokens =
        || file.query_row("SELECT count(*) FROM tenure_fence", [], |row| row.get::<_, i64>(0)).unwrap();
    file.execute_batch(&format!("BEGIN; SAVEPOINT s; {} ROLLBACK TO s; COMMIT", typed(18))).unwrap();
    assert_eq!(tokens(), 0, "a lower token would pass now");
    file.execute_batch(&format!("BEGIN; {} SAVEPOINT s; ROLLBACK TO s; COMMIT", typed(18))).unwrap();
    assert_eq!(tokens(), 1);
    assert!(file.execute_batch(&typed(17)).is_err());
}

#[tokio::test]
async fn the_sql_for_mysql() {
    type C = mysql_async::Conn;
    let server = mysql::Mysql::start(&[]);
    let url = server.admin_url();
    fresh::<C>(&url).await;
    let sql = block("MySQL and MariaDB", "sql");
    for (role, token, passes) in [
        ("scheduler", 17, 1),
        ("scheduler", 17, 1),
        ("scheduler", 18, 1),
        ("scheduler", 17, 0),
        ("janitor", 19, 0),
    ] {
        let mut client = <C as Client>::connect(&url).await;
        let typed = as_leader(sql, role, token);
        for statement in typed.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            if statement.contains("AS passed") {
                let passed: i64 = client.query_first(statement).await.unwrap().unwrap();
                assert_eq!(passed, passes, "{role} {token}");
                if passed == 0 {
                    client.query_drop("ROLLBACK").await.unwrap();
                    break;
                }
            } else {
                client.query_drop(statement).await.unwrap();
            }
        }
    }
    assert_eq!(lines::<C>(&url).await, 3);
}

#[test]
fn the_sql_for_sqlite() {
    let file = rusqlite::Connection::open_in_memory().unwrap();
    file.execute_batch(tenure::fence::Dialect::Sqlite.ddl()).unwrap();
    file.execute_batch("CREATE TABLE ledger (line TEXT)").unwrap();
    let sql = block("SQLite", "sql");
    for (role, token, passes) in [
        ("scheduler", 17, true),
        ("scheduler", 17, true),
        ("scheduler", 18, true),
        ("scheduler", 17, false),
        ("janitor", 19, false),
    ] {
        let ran = file.execute_batch(&as_leader(sql, role, token));
        assert_eq!(ran.is_ok(), passes, "{role} {token}: {ran:?}");
        if ran.is_err() {
            file.execute_batch("ROLLBACK").unwrap();
        }
    }
    let count: i64 = file.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 3);
}

#[tokio::test]
async fn the_lua_for_redis() {
    let server = redis_server::durable();
    let client = redis::Client::open(format!("redis://{}/0", server.address())).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let big = 1_763_230_000_123_457_u64;
    for (role, token, passes) in [
        ("scheduler", 17, true),
        ("scheduler", 17, true),
        ("scheduler", big, true),
        ("scheduler", big - 1, false),
        ("janitor", big + 1, false),
        ("scheduler", big + 1, true),
    ] {
        let mut call = redis::cmd("EVAL");
        call.arg(block("Redis", "lua")).arg(2).arg("tenure_fence:{ledger}").arg("{ledger}:last");
        let ran: Result<String, _> = call.arg(role).arg(token).arg(token).query_async(&mut redis).await;
        assert_eq!(ran.is_ok(), passes, "{role} {token}: {ran:?}");
    }
    let last: u64 = redis::cmd("GET").arg("{ledger}:last").query_async(&mut redis).await.unwrap();
    assert_eq!(last, big + 1);
}

/// The Rust of the document is this function.
async fn transfer(
    client: &mut tokio_postgres::Client,
    lead: &tenure::Lead,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut transaction = client.transaction().await?;
    lead.fence(&mut transaction, "ledger").await?; // refused: `?` drops the transaction, which rolls back
    transaction.execute("INSERT INTO ledger VALUES ('what a leader writes')", &[]).await?;
    transaction.commit().await?;
    Ok(())
}

#[tokio::test]
async fn the_rust_for_tokio_postgres() {
    let this = include_str!("fence_docs.rs");
    for line in block("Rust", "rust").lines().map(str::trim).filter(|line| !line.is_empty()) {
        assert!(this.contains(line), "not what is tested: {line}");
    }
    let server = postgres::Postgres::start(&["shared_buffers=16MB"]);
    let url = server.admin_url();
    fresh::<tokio_postgres::Client>(&url).await;
    let (old, new) = (leader("scheduler", 1, LONG).await.tenure, leader("scheduler", 2, LONG).await.tenure);
    let mut client = <tokio_postgres::Client as Client>::connect(&url).await;
    transfer(&mut client, &old).await.unwrap();
    transfer(&mut client, &new).await.unwrap();
    assert!(transfer(&mut client, &old).await.is_err());
    assert_eq!(lines::<tokio_postgres::Client>(&url).await, 2);
}

/// `docs/guides/migrate.md` tells how to see the holders of a table of locks; the table is as the old designs make it.
const MIGRATION: &str = include_str!("../../../../docs/guides/migrate.md");
const LOCKS: &str = "CREATE TABLE locks (lock_key VARCHAR(255) PRIMARY KEY, owner_id VARCHAR(255) NOT NULL, \
                     expires_at TIMESTAMP NOT NULL)";

fn holders_query() -> &'static str {
    let block = MIGRATION.split("```sql\n").nth(1).expect("the statement is there");
    block.split("```").next().expect("it ends").trim().trim_end_matches(';')
}

#[tokio::test]
async fn the_holders_of_a_table_of_locks_are_seen_until_they_expire() {
    let rows = |valid: &str, expired: &str| {
        format!("INSERT INTO locks VALUES ('job', 'old-1', {valid}), ('report', 'old-2', {expired})")
    };
    let server = postgres::Postgres::start(&["shared_buffers=16MB"]);
    let client = <tokio_postgres::Client as Client>::connect(&server.admin_url()).await;
    let filled = rows("NOW() + INTERVAL '1 hour'", "NOW() - INTERVAL '1 second'");
    client.batch_execute(&format!("{LOCKS}; {filled}")).await.unwrap();
    let found = client.query(holders_query(), &[]).await.unwrap();
    let owners: Vec<String> = found.iter().map(|row| row.get("owner_id")).collect();
    assert_eq!(owners, ["old-1"]);

    let server = mysql::Mysql::start(&[]);
    let mut client = <mysql_async::Conn as Client>::connect(&server.admin_url()).await;
    client.query_drop(LOCKS).await.unwrap();
    client.query_drop(rows("NOW() + INTERVAL 1 HOUR", "NOW() - INTERVAL 1 SECOND")).await.unwrap();
    let found: Vec<mysql_async::Row> = client.query(holders_query()).await.unwrap();
    let owners: Vec<String> = found.iter().map(|row| row.get("owner_id").unwrap()).collect();
    assert_eq!(owners, ["old-1"]);
}
