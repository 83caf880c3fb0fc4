//! Endpoints that are wrong: each is found out before anything is written on it.

use crate::fake::{Fake, Flaw};
use crate::server_kit::{key, name, put};
use tenure::store::{Class, Fate, Kind, Object, Outcome, Retry, Store};

#[tokio::test]
async fn an_endpoint_that_keeps_its_word_is_class_b_with_the_reason() {
    let fake = Fake::start(Flaw::None).await;
    let store = Object::open(&fake.url()).unwrap();
    let described = store.describe().await.unwrap();
    assert_eq!((described.class, described.notifies), (Class::B, false));
    assert!(
        described.remarks.len() == 1 && described.remarks[0].contains("not of the provider itself"),
        "{described:?}"
    );
    assert_eq!(fake.lengths("_examined"), Vec::<usize>::new(), "what was tried is cleared away");
}

#[tokio::test]
async fn an_endpoint_whose_conditional_put_is_broken_is_refused() {
    for (flaw, part) in [
        (Flaw::IgnoresConditions, "4 of 4 puts on one version were applied (round 0)"),
        (Flaw::IgnoresIfMatch, "4 of 4 puts on one version were applied (round 1)"),
        (Flaw::NotAtomic, "puts on one version were applied"),
        (Flaw::StaleReads, "a read did not show"),
        (Flaw::StaleLists, "a list did not show"),
        (Flaw::CreatesOnMatch, "where no object was"),
    ] {
        let fake = Fake::start(flaw).await;
        let store = Object::open(&fake.url()).unwrap();
        let error = store.describe().await.expect_err("it is broken");
        assert!(error.to_string().contains(part), "{flaw:?}: {error}");
        assert!(error.to_string().contains("cannot carry elections"), "{error}");
        assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
        assert_eq!(
            fake.lengths("_examined"),
            Vec::<usize>::new(),
            "{flaw:?}: what was tried is cleared away"
        );
    }
}

#[tokio::test]
async fn nothing_is_written_before_an_unknown_endpoint_was_tried() {
    let fake = Fake::start(Flaw::NotAtomic).await;
    let store = Object::open(&fake.url()).unwrap();
    let write = put(&key(Kind::Node, "n"), None, "x");
    let error = store.write(&name("space"), &[write]).await.expect_err("the endpoint is broken");
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
    assert_eq!(fake.lengths("space"), Vec::<usize>::new());
    let right = Fake::start(Flaw::None).await;
    let store = Object::open(&right.url()).unwrap();
    let outcomes = store.write(&name("space"), &[put(&key(Kind::Node, "n"), None, "x")]).await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Applied]));
}
