//! The embedded store keeps the contract, with real processes that are really killed.

use std::collections::HashSet;
use std::sync::Arc;

use crate::sqlite_kit::{Child, Task, answer, fresh_space, node, put, run_task, rustix_is_root};
use async_trait::async_trait;
use tempfile::TempDir;
use tenure::conformance::{Harness, Holder};
use tenure::store::{
    Fate, Key, Kind, LivenessLock, LivenessLocks as _, Name, Outcome, Query, Retry, SessionId, SharedStore,
    Signal, Sqlite, Store, Takeover, Value, Write,
};

/// A file of its own for each test.
struct OneFile(TempDir);

impl OneFile {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("tenure.db")
    }
}

#[async_trait]
impl Harness for OneFile {
    async fn open(&self) -> SharedStore {
        Arc::new(Sqlite::open(self.path()).unwrap())
    }

    async fn holder(&self, _: &Name, session: SessionId) -> Option<Box<dyn Holder>> {
        let mut child = Child::start(&self.path(), Task::Hold(session));
        let id = child.line();
        Some(Box::new(Doomed { child, id }))
    }
}

struct Doomed {
    child: Child,
    id: String,
}

#[async_trait]
impl Holder for Doomed {
    fn lock(&self) -> LivenessLock {
        LivenessLock { id: self.id.clone(), covers_work: true, connection: false }
    }

    async fn kill(self: Box<Self>) {
        self.child.kill();
    }
}

mod conformance {
    use super::*;

    tenure::conformance!(OneFile::new());
}

/// What the tests start as another process: this very binary, told by its environment what to do.
#[test]
fn helper_process() {
    run_task();
}

#[tokio::test]
async fn what_a_killed_process_wrote_is_there() {
    let file = OneFile::new();
    let mut child = Child::start(&file.path(), Task::WriteForEver);
    let mut acknowledged = 0;
    while acknowledged < 20 {
        acknowledged = child.line().parse::<u64>().unwrap();
    }
    child.kill();
    let store = Sqlite::open(file.path()).unwrap();
    let found = store
        .read(&crate::sqlite_kit::SPACE(), &Query { keys: vec![node("n")], kinds: Vec::new() })
        .await
        .unwrap();
    let written: u64 = found[0].value.parse().unwrap();
    assert!(written >= acknowledged, "{written} < {acknowledged}");
}

#[tokio::test]
async fn a_lock_passed_on_outlives_the_release_and_a_crash_leaves_its_file_until_swept() {
    let (file, session, space) = (OneFile::new(), SessionId::new(77), fresh_space());
    let mut child = Child::start(&file.path(), Task::Hold(session));
    let id = child.line();
    let lock = file.0.path().join("tenure.db-locks").join(format!("{session}.lock"));
    assert!(lock.exists());
    child.kill();
    assert!(lock.exists(), "no process was there to remove it");
    let store = Sqlite::open(file.path()).unwrap();
    assert!(lock.exists(), "the session may still be live");
    let over = Value::of(&serde_json::json!({ "state": "expelled" }), None);
    let key = Key::Session(tenure::store::Epoch::new(3), session);
    let write = Write {
        key,
        expect: None,
        put: Some((tenure::store::Version::new(1), over)),
        notify: false,
        requires_lock: false,
    };
    store.write(&space, &[write]).await.unwrap();
    let next = Sqlite::open(file.path()).unwrap();
    next.describe().await.unwrap();
    assert!(!lock.exists(), "the session is over, and no process holds the lock");
    let mut watch = next.watch(&space);
    next.liveness().watch_lock(&space, session, &id, Takeover::Strict);
    next.close().await;
    assert!(answer(&mut watch).await.is_none(), "a missing file is no evidence");
}

#[tokio::test]
async fn a_duplicate_of_the_lock_holds_it() {
    let (file, session, space) = (OneFile::new(), SessionId::new(78), fresh_space());
    let (owner, watcher) =
        (Sqlite::open(file.path()).unwrap().covers_work(false), Sqlite::open(file.path()).unwrap());
    let mut watch = watcher.watch(&space);
    let held = owner.liveness().acquire_lock(&space, session, Takeover::Strict).await.unwrap().unwrap();
    assert!(!held.covers_work);
    let duplicate = owner.liveness().lock_descriptor(&space, session).unwrap();
    let lock = file.0.path().join("tenure.db-locks").join(format!("{session}.lock"));
    let kept = file.0.path().join("kept");
    std::fs::hard_link(&lock, &kept).unwrap();
    owner.liveness().release_lock(&space, session);
    assert!(!lock.exists());
    std::fs::rename(&kept, &lock).unwrap();
    watcher.liveness().watch_lock(&space, session, &held.id, Takeover::Strict);
    let free = || std::fs::File::open(&lock).unwrap().try_lock_shared().is_ok();
    assert!(!free(), "the duplicate holds it");
    drop(duplicate);
    assert!(matches!(answer(&mut watch).await, Some(Signal::Evidence(_))));
}

#[tokio::test]
async fn a_hundred_handles_write_and_none_is_turned_away() {
    let (file, space) = (OneFile::new(), fresh_space());
    let handles: Vec<_> = (0..100).map(|_| Arc::new(Sqlite::open(file.path()).unwrap())).collect();
    let tasks: Vec<_> = handles
        .iter()
        .enumerate()
        .map(|(nth, store)| {
            let (store, space) = (store.clone(), space.clone());
            tokio::spawn(async move {
                for round in 0..5 {
                    let write = put(&node(&format!("n{nth}.{round}")), None, 1);
                    let outcomes = store.write(&space, &[write]).await.unwrap();
                    assert!(matches!(outcomes[0], Outcome::Applied));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let query = Query { keys: Vec::new(), kinds: vec![(crate::sqlite_kit::EPOCH, Kind::Node)] };
    assert_eq!(handles[99].read(&space, &query).await.unwrap().len(), 500);
}

#[tokio::test]
async fn thirty_processes_write_at_once() {
    let file = OneFile::new();
    let mut children: Vec<_> = (0..30).map(|nth| Child::start(&file.path(), Task::WriteSome(nth))).collect();
    let told: HashSet<String> = children.iter_mut().map(Child::line).collect();
    assert_eq!(told, HashSet::from(["done".to_owned()]));
    let store = Sqlite::open(file.path()).unwrap();
    let query = Query { keys: Vec::new(), kinds: vec![(crate::sqlite_kit::EPOCH, Kind::Node)] };
    assert_eq!(store.read(&crate::sqlite_kit::SPACE(), &query).await.unwrap().len(), 30 * 10);
}

#[tokio::test]
async fn losing_attempts_leave_the_row_and_the_file_as_they_were() {
    let (file, space) = (OneFile::new(), fresh_space());
    let store = Sqlite::open(file.path()).unwrap();
    let first = put(&node("a"), None, 1);
    store.write(&space, std::slice::from_ref(&first)).await.unwrap();
    let bytes =
        || (std::fs::read(file.path()).unwrap(), std::fs::read(file.0.path().join("tenure.db-wal")).unwrap());
    let before = bytes();
    for _ in 0..50 {
        let outcomes = store.write(&space, &[put(&node("a"), None, 2)]).await.unwrap();
        assert!(
            matches!(&outcomes[0], Outcome::Conflict(Some(found)) if found.version == first.put.as_ref().unwrap().0)
        );
    }
    assert!(bytes() == before, "not a byte was written");
}

#[tokio::test]
async fn a_file_removed_while_in_use_is_noticed() {
    let (file, space) = (OneFile::new(), fresh_space());
    let store = Sqlite::open(file.path()).unwrap();
    let mut watch = store.watch(&space);
    store.describe().await.unwrap();
    std::fs::remove_file(file.path()).unwrap();
    let error = store.write(&space, &[put(&node("a"), None, 1)]).await.unwrap_err();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
    assert!(error.to_string().contains("removed or replaced"), "{error}");
    assert!(matches!(answer(&mut watch).await, Some(Signal::Forgot)));
}

/// Puts another file in the place of one that is in use, long after its sessions were opened.
fn replace(file: &OneFile) {
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    for lock in std::fs::read_dir(file.0.path().join("tenure.db-locks")).unwrap() {
        std::fs::File::open(lock.unwrap().path()).unwrap().set_modified(long_ago).unwrap();
    }
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(file.0.path().join(format!("tenure.db{ending}")));
    }
}

#[tokio::test]
async fn a_node_that_comes_after_a_file_was_replaced_is_told_that_the_store_forgot() {
    let (file, space) = (OneFile::new(), fresh_space());
    let survivor = Sqlite::open(file.path()).unwrap();
    survivor.liveness().acquire_lock(&space, SessionId::new(5), Takeover::Strict).await.unwrap();
    replace(&file);
    let newcomer = Sqlite::open(file.path()).unwrap();
    let mut watch = newcomer.watch(&space);
    newcomer.describe().await.unwrap();
    assert!(matches!(answer(&mut watch).await, Some(Signal::Forgot)));
    survivor.liveness().release_lock(&space, SessionId::new(5));
    let later = Sqlite::open(file.path()).unwrap();
    let mut watch = later.watch(&space);
    newcomer.write(&space, &[put(&node("a"), None, 1)]).await.unwrap();
    assert!(
        matches!(answer(&mut watch).await, Some(Signal::Changed(_))),
        "no node is left that knew the other file"
    );
}

#[tokio::test]
async fn a_file_replaced_under_a_leader_never_makes_two() {
    let file = OneFile::new();
    let stand = async |name: &str| {
        let url = format!("sqlite:{}", file.path().display());
        let ttl = std::time::Duration::from_secs(2);
        let node = tenure::Node::builder(url).name(name).ttl(ttl).start().await.unwrap();
        node.candidate("r").await.unwrap()
    };
    let (old, elected) = (stand("old").await, std::time::Duration::from_secs(180));
    let tenure = tokio::time::timeout(elected, old.elected()).await.unwrap().unwrap();
    replace(&file);
    let new = stand("new").await;
    let next = tokio::time::timeout(elected, new.elected()).await.unwrap().unwrap();
    assert!(!tenure.lead().check(), "the old leader is over when the new one is elected");
    assert!(next.lead().token() > tenure.lead().token(), "the token rises");
}

/// From here a process in another PID namespace cannot be seen, nor let go on.
#[tokio::test]
async fn a_process_of_another_pid_namespace_on_the_file_is_told() {
    let file = OneFile::new();
    let store = Sqlite::open(file.path()).unwrap();
    store.liveness().acquire_lock(&fresh_space(), SessionId::new(5), Takeover::Strict).await.unwrap();
    let lock = file.0.path().join(format!("tenure.db-locks/{}.lock", SessionId::new(5)));
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    for (namespace, told) in [(own.as_str(), false), ("pid:[1]", true)] {
        std::fs::write(&lock, format!("5000\n{namespace}\n")).unwrap();
        let remarks = store.describe().await.unwrap().remarks;
        assert_eq!(remarks.iter().any(|remark| remark.contains("PID namespace")), told, "{remarks:?}");
    }
    store.liveness().release_lock(&fresh_space(), SessionId::new(5));
    assert_eq!(store.describe().await.unwrap().remarks, [""; 0]);
}

/// A process that led in the old file may be frozen, and rely on a lease that is longer than the newcomer's: its lock tells.
#[tokio::test]
async fn after_a_file_was_replaced_the_longest_lease_of_those_who_knew_it_is_waited_for() {
    let (file, space) = (OneFile::new(), Name::new("default").unwrap());
    let (survivor, session) = (Sqlite::open(file.path()).unwrap(), SessionId::new(5));
    survivor.liveness().acquire_lock(&space, session, Takeover::Strict).await.unwrap();
    let lease = std::time::Duration::from_secs(4);
    let record = tenure_core::record::Session {
        node: Name::new("old").unwrap(),
        beat: 1,
        freed: 0,
        freed_lately: Vec::new(),
        node_writes: 0,
        holds_back: false,
        ttl: lease,
        every: std::time::Duration::ZERO,
        takeover: Takeover::Strict,
        grace: lease / 2,
        liveness_lock: None,
        state: tenure_core::record::SessionState::Live,
        beat_at: tenure::Timestamp::from_micros(0),
    };
    let open = put(&Key::Session(tenure::store::Epoch::new(1), session), None, 1);
    let value = Value::of(&record, None);
    let put = open.put.as_ref().map(|(version, _)| (*version, value));
    survivor.write(&space, &[Write { put, ..open }]).await.unwrap();
    replace(&file);
    let begun = std::time::Instant::now();
    let url = format!("sqlite:{}", file.path().display());
    let new = tenure::Node::builder(url).name("new").ttl(std::time::Duration::from_millis(500));
    let new = new.start().await.unwrap().candidate("r").await.unwrap();
    let elected = tokio::time::timeout(std::time::Duration::from_secs(180), new.elected()).await;
    assert!(elected.unwrap().is_some_and(|tenure| tenure.lead().check()));
    assert!(begun.elapsed() >= lease, "elected after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_notify_file_that_was_removed_is_made_again() {
    let (file, space) = (OneFile::new(), fresh_space());
    let watcher = Sqlite::open(file.path()).unwrap();
    let mut watch = watcher.watch(&space);
    assert!(watcher.describe().await.unwrap().notifies);
    std::fs::remove_file(file.0.path().join("tenure.db-notify")).unwrap();
    assert!(matches!(answer(&mut watch).await, Some(Signal::Resync)));
    let writer = Sqlite::open(file.path()).unwrap();
    writer.write(&space, &[put(&node("a"), None, 1)]).await.unwrap();
    assert!(matches!(answer(&mut watch).await, Some(Signal::Changed(_))));
}

/// As root no permission binds, so the other process gives up its privilege.
#[tokio::test]
async fn what_this_user_may_not_write_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let (read_only_dir, read_only_file) = (dir.path().join("ro"), dir.path().join("rw/tenure.db"));
    std::fs::create_dir(&read_only_dir).unwrap();
    Sqlite::open(&read_only_file).unwrap().close().await;
    chmod(dir.path(), 0o755);
    chmod(&read_only_dir, 0o555);
    chmod(&dir.path().join("rw"), 0o755);
    chmod(&read_only_file, 0o444);
    let says = |file: &std::path::Path| Child::start_unprivileged(&program, file, Task::Open).line();
    let refused = says(&read_only_dir.join("tenure.db"));
    assert!(refused.contains("write permission"), "{refused}");
    let refused = says(&read_only_dir.join("deeper/tenure.db"));
    assert!(refused.contains("create the directory") && refused.contains("write permission"), "{refused}");
    let refused = says(&read_only_file);
    assert!(refused.contains("writable") || refused.contains("write permission"), "{refused}");
}

/// `flock` has the turn, and is stopped by its own child: as if it had been frozen in the middle of a write.
#[tokio::test]
async fn a_process_stopped_within_its_turn_is_woken_by_those_who_wait() {
    let (file, space) = (OneFile::new(), fresh_space());
    let store = Sqlite::open(file.path()).unwrap();
    let notifier = file.0.path().join("tenure.db-notify");
    let mut frozen = std::process::Command::new("flock")
        .arg(&notifier)
        .args(["sh", "-c", "kill -STOP $PPID"])
        .spawn()
        .unwrap();
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", frozen.id())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    while !is_stopped() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let written = store.write(&space, &[put(&node("a"), None, 1)]).await;
    assert!(matches!(written.as_deref(), Ok([Outcome::Applied])), "{written:?}");
    assert!(frozen.wait().unwrap().success(), "it finished what it was doing");
}

fn chmod(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

fn mode(path: &std::path::Path) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).unwrap()) & 0o777
}

/// What opening says; the store if it opens.
fn opened(file: &std::path::Path, parameter: &str) -> Result<SharedStore, String> {
    tenure::store::open(&format!("sqlite:{}{parameter}", file.display())).map_err(|error| error.to_string())
}

/// The database and what lies beside it, with a session alive.
async fn modes(file: &OneFile, parameter: &str) -> Vec<(String, u32)> {
    let store = opened(&file.path(), parameter).unwrap();
    let session = SessionId::new(7);
    store.liveness().acquire_lock(&fresh_space(), session, Takeover::Strict).await.unwrap();
    store.write(&fresh_space(), &[put(&node("a"), None, 1)]).await.unwrap();
    let beside = |suffix: &str| file.0.path().join(format!("tenure.db{suffix}"));
    let lock = format!("-locks/{session}.lock");
    ["", "-notify", "-wal", "-shm", "-locks", &lock]
        .map(|suffix| (suffix.split('/').next().unwrap().to_owned(), mode(&beside(suffix))))
        .into()
}

#[tokio::test]
async fn files_are_for_their_owner_or_for_the_group_that_shares_them() {
    for (parameter, files, directory) in [("", 0o600, 0o700), ("?access=group", 0o660, 0o770)] {
        let file = OneFile::new();
        chmod(file.0.path(), 0o700);
        for (what, mode) in modes(&file, parameter).await {
            let directory_or_lock = what == "-locks" && mode != files;
            assert_eq!(
                mode,
                if directory_or_lock { directory } else { files },
                "{parameter} {what}: {mode:o}"
            );
        }
    }
}

/// A file of an older version that every user of the host could lock, and so stop every writer.
#[tokio::test]
async fn no_other_user_can_take_the_turn_to_write() {
    let file = OneFile::new();
    let notifier = file.0.path().join("tenure.db-notify");
    std::fs::write(&notifier, "").unwrap();
    chmod(&notifier, 0o644);
    chmod(file.0.path(), 0o755);
    let store = opened(&file.path(), "").unwrap();
    assert_eq!(mode(&notifier), 0o600);
    if rustix_is_root() {
        let mut stranger = std::process::Command::new("setpriv");
        stranger.args(["--reuid=65534", "--regid=65534", "--clear-groups", "flock", "--nonblock"]);
        let took = stranger.arg(&notifier).arg("true").output().unwrap();
        assert!(String::from_utf8_lossy(&took.stderr).contains("Permission denied"), "{took:?}");
    }
    store.write(&fresh_space(), &[put(&node("a"), None, 1)]).await.unwrap();
}

#[test]
fn a_link_in_the_place_of_a_file_is_never_followed() {
    for planted in ["tenure.db-notify", "tenure.db-wal", "tenure.db-locks"] {
        let (file, elsewhere) = (OneFile::new(), tempfile::tempdir().unwrap());
        let victim = elsewhere.path().join("victim");
        std::os::unix::fs::symlink(&victim, file.0.path().join(planted)).unwrap();
        let refused = opened(&file.path(), "").map(drop).unwrap_err();
        assert!(refused.contains(planted), "{refused}");
        assert!(!victim.exists(), "{planted} was followed");
    }
}

#[tokio::test]
async fn what_other_users_can_change_is_rejected_unless_told() {
    let file = OneFile::new();
    opened(&file.path(), "").unwrap().close().await;
    let above = file.0.path().join("above/below");
    std::fs::create_dir_all(&above).unwrap();
    chmod(above.parent().unwrap(), 0o777);
    for (path, database) in [
        (file.path(), file.path()),
        (file.0.path().to_owned(), file.path()),
        (above.clone(), above.join("t.db")),
    ] {
        let changed = if path == above { above.parent().unwrap() } else { &path };
        let before = mode(changed);
        chmod(changed, 0o777);
        let refused = opened(&database, "").map(drop).unwrap_err();
        assert!(refused.contains("every user of this host can write it"), "{}: {refused}", path.display());
        assert!(opened(&database, "?access=group").is_err(), "a group is not every user");
        let store = opened(&database, "?access=anyone").unwrap();
        let remarks = store.describe().await.unwrap().remarks.join("\n");
        assert!(remarks.contains("access=anyone"), "doctor says so: {remarks}");
        store.close().await;
        chmod(changed, if changed == above.parent().unwrap() { 0o755 } else { before });
    }
    chmod(&file.path(), 0o644);
    let remarks = opened(&file.path(), "").unwrap().describe().await.unwrap().remarks.join("\n");
    assert!(remarks.contains("chmod 600"), "doctor says who can read it: {remarks}");
}

/// Ownership can be given away by root alone.
#[tokio::test]
async fn what_belongs_to_a_stranger_is_rejected_even_by_root() {
    if !rustix_is_root() {
        return;
    }
    for given in ["", "-notify", "-locks"] {
        let file = OneFile::new();
        let store = opened(&file.path(), "").unwrap();
        store.liveness().acquire_lock(&fresh_space(), SessionId::new(7), Takeover::Strict).await.unwrap();
        store.close().await;
        let given = file.0.path().join(format!("tenure.db{given}"));
        std::os::unix::fs::chown(&given, Some(65534), None).unwrap();
        let refused = opened(&file.path(), "").map(drop).unwrap_err();
        assert!(refused.contains("user 65534") && refused.contains("access="), "{refused}");
    }
}

/// Two users and what they share: a directory of their group.
#[tokio::test]
async fn members_of_a_group_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (program, shared) = (dir.path().join("program"), dir.path().join("shared"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::create_dir(&shared).unwrap();
    chmod(dir.path(), 0o755);
    if rustix_is_root() {
        std::os::unix::fs::chown(&shared, None, Some(65534)).unwrap();
    }
    chmod(&shared, 0o2770);
    let file = shared.join("tenure.db?access=group");
    for (seat, user) in [(1, 65534), (2, 65533), (3, 65534)] {
        assert_eq!(Child::start_as(user, &program, &file, Task::WriteSome(seat)).line(), "done");
    }
    let mut leader = Child::start_as(65534, &program, &file, Task::Hold(SessionId::new(7)));
    let mut standby = Child::start_as(65533, &program, &file, Task::Hold(SessionId::new(8)));
    assert!(leader.line().starts_with("flock:") && standby.line().starts_with("flock:"));
}
