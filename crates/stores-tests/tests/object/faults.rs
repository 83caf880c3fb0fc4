//! What object storage can do to those who use it: puts that meet, answers that are lost, requests that are refused, objects
//! that others put there, buckets that are gone; and what requests are made at all.

use std::time::Duration;

use crate::fake::{Fake, Flaw, Trick};
use crate::server_kit::{get, key, must, name, put, soon, version};
use tenure::store::{
    Epoch, Fate, Kind, Name, Object, Outcome, Query, Retry, Store, StoreError, Value, Version, Write,
};
use tenure::{Node, TimingSettings, Token};

fn space() -> Name {
    name("space")
}

async fn right() -> (Fake, Object) {
    let fake = Fake::start(Flaw::None).await;
    let store = Object::open(&fake.url()).unwrap();
    store.describe().await.unwrap();
    (fake, store)
}

async fn outcome(store: &Object, write: &Write) -> Outcome {
    store.write(&space(), std::slice::from_ref(write)).await.expect("it is open").remove(0)
}

fn failed(outcome: Outcome) -> StoreError {
    match outcome {
        Outcome::Failed(error) => error,
        other => panic!("it did not fail: {other:?}"),
    }
}

fn delete(key: &tenure::store::Key, expect: Version) -> Write {
    Write { key: key.clone(), expect: Some(expect), put: None, notify: true, requires_lock: false }
}

#[tokio::test]
async fn a_put_that_met_another_is_tried_again_and_one_that_lost_learns_what_is_there() {
    let (fake, store) = right().await;
    let node = key(Kind::Node, "n");
    fake.play(&[Trick::Conflict, Trick::Conflict]);
    let first = must(&store, &space(), put(&node, None, "first")).await;
    fake.play(&[Trick::Conflict]);
    let second = must(&store, &space(), put(&node, Some(version(&first)), "second")).await;
    let other = Object::open(&fake.url()).unwrap();
    let third = must(&other, &space(), put(&node, Some(version(&second)), "third")).await;
    fake.play(&[Trick::Conflict]);
    match outcome(&store, &put(&node, Some(version(&second)), "late")).await {
        Outcome::Conflict(Some(found)) => assert_eq!(found.version, version(&third)),
        other => panic!("{other:?}"),
    }
    fake.play(&[Trick::Conflict; 10]);
    let error = failed(outcome(&store, &put(&node, Some(version(&third)), "never")).await);
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Soon), "{error}");
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_next_try_tells() {
    let (fake, store) = right().await;
    let node = key(Kind::Node, "n");
    let first = must(&store, &space(), put(&node, None, "first")).await;
    let lost = put(&node, Some(version(&first)), "lost");
    fake.play(&[Trick::Swallow]);
    assert_eq!(failed(outcome(&store, &lost).await).fate(), Fate::Unknown);
    match outcome(&store, &put(&node, Some(version(&first)), "again")).await {
        Outcome::Conflict(Some(found)) => assert_eq!(found.version, version(&lost)),
        other => panic!("{other:?}"),
    }
    // Something between repeats a put, and its answer is "refused" although it was applied: what is there tells.
    let repeated = put(&node, Some(version(&lost)), "repeated");
    fake.play(&[Trick::Repeat]);
    match outcome(&store, &repeated).await {
        Outcome::Conflict(Some(found)) => assert_eq!(found.version, version(&repeated)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn too_many_requests_are_unknown_and_say_what_to_do() {
    let (fake, store) = right().await;
    let node = key(Kind::Node, "n");
    fake.play(&[Trick::SlowDown]);
    let error = failed(outcome(&store, &put(&node, None, "x")).await);
    assert_eq!((error.fate(), error.retry()), (Fate::Unknown, Retry::Soon));
    assert!(error.to_string().contains("raise --ttl"), "{error}");
    must(&store, &space(), put(&node, None, "x")).await;
}

#[tokio::test]
async fn what_is_deleted_is_an_empty_object_that_counts_as_absent_and_costs_no_read() {
    let (fake, store) = right().await;
    let node = key(Kind::Node, "n");
    let first = must(&store, &space(), put(&node, None, "first")).await;
    must(&store, &space(), delete(&node, version(&first))).await;
    assert_eq!(fake.lengths("/node/n"), [0]);
    assert!(get(&store, &space(), &node).await.is_none());
    let other = Object::open(&fake.url()).unwrap();
    let whole = Query { keys: Vec::new(), kinds: vec![(Epoch::new(5), Kind::Node)] };
    let before = fake.asked();
    assert!(other.read(&space(), &whole).await.unwrap().is_empty());
    assert_eq!(fake.asked().gets, before.gets, "a list shows what is empty");
    // Versions never match what was deleted; absence does, for one of many.
    assert!(matches!(
        outcome(&other, &put(&node, Some(version(&first)), "x")).await,
        Outcome::Conflict(None)
    ));
    assert!(matches!(outcome(&store, &delete(&node, version(&first))).await, Outcome::Conflict(None)));
    let (one, two) = (put(&node, None, "one"), put(&node, None, "two"));
    let (one, two) = tokio::join!(outcome(&store, &one), outcome(&other, &two));
    let applied = [&one, &two].into_iter().filter(|outcome| matches!(outcome, Outcome::Applied)).count();
    assert_eq!(applied, 1, "{one:?} {two:?}");
}

#[tokio::test]
async fn a_list_reads_only_what_has_changed() {
    let (fake, store) = right().await;
    let keys: Vec<_> = (0..20).map(|nth| key(Kind::Role, &format!("r{nth}"))).collect();
    let role = |key: &tenure::store::Key, expect, token| Write {
        put: Some((Version::new(u128::from(token) << 64 | 1), Value::of(&"x", Some(Token::new(token))))),
        ..put(key, expect, "")
    };
    let writes: Vec<_> = keys.iter().zip(1..).map(|(key, nth)| role(key, None, nth)).collect();
    assert!(
        store.write(&space(), &writes).await.unwrap().iter().all(|done| matches!(done, Outcome::Applied))
    );
    let reader = Object::open(&fake.url()).unwrap();
    // More than a few of a kind are listed, and read once.
    let named = Query { keys: keys.clone(), kinds: Vec::new() };
    let before = fake.asked();
    assert_eq!(reader.read(&space(), &named).await.unwrap().len(), 20);
    let first = fake.asked();
    assert_eq!((first.lists - before.lists, first.gets - before.gets), (1, 20));
    let changed = role(&keys[7], Some(version(&writes[7])), 99);
    must(&store, &space(), changed.clone()).await;
    let found = reader.read(&space(), &named).await.unwrap();
    let second = fake.asked();
    assert_eq!((second.lists - first.lists, second.gets - first.gets), (1, 1));
    let seven = found.iter().find(|entry| entry.key == keys[7]).expect("it is there");
    assert_eq!((found.len(), seven.version), (20, version(&changed)));
}

#[tokio::test]
async fn what_others_put_there_is_left_alone() {
    let (fake, store) = right().await;
    let node = key(Kind::Node, "n");
    must(&store, &space(), put(&node, None, "x")).await;
    fake.plant("tenure/space/5/node/strange", b"hello");
    fake.plant("tenure/space/5/node/deeper/n", b"hello");
    fake.plant("tenure/space/5/node/a b", b"hello");
    fake.plant("tenure/space/5/nodes/n", b"hello");
    let whole = Query { keys: Vec::new(), kinds: vec![(Epoch::new(5), Kind::Node)] };
    let mut found = store.read(&space(), &whole).await.unwrap();
    found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    let names: Vec<_> = found.iter().map(|entry| entry.key.name().into_owned()).collect();
    assert_eq!(names, ["n", "strange"]);
    assert_eq!(&*found[1].value.json, "", "it is there, and no record");
    let strange = key(Kind::Node, "strange");
    assert!(matches!(outcome(&store, &put(&strange, None, "x")).await, Outcome::Conflict(Some(_))));
}

/// What `tenure check` says of the requests of a node, against what three nodes at rest ask.
#[tokio::test]
async fn requests_at_rest_are_those_that_are_said() {
    let fake = Fake::start(Flaw::None).await;
    let beat = Duration::from_millis(200);
    let settings =
        TimingSettings { ttl: Some(Duration::from_secs(30)), beat: Some(beat), ..TimingSettings::default() };
    let mut nodes = Vec::new();
    for nth in 0..3 {
        let node =
            Node::builder(fake.url()).name(format!("n{nth}")).timing(settings.clone()).start().await.unwrap();
        let candidate = node.candidate("scheduler").await.unwrap();
        if nth == 0 {
            let _elected = soon(candidate.elected()).await.expect("it is alone");
            nodes.push((node, candidate, Some(_elected)));
        } else {
            nodes.push((node, candidate, None));
        }
    }
    let puts = |from: u64, count: u64| {
        let fake = fake.clone();
        async move {
            while fake.asked().puts < from + count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    soon(puts(fake.asked().puts, 15)).await;
    let before = fake.asked();
    soon(puts(before.puts, 75)).await;
    let after = fake.asked();
    let beats = (after.puts - before.puts) as f64;
    let (lists, gets) =
        ((after.lists - before.lists) as f64 / beats, (after.gets - before.gets) as f64 / beats);
    println!("for each beat: {lists:.2} lists, {gets:.2} reads");
    assert!((1.0..=1.4).contains(&lists), "{lists} lists for each beat");
    assert!((4.0..=6.0).contains(&gets), "{gets} reads for each beat");
}

#[tokio::test]
async fn nodes_that_name_no_ttl_get_a_longer_one_and_the_cost_is_said() {
    let url = "s3://bucket/x?region=eu-west-1";
    assert_eq!(tenure::store::default_ttl(url), Duration::from_secs(20));
    assert_eq!(tenure::store::default_ttl("sqlite:"), Duration::from_secs(5));
    let said = tenure::store::request_cost(url, Duration::from_secs(4)).expect("requests have a price");
    assert!(said.contains("a month"), "{said}");
    assert_eq!(tenure::store::request_cost("etcd://h", Duration::from_secs(4)), None);
    let (fake, _store) = right().await;
    let node = Node::builder(fake.url()).name("n").start().await.unwrap();
    let _candidate = node.candidate("scheduler").await.unwrap();
    let store = Object::open(&fake.url()).unwrap();
    let cluster = soon(async {
        loop {
            if let Some(found) = get(&store, &name("default"), &tenure::store::Key::Cluster).await {
                return found;
            }
        }
    })
    .await;
    assert!(cluster.value.json.contains("20000"), "{}", cluster.value.json);
}
