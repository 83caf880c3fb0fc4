//! What a fence must do, on every driver.

use std::time::Duration;

use tenure::FenceError;

use super::{Client, LONG, fresh, leader, lines, soon, until, write};

/// Equal passes, newer passes, older is refused, and what it wrote is not committed.
pub async fn a_deposed_leader_cannot_commit<C: Client>(url: &str) {
    fresh::<C>(url).await;
    let (old, new) = (leader("scheduler", 1, LONG).await.tenure, leader("scheduler", 2, LONG).await.tenure);
    let mut client = C::connect(url).await;
    for lead in [&old, &old, &new, &new] {
        let mut tx = client.begin().await;
        lead.fence(&mut tx, "ledger").await.unwrap();
        write(&mut tx, "good").await.unwrap();
        C::commit(tx).await.unwrap();
    }
    let mut tx = client.begin().await;
    let refused = old.fence(&mut tx, "ledger").await.unwrap_err();
    let expected = matches!(&refused, FenceError::Fenced { resource, token, newer } if resource == "ledger" && (token.get(), newer.get()) == (1, 2));
    assert!(expected, "{refused}");
    C::rollback(tx).await;
    assert_eq!(lines::<C>(url).await, 4);
    // Another resource knows nothing of it.
    let mut tx = client.begin().await;
    old.fence(&mut tx, "archive").await.unwrap();
    C::commit(tx).await.unwrap();
}

/// PostgreSQL keeps even those from committing who do not look at errors.
pub async fn a_writer_that_ignores_the_refusal_cannot_commit_either<C: Client>(url: &str) {
    fresh::<C>(url).await;
    let (old, new) = (leader("scheduler", 1, LONG).await.tenure, leader("scheduler", 2, LONG).await.tenure);
    let mut client = C::connect(url).await;
    let mut tx = client.begin().await;
    new.fence(&mut tx, "ledger").await.unwrap();
    C::commit(tx).await.unwrap();
    let mut tx = client.begin().await;
    write(&mut tx, "before").await.unwrap();
    assert!(old.fence(&mut tx, "ledger").await.is_err());
    let _ = write(&mut tx, "after").await;
    let _ = C::commit(tx).await;
    assert_eq!(lines::<C>(url).await, 0);
}

/// A raise that is rolled back never was; another role is refused; so is a tenure that is over, and a missing table is
/// explained.
pub async fn the_rest_is_refused_in_plain_words<C: Client>(url: &str) {
    fresh::<C>(url).await;
    let (old, new) = (leader("scheduler", 1, LONG).await.tenure, leader("scheduler", 2, LONG).await.tenure);
    let other = leader("janitor", 3, LONG).await;
    let mut client = C::connect(url).await;
    let mut tx = client.begin().await;
    new.fence(&mut tx, "ledger").await.unwrap();
    C::rollback(tx).await;
    let mut tx = client.begin().await;
    old.fence(&mut tx, "ledger").await.unwrap();
    C::commit(tx).await.unwrap();

    let mut tx = client.begin().await;
    let refused = other.tenure.fence(&mut tx, "ledger").await.unwrap_err();
    assert!(matches!(&refused, FenceError::OtherRole { owner, .. } if owner == "scheduler"), "{refused}");
    C::rollback(tx).await;

    tenure::testing::force_loss(&other.node);
    soon(other.tenure.cancelled()).await;
    let mut tx = client.begin().await;
    let over = other.tenure.fence(&mut tx, "attic").await.unwrap_err();
    assert!(matches!(over, FenceError::Over { .. }), "{over}");
    C::rollback(tx).await;
    assert_eq!(client.number("SELECT count(*) FROM tenure_fence").await, 1, "it was refused here, not there");

    client.run("DROP TABLE tenure_fence").await.unwrap();
    let mut tx = client.begin().await;
    let missing = new.fence(&mut tx, "ledger").await.unwrap_err().to_string();
    assert!(missing.contains("fence::create_table"), "{missing}");
    C::rollback(tx).await;
}

/// A writer that comes while the other's transaction is open waits for it; then the newer passes and sees what the older
/// did, and the older fails. On every isolation level.
pub async fn two_at_once_come_one_after_the_other<C: Client>(url: &str) {
    let (old, new) = (leader("scheduler", 1, LONG).await.tenure, leader("scheduler", 2, LONG).await.tenure);
    let (mut a, mut b, mut watch) = (C::connect(url).await, C::connect(url).await, C::connect(url).await);
    for level in C::LEVELS {
        fresh::<C>(url).await;
        a.isolate(level).await;
        b.isolate(level).await;
        // The old one is there first.
        let mut first = a.begin().await;
        old.fence(&mut first, "ledger").await.unwrap();
        write(&mut first, "old").await.unwrap();
        let mut second = b.begin().await;
        let finish = async {
            until(async || watch.waiting().await > 0).await;
            C::commit(first).await.unwrap();
        };
        let (raised, ()) = soon(async { tokio::join!(new.fence(&mut second, "ledger"), finish) }).await;
        // On the stricter levels it may have to begin again, because its snapshot is older.
        match raised {
            Ok(()) => C::commit(second).await.unwrap(),
            Err(FenceError::Database { .. }) => {
                C::rollback(second).await;
                let mut again = b.begin().await;
                new.fence(&mut again, "ledger").await.unwrap();
                C::commit(again).await.unwrap();
            }
            Err(other) => panic!("{level}: {other}"),
        }
        assert_eq!(lines::<C>(url).await, 1, "{level}");

        // The new one is there first.
        let mut first = a.begin().await;
        new.fence(&mut first, "ledger").await.unwrap();
        let mut second = b.begin().await;
        let finish = async {
            until(async || watch.waiting().await > 0).await;
            C::commit(first).await.unwrap();
        };
        let (raised, ()) = soon(async { tokio::join!(old.fence(&mut second, "ledger"), finish) }).await;
        let refused = raised.expect_err(level);
        assert!(
            matches!(refused, FenceError::Fenced { .. } | FenceError::Database { .. }),
            "{level}: {refused}"
        );
        C::rollback(second).await;
    }
}

/// A leader that stops in the middle of a transaction does not keep its successor waiting: the server ends the
/// transaction when the tenure's time is over, and it cannot be committed. On MySQL the successor is told that the fence is held,
/// until the connection of the other one ends.
pub async fn a_leader_that_stops_halfway_is_ended_by_the_server<C: Client>(url: &str) {
    fresh::<C>(url).await;
    let new = leader("scheduler", 2, LONG).await.tenure;
    let (mut a, mut b) = (C::connect(url).await, C::connect(url).await);
    let (_old, mut frozen) = loop {
        let (old, mut tx) = (leader("scheduler", 1, Duration::from_secs(2)).await, a.begin().await);
        match old.tenure.fence(&mut tx, "ledger").await {
            Ok(()) => break (old, tx),
            // The machine is busy.
            Err(FenceError::Over { .. }) => C::rollback(tx).await,
            Err(other) => panic!("{other}"),
        }
    };
    let _ = write(&mut frozen, "old").await;
    if let Some(oldest) = C::oldest() {
        let mut tx = b.begin().await;
        let held = soon(new.fence(&mut tx, "ledger")).await.unwrap_err();
        assert!(matches!(held, FenceError::Database { .. }), "{held}");
        C::rollback(tx).await;
        let mut admin = C::connect(url).await;
        let connection = admin.number(oldest).await;
        admin.run(&format!("KILL {connection}")).await.unwrap();
    }
    let mut tx = b.begin().await;
    soon(new.fence(&mut tx, "ledger")).await.unwrap();
    write(&mut tx, "new").await.unwrap();
    C::commit(tx).await.unwrap();
    assert!(C::commit(frozen).await.is_err(), "it was ended");
    assert_eq!(lines::<C>(url).await, 1);
}
