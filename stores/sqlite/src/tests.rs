//! What only a look inside can provoke, and what people see with `sqlite3`.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;
use tenure_core::{Fate, Token};

use super::*;
use tenure_store::{Epoch, Key, Kind, Name, Outcome, Query, Retry, SessionId, Store, Value, Version, Write};

fn file() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    (dir, path)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn write(key: Key, version: u128, value: Value) -> Write {
    Write { key, expect: None, put: Some((Version::new(version), value)), notify: true, requires_lock: false }
}

fn node(text: &str, version: u128, content: &str) -> Write {
    write(Key::Named(Epoch::new(1), Kind::Node, name(text)), version, Value::of(&content, None))
}

/// What opening says; the file must not have changed by it.
fn refusal(path: &Path) -> String {
    let before = std::fs::read(path).unwrap();
    let error = Sqlite::open(path).expect_err("it must not open");
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
    assert!(std::fs::read(path).unwrap() == before, "not a byte was changed");
    error.to_string()
}

#[tokio::test]
async fn a_full_disk_refuses_and_goes_on_once_there_is_room() {
    let (_dir, path) = file();
    let store = Sqlite::open(&path).unwrap();
    let (space, kept) = (name("a"), node("kept", 1, "small"));
    store.write(&space, std::slice::from_ref(&kept)).await.unwrap();
    let writer = Writer::new(schema::open_writer(&path).unwrap(), store.file.clone());
    writer.allow_no_more_pages().unwrap();
    let full = start_writer(writer).unwrap();
    let attempt = async |version| {
        let (reply, answer) = oneshot::channel();
        let writes = vec![node("x", version, &"x".repeat(100_000))];
        let query = Query::default();
        let batch = Batch { namespace: space.clone(), writes, query, ticket: Arc::default(), reply };
        full.send(Job::Write(batch)).unwrap();
        answer.await.unwrap()
    };
    for version in [2, 3] {
        let error = attempt(version).await.unwrap_err();
        assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Soon));
        assert!(error.to_string().contains("disk is full"), "{error}");
    }
    let query = Query { keys: Vec::new(), kinds: vec![(Epoch::new(1), Kind::Node)] };
    assert_eq!(
        store.read(&space, &query).await.unwrap().len(),
        1,
        "what was there is there, and nothing else"
    );
    let outcomes = store.write(&space, &[node("x", 4, "fits")]).await.unwrap();
    assert!(matches!(outcomes[0], Outcome::Applied), "the lock was let go of");
}

#[test]
fn what_is_no_database_is_left_untouched() {
    let (_dir, path) = file();
    std::fs::write(&path, "a text of another program, long enough to be read as a header".repeat(100))
        .unwrap();
    let message = refusal(&path);
    assert!(message.contains("not a SQLite database"), "{message}");
}

#[tokio::test]
async fn a_damaged_file_is_left_as_it_is() {
    let (_dir, path) = file();
    let store = Sqlite::open(&path).unwrap();
    for nth in 0..200 {
        store.write(&name("a"), &[node(&format!("n{nth}"), nth, &"x".repeat(200))]).await.unwrap();
    }
    store.close().await;
    drop(store);
    // Two connections that close at one moment leave the log beside the file, with sound pages in it.
    let last = Connection::open(&path).unwrap();
    last.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(last);
    let sound = std::fs::read(&path).unwrap();
    for damaged in [100..200, sound.len() / 2..sound.len()] {
        let mut bytes = sound.clone();
        bytes[damaged].fill(0xAA);
        std::fs::write(&path, &bytes).unwrap();
        let message = refusal(&path);
        assert!(message.contains("damaged") && message.contains(".recover"), "{message}");
    }
}

#[test]
fn the_database_of_another_program_is_left_untouched() {
    let (_dir, path) = file();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE invoices (id INTEGER); PRAGMA user_version = 1").unwrap();
    drop(other);
    let message = refusal(&path);
    assert!(message.contains("another program"), "{message}");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let (_dir, path) = file();
    Sqlite::open(&path).unwrap().close().await;
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    let message = refusal(&path);
    assert!(message.contains("newer version of tenure (schema 99"), "{message}");
}

#[test]
fn places_where_nothing_can_be_made_say_why() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a-file"), "").unwrap();
    for path in [dir.path().join("a-file/x.db"), "/proc/tenure/x.db".into(), dir.path().to_owned()] {
        let error = Sqlite::open(&path).expect_err("no such location");
        assert_eq!(error.retry(), Retry::Never, "{error}");
        assert!(error.to_string().contains("name a") || error.to_string().contains("see whether"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_directory_is_made_for_this_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/tenure.db");
    let first = Sqlite::open(&path).unwrap().describe().await.unwrap();
    assert_eq!(std::fs::metadata(dir.path().join("a/b")).unwrap().permissions().mode() & 0o777, 0o700);
    let second = Sqlite::open(&path).unwrap().describe().await.unwrap();
    assert_eq!(first.identity, second.identity);
    assert!(first.notifies && first.process_liveness_locks, "{first:?}");
}

#[tokio::test]
async fn another_program_that_writes_is_waited_for() {
    let (_dir, path) = file();
    let store = Sqlite::open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let space = name("a");
    let given_up = node("given-up", 1, "1");
    let patience = Duration::from_millis(20);
    let giving_up =
        tokio::time::timeout(patience, store.write(&space, std::slice::from_ref(&given_up))).await;
    assert!(giving_up.is_err(), "it waits");
    let writes = [node("waits", 2, "2")];
    let waiting = store.write(&space, &writes);
    let (outcomes, ()) = tokio::join!(waiting, async { other.execute_batch("COMMIT").unwrap() });
    assert!(matches!(outcomes.unwrap()[0], Outcome::Applied));
    let query = Query { keys: vec![given_up.key], kinds: Vec::new() };
    assert!(store.read(&space, &query).await.unwrap().is_empty(), "called off with its caller");
}

/// The guards hold against a person with `sqlite3`.
#[tokio::test]
async fn triggers_guard_tokens_and_roles() {
    let (_dir, path) = file();
    let store = Sqlite::open(&path).unwrap();
    let role = write(Key::Named(Epoch::new(1), Kind::Role, name("r")), 1, Value::of(&1, Some(Token::new(9))));
    store.write(&name("a"), &[role]).await.unwrap();
    let by_hand = Connection::open(&path).unwrap();
    for sql in [
        "DELETE FROM registers",
        "UPDATE registers SET token = 8",
        "UPDATE registers SET token = NULL",
        "UPDATE registers SET name = 'other'",
        "UPDATE registers SET kind = 'node'",
        "INSERT OR REPLACE INTO registers SELECT namespace, epoch, kind, name, version, 8, value, 0 FROM registers",
    ] {
        let error = by_hand.execute_batch(sql).expect_err(sql).to_string();
        assert!(error.contains("tenure: "), "{sql}: {error}");
    }
    by_hand.execute_batch("UPDATE registers SET token = 10").unwrap();
}

#[tokio::test]
async fn the_view_shows_the_leaders_of_the_current_epoch() {
    let (_dir, path) = file();
    let store = Sqlite::open(&path).unwrap();
    let (now, session) = (Epoch::new(u64::MAX), SessionId::new(5));
    let role = |epoch, node: &str| {
        let content = json!({ "token": 7, "holder": { "session": session, "node": node }, "since": 1_767_225_600_000_000_u64, "reason": "first" });
        (Key::Named(epoch, Kind::Role, name("scheduler")), Value::of(&content, Some(Token::new(7))))
    };
    let cluster = (Key::Cluster, Value::of(&json!({ "epoch": now, "max_ttl": 5000, "protocol": 1 }), None));
    let beat = json!({ "state": "live", "beat_at": 1_767_225_601_000_000_u64 });
    let session = (Key::Session(now, session), Value::of(&beat, None));
    let all = [cluster, role(now, "web-1"), role(Epoch::new(u64::MAX - 1), "ghost"), session];
    let writes: Vec<_> =
        all.into_iter().zip(1..).map(|((key, value), version)| write(key, version, value)).collect();
    store.write(&name("default"), &writes).await.unwrap();
    let by_hand = Connection::open(&path).unwrap();
    let sql = "SELECT concat_ws(' ', namespace, role, node, token, since, reason, session_state, last_beat) FROM tenure_leaders";
    let mut select = by_hand.prepare(sql).unwrap();
    let rows: Vec<String> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, ["default scheduler web-1 7 2026-01-01 00:00:00 first live 2026-01-01 00:00:01"]);
}

/// What no version of us could have written, at the level of the row: it stays that row's problem.
#[tokio::test]
async fn a_row_that_cannot_be_taken_apart_harms_no_other() {
    let (_dir, path) = file();
    let (space, store) = (name("a"), Sqlite::open(&path).unwrap());
    store
        .write(&space, &[node("sound", 1, "x"), node("version", 2, "x"), node("bytes", 3, "x")])
        .await
        .unwrap();
    let by_hand = Connection::open(&path).unwrap();
    by_hand.execute("UPDATE registers SET version = 'not a version' WHERE name = 'version'", []).unwrap();
    by_hand.execute("UPDATE registers SET value = CAST(x'ff00' AS TEXT) WHERE name = 'bytes'", []).unwrap();
    by_hand.execute("UPDATE registers SET token = -1 WHERE name = 'bytes'", []).unwrap();
    let query = Query { keys: Vec::new(), kinds: vec![(Epoch::new(1), Kind::Node)] };
    let found = store.read(&space, &query).await.unwrap();
    let readable = found.iter().filter(|entry| entry.value.parse::<String>().is_ok());
    assert_eq!(readable.map(|entry| entry.key.name().into_owned()).collect::<Vec<_>>(), ["sound"]);
    assert_eq!(found.len(), 3, "what cannot be read is not absent: {found:?}");
    let mut batch = vec![node("version", 4, "y"), node("bytes", 5, "y"), node("other", 6, "y")];
    batch.iter_mut().for_each(|write| write.expect = None);
    let outcomes = store.write(&space, &batch).await.unwrap();
    assert!(
        matches!(outcomes[..], [Outcome::Conflict(Some(_)), Outcome::Conflict(Some(_)), Outcome::Applied]),
        "{outcomes:?}"
    );
}
