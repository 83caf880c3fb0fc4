//! A fence in a database of your own: a former leader cannot commit.
//!
//! Run with `cargo run -p tenure --features fence-rusqlite --example fence`.

use rusqlite::Connection;
use tenure::{FenceError, fence};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut database = Connection::open_in_memory()?;
    let mut setup = database.transaction()?;
    fence::create_table(&mut setup).await.map_err(|error| error.to_string())?;
    setup.execute_batch("CREATE TABLE ledger (line TEXT NOT NULL)")?;
    setup.commit()?;

    let node = tenure::testing::node("web-1").await;
    let candidate = node.candidate("bookkeeper").await?;
    let former = candidate.elected().await.expect("the node was not stopped").lead();
    let leader = candidate.elected().await.expect("the node was not stopped");

    let mut transaction = database.transaction()?;
    leader.fence(&mut transaction, "ledger").await?;
    transaction.execute("INSERT INTO ledger VALUES (?1)", ["under the newest token"])?;
    transaction.commit()?;

    let mut late = database.transaction()?;
    let refused = former.fence(&mut late, "ledger").await;
    assert!(matches!(refused, Err(FenceError::Over { .. } | FenceError::Fenced { .. })), "{refused:?}");
    late.rollback()?;
    println!("the former leader was refused");
    drop(leader);
    node.stop().await;
    Ok(())
}
