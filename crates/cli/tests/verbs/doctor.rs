//! `doctor`.

use tenure::store::{Key, Kind, Name, Outcome, Value, Version, Write};

use crate::kit::{Place, keys};

#[test]
fn a_healthy_store_is_called_so() {
    let place = Place::new();
    let _a = place.node("a", &["scheduler"]);
    place.until("scheduler", |role| role["leader"] == "a");
    let ran = place.run(&["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    for part in [
        "t.db",
        "SQLite",
        "file system",
        "B: one durable node",
        "rings",
        "heard after",
        "p50",
        "1 role, 1 node",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let found = place.json(&["doctor"]);
    assert_eq!(
        keys(&found),
        [
            "about",
            "class",
            "file_system",
            "healthy",
            "identity",
            "lease_clock",
            "namespace",
            "nodes",
            "problems",
            "promise",
            "read",
            "remarks",
            "ring_ms",
            "rings",
            "roles",
            "store",
            "witnesses_death",
            "witnesses_disconnect",
            "write",
        ]
    );
    assert_eq!((&found["class"], &found["healthy"]), (&"B".into(), &true.into()));
    assert_eq!(keys(&found["write"]), ["operations", "p50_ms", "p99_ms"]);
    assert_eq!(found["write"]["operations"], 200);
    assert!(found["ring_ms"].is_number(), "{found}");
}

#[test]
fn it_leaves_no_lock_behind_and_nothing_in_the_namespace() {
    let place = Place::new();
    assert_eq!(place.run(&["doctor"]).code, Some(0));
    assert_eq!(std::fs::read_dir(place.path().join("t.db-locks")).unwrap().count(), 0);
    assert_eq!(place.json(&["status"]), serde_json::json!({ "roles": [] }));
}

#[tokio::test]
async fn a_register_that_nobody_can_read_is_wrong() {
    let place = Place::new();
    place.vacant(&["scheduler"]);
    let (store, namespace, epoch) = place.registers().await;
    let key = Key::Named(epoch, Kind::Node, Name::new("odd").unwrap());
    let put = Some((Version(7), Value::of(&"from the future", None)));
    let write = Write { key, expect: None, put, ring: false, witnessed: false };
    assert!(matches!(store.write(&namespace, &[write]).await.unwrap()[0], Outcome::Applied));
    let ran = place.run(&["doctor"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("node/odd holds what this version cannot read"), "{}", ran.out);
    assert!(ran.err.contains("one thing is wrong"), "{}", ran.err);
}
