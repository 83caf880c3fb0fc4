//! What `tenure schema` prints is enough: a user with these rights only takes part in elections and raises fences, and
//! people can see who leads.

use std::time::Duration;

use crate::fence_kit::{Client, LONG, leader, soon};
use crate::mysql_kit::run_script;
use crate::server_kit::printed_schema;
use tenure::{Node, Tenure};
use tenure_torture::servers::{mysql, postgres, redis as redis_server};

fn wanted(store: &str, fence: bool) -> String {
    printed_schema(store, "elector", fence)
}

/// Two tenures, one after the other.
async fn elections(url: &str) -> (Node, Tenure) {
    let node = Node::builder(url).name("web-1").ttl(Duration::from_secs(5)).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    drop(soon(candidate.elected()).await.unwrap());
    let tenure = soon(candidate.elected()).await.unwrap();
    node.store().describe().await.unwrap();
    (node, tenure)
}

#[tokio::test]
async fn postgres_rights_are_enough_for_elections_and_fences() {
    let server = postgres::Postgres::start(&["shared_buffers=16MB"]);
    let mut admin = <tokio_postgres::Client as Client>::connect(&server.admin_url()).await;
    let setup = [
        "CREATE ROLE elector LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;",
        &wanted("postgres", false),
        &wanted("postgres", true),
        // It may be run again.
        &wanted("postgres", false),
        &wanted("postgres", true),
    ];
    for sql in setup {
        admin.run(sql).await.unwrap();
    }
    let url = server.url("elector", "postgres");
    let (node, tenure) = elections(&url).await;
    let mut client = <tokio_postgres::Client as Client>::connect(&url).await;
    let shown =
        "SELECT token FROM tenure_leaders WHERE role = 'scheduler' AND node = 'web-1' AND since <= now()";
    assert_eq!(client.number(shown).await.cast_unsigned(), tenure.token().get());
    let mut tx = client.transaction().await.unwrap();
    tenure.fence(&mut tx, "ledger").await.unwrap();
    tx.commit().await.unwrap();
    assert!(client.run("DELETE FROM tenure_fence").await.is_err(), "no more rights than these");
    drop(tenure);
    soon(node.stop()).await;
}

#[tokio::test]
async fn mysql_rights_are_enough_for_elections_and_fences() {
    let server = mysql::Mysql::start(&[]);
    run_script(&server, "CREATE USER elector@'%' IDENTIFIED BY 'hunter2';");
    // It may be run again.
    for _ in 0..2 {
        run_script(&server, &wanted("mysql", false));
        run_script(&server, &wanted("mysql", true));
    }
    let url = server.url("elector");
    let (node, tenure) = elections(&url).await;
    let mut client = <mysql_async::Conn as Client>::connect(&url).await;
    let shown = "SELECT token FROM tenure_leaders WHERE role = 'scheduler' AND node = 'web-1'";
    assert_eq!(client.number(shown).await.cast_unsigned(), tenure.token().get());
    let mut tx = client.begin().await;
    tenure.fence(&mut tx, "ledger").await.unwrap();
    tx.commit().await.unwrap();
    assert!(client.run("DELETE FROM tenure_fence").await.is_err(), "no more rights than these");
    drop(tenure);
    soon(node.stop()).await;
}

#[tokio::test]
async fn redis_rights_are_enough_for_elections_and_fences() {
    let server = redis_server::durable();
    let texts = [wanted("redis", false), wanted("redis", true)].concat();
    for line in texts.lines().filter(|line| line.starts_with("ACL")) {
        redis_server::command(server.address(), &line.split(' ').collect::<Vec<_>>());
    }
    let url = format!("redis://elector:PASSWORD@{}/0", server.address());
    let (node, tenure) = elections(&url).await;
    let description = node.store().describe().await.unwrap();
    assert_eq!(description.class, tenure::Class::B, "{description:?}");

    let client = redis::Client::open(url).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let nothing = redis::pipe().to_owned();
    soon(tenure.fence_redis::<redis::Value>(&mut redis, "ledger", &nothing)).await.unwrap();
    let refused: Result<String, _> = redis::cmd("GET").arg("else").query_async(&mut redis).await;
    assert!(refused.is_err(), "no more rights than these");

    let show = redis::cmd("EVAL")
        .arg(shown_script(&texts))
        .arg(1)
        .arg("tenure:{default}:0:cluster")
        .query_async::<Vec<String>>(&mut redis)
        .await
        .unwrap();
    let line = format!("scheduler web-1 {} ", tenure.token().get());
    assert!(show.len() == 1 && show[0].starts_with(&line), "{show:?}");
    drop(tenure);
    soon(node.stop()).await;
}

/// The script between the quotes, as a person copies it.
fn shown_script(text: &str) -> String {
    let shown = text.split('\'').nth(1).expect("it is quoted");
    assert!(text.contains("' 1 'tenure:{default}:0:cluster'"), "{text}");
    shown.to_owned()
}

#[tokio::test]
async fn sqlite_fences_work_in_any_file() {
    let mut file = rusqlite::Connection::open_in_memory().unwrap();
    file.execute_batch(&wanted("sqlite", true)).unwrap();
    file.execute_batch(&wanted("sqlite", true)).unwrap();
    let lead = leader("scheduler", 1, LONG).await.tenure;
    let mut tx = file.transaction().unwrap();
    lead.fence_blocking(&mut tx, "ledger").unwrap();
    tx.commit().unwrap();
    let store = rusqlite::Connection::open_in_memory().unwrap();
    store.execute_batch(&wanted("sqlite", false)).unwrap();
}
