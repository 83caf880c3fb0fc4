//! `doctor`.

use tenure::store::{Key, Kind, Name, Outcome, Value, Version, Write};

use crate::kit::{TestDir, keys, ran};

#[test]
fn a_healthy_store_is_called_so() {
    let dir = TestDir::new();
    let _a = dir.node("a", &["scheduler"]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let ran = dir.run(&["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    for part in [
        "t.db",
        "SQLite",
        "file system",
        "B: one durable node",
        "notifies",
        "received after",
        "p50",
        "1 role, 1 node",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let found = dir.json(&["doctor"]);
    assert_eq!(
        keys(&found),
        [
            "about",
            "agent",
            "class",
            "connection_liveness_locks",
            "file_system",
            "healthy",
            "identity",
            "lease_clock",
            "longest_lease_ms",
            "namespace",
            "nodes",
            "notifies",
            "notify_ms",
            "problems",
            "process_liveness_locks",
            "promise",
            "read",
            "remarks",
            "roles",
            "store",
            "unreadable",
            "write",
        ]
    );
    assert_eq!((&found["class"], &found["healthy"]), (&"B".into(), &true.into()));
    assert_eq!(keys(&found["write"]), ["operations", "p50_ms", "p99_ms"]);
    assert_eq!(found["write"]["operations"], 200);
    assert!(found["notify_ms"].is_number(), "{found}");
}

#[test]
fn it_leaves_no_lock_behind_and_nothing_in_the_namespace() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&["doctor"]).code, Some(0));
    assert_eq!(std::fs::read_dir(dir.path().join("t.db-locks")).unwrap().count(), 0);
    assert_eq!(dir.json(&["status"]), serde_json::json!({ "roles": [], "seen_ms_ago": 0 }));
}

#[tokio::test]
async fn an_unreadable_register_is_wrong() {
    let dir = TestDir::new();
    dir.vacant(&["scheduler"]);
    let (store, namespace, epoch) = dir.registers().await;
    let key = Key::Named(epoch, Kind::Node, Name::new("odd").unwrap());
    let put = Some((Version::new(7), Value::of(&"from the future", None)));
    let write = Write { key, expect: None, put, notify: false, requires_lock: false };
    assert!(matches!(store.write(&namespace, &[write]).await.unwrap()[0], Outcome::Applied));
    let ran = dir.run(&["doctor"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("cannot read node/odd"), "{}", ran.out);
    assert!(ran.err.contains("1 problem found"), "{}", ran.err);
}

/// Replaces a register, whatever it holds; the token is what the store keeps beside it.
async fn poison(
    dir: &TestDir,
    key: &Key,
    token: Option<tenure::Token>,
    bend: impl Fn(&mut serde_json::Value),
) {
    let (store, namespace, _) = dir.registers().await;
    let query = tenure::store::Query { keys: vec![key.clone()], kinds: Vec::new() };
    let found = store.read(&namespace, &query).await.unwrap().remove(0);
    let mut json: serde_json::Value = found.value.parse().unwrap();
    bend(&mut json);
    let put = Some((Version::new(found.version.get() ^ 1), Value { token, json: json.to_string().into() }));
    let write =
        Write { key: key.clone(), expect: Some(found.version), put, notify: true, requires_lock: false };
    assert!(matches!(store.write(&namespace, &[write]).await.unwrap()[0], Outcome::Applied));
}

/// A session that cannot be read keeps its roles from every node, until an operator has it repaired.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_session_is_named_and_repaired() {
    let dir = TestDir::new();
    let a = dir.node_process("a", &["scheduler"], &[("ttl", "1000")]);
    dir.until("scheduler", |found| found["leader"] == "a");
    a.kill();
    let (_, _, epoch) = dir.registers().await;
    let session = dir.json(&["nodes"])["nodes"][0]["session"].as_str().unwrap().to_owned();
    poison(&dir, &Key::Session(epoch, session.parse().unwrap()), None, |json| json["ttl"] = u64::MAX.into())
        .await;
    let b = dir.node_process("b", &["scheduler"], &[("ttl", "1000")]);
    let doctor = dir.run(&["doctor"]);
    assert!(doctor.out.contains("`tenure repair` to see what can be"), "{}", doctor.out);
    let dry = dir.run(&["repair"]);
    assert_eq!(dry.code, Some(1), "{dry:?}");
    assert!(
        dry.out.contains(&format!("session/{session}")) && dry.err.contains("run `tenure repair --yes`"),
        "{dry:?}"
    );
    let done = dir.run(&["repair", "--yes", "--why", "a test"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    dir.until("scheduler", |found| found["leader"] == "b");
    assert!(dir.run(&["audit"]).out.contains("a test"));
    assert_eq!(dir.json(&["repair"])["poisoned"], serde_json::json!([]));
    b.stop();
}

/// A token at the end of its range: no node could lead the role any more. A new epoch mends it, and loses nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_at_the_end_of_its_range_is_repaired_by_a_new_epoch() {
    let dir = TestDir::new();
    let a = dir.node_process("a", &["scheduler", "other"], &[("ttl", "1000")]);
    let before = dir.until("other", |found| found["leader"] == "a")["token"].as_u64().unwrap();
    dir.until("scheduler", |found| found["leader"] == "a");
    assert_eq!(dir.run(&["pause", "scheduler", "--why", "kept"]).code, Some(0));
    let (_, _, epoch) = dir.registers().await;
    let key = Key::Named(epoch, Kind::Role, Name::new("scheduler").unwrap());
    let last = tenure::Token::MAX;
    poison(&dir, &key, Some(last), |json| json["token"] = last.get().into()).await;
    assert!(dir.run(&["doctor"]).out.contains("near the end of its range"));
    assert_eq!(dir.run(&["repair", "--yes"]).code, Some(0));
    let other = dir.until("other", |found| found["leader"] == "a" && found["token"].as_u64() > Some(before));
    assert!(other["token"].as_u64().unwrap() < last.get() / 2, "{other}");
    assert_eq!(dir.role("scheduler")["paused"]["why"], "kept");
    assert_eq!(dir.run(&["resume", "scheduler"]).code, Some(0));
    dir.until("scheduler", |found| found["leader"] == "a");
    assert_eq!(dir.run(&["repair"]).code, Some(0));
    a.stop();
}

/// As for the 129th process of a user: the namespace allows none.
#[test]
fn without_inotify_changes_come_with_the_beat_and_doctor_says_so() {
    let dir = TestDir::new();
    let mut doctor = dir.command(&["doctor"]);
    let mut confined = std::process::Command::new("unshare");
    confined.args(["--user", "--map-root-user", "sh", "-c"]);
    confined.arg("echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"").arg("sh");
    confined.arg(doctor.get_program()).args(doctor.get_args()).env("TENURE_STORE", dir.url());
    let (alone, free) = (ran(confined.output().unwrap()), ran(doctor.output().unwrap()));
    assert!(alone.out.contains("fs.inotify.max_user_instances"), "{alone:?}");
    assert!(!free.out.contains("fs.inotify.max_user_instances"), "{free:?}");
}
