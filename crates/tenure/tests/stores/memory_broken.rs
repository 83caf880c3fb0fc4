//! The suite can fail: stores that break one clause each are caught by that clause.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, select};
use tenure::conformance::{self, Harness};
use tenure::store::{
    Description, Entry, Evidence, Exchanged, Key, Kind, LivenessLock, LivenessLocks, Memory, Name, Outcome,
    Query, SessionId, SharedStore, Signal, Store, StoreError, Takeover, Value, Version, Write,
};
use tenure_core::Token;

/// A mistake that a store might make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// A kind is listed, but never more than one of it.
    ListsOne,
    /// A write shows before it was decided.
    ShowsWhatLost,
    /// A query for nothing gives everything.
    EmptyIsAll,
    /// What is there is not looked at.
    IgnoresConflicts,
    /// Looks first and writes later, without a lock.
    LooksThenWrites,
    /// One conflict spoils the batch.
    AllOrNothing,
    /// `expect: None` matches whatever there is.
    NoneMatchesAnything,
    /// Roles can be deleted.
    DeletesRoles,
    /// Tokens can fall.
    LowersTokens,
    /// The version stored is a counter of its own.
    ReplacesVersions,
    NormalisesValues,
    /// Acknowledged, and forgotten with the handle.
    ForgetsAtClose,
    /// Only so much fits.
    CutsBatches,
    /// A conflict of a write spoils the read that goes with it.
    ReadsNothingAfterAConflict,
    /// An exchange reads what was there at the last one.
    ReadsFromMemory,
    /// A conflict of a write spoils the read that comes after it.
    ReadsNothingLastAfterAConflict,
    /// What is to be read last is read first, and its own writes are added.
    ReadsBeforeItWrites,
    /// What is read last is without its own writes.
    MissesItsWrites,
    /// Says that it did not happen, although it did.
    LiesAboutFate,
    /// Carries out later what it said it had not done.
    AppliesLater,
    /// Goes on after it was closed.
    NeverCloses,
    /// Shows its password.
    ShowsSecrets,
    /// Beats notify others.
    NotifiesForBeats,
    /// Loses every signal but the last of a batch, and says nothing.
    LosesSignals,
    /// Signals reach every namespace.
    CrossesNamespaces,
    /// Claims to have liveness locks.
    ClaimsLivenessLocks,
    /// A lock is taken as often as it is asked for.
    TakesTwice,
    /// A write need not prove anything.
    BelievesBeats,
    /// A connection that was opened again takes its locks again.
    TakesAgain,
    /// The living are said to be gone.
    TellsEarly,
    /// No session is ever said to be gone.
    TellsNothing,
    /// The lost lock of a session refuses its plain writes too.
    RefusesPlainWrites,
    /// Names have no case.
    FoldsCase,
}

/// The in-process store with one flaw.
struct Flawed {
    inner: Memory,
    flaw: Flaw,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    namespaces: Mutex<Vec<Name>>,
    tokens: Mutex<BTreeMap<Version, Token>>,
    postponed: Mutex<Vec<Write>>,
    last_read: Mutex<Vec<Entry>>,
    acquired: Mutex<Vec<SessionId>>,
    early: Mutex<Vec<(SessionId, String)>>,
}

const SECRET: &str = "hunter2";

impl Flawed {
    async fn current(&self, namespace: &Name, key: &Key) -> Option<Version> {
        let query = Query { keys: vec![key.clone()], kinds: Vec::new() };
        self.inner.read(namespace, &query).await.ok()?.first().map(|found| found.version)
    }

    fn acquired(&self, key: &Key) -> bool {
        matches!(key, Key::Session(_, id) if self.shared.acquired.lock().unwrap().contains(id))
    }

    /// How the flaw bends one write.
    async fn bend(&self, namespace: &Name, mut write: Write) -> Write {
        match self.flaw {
            Flaw::IgnoresConflicts => write.expect = self.current(namespace, &write.key).await,
            Flaw::LooksThenWrites if self.current(namespace, &write.key).await == write.expect => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                write.expect = self.current(namespace, &write.key).await;
            }
            Flaw::NoneMatchesAnything if write.expect.is_none() => {
                write.expect = self.current(namespace, &write.key).await;
            }
            Flaw::NotifiesForBeats => write.notify = true,
            Flaw::BelievesBeats => write.requires_lock = false,
            // A session that acquired here once may write here.
            Flaw::TakesAgain => write.requires_lock &= !self.acquired(&write.key),
            Flaw::RefusesPlainWrites => write.requires_lock |= write.key.kind() == Kind::Session,
            _ => {}
        }
        write.key = self.inward(&write.key);
        if let Some((version, value)) = &mut write.put {
            self.bend_value(version, value);
        }
        write
    }

    fn bend_value(&self, version: &mut Version, value: &mut Value) {
        match self.flaw {
            Flaw::ReplacesVersions => *version = Version::new(version.get() & u128::from(u64::MAX)),
            Flaw::NormalisesValues => {
                *value = Value::of(&value.parse::<serde_json::Value>().unwrap(), value.token)
            }
            Flaw::LowersTokens => {
                let token = value.token.take();
                self.shared.tokens.lock().unwrap().extend(token.map(|token| (*version, token)));
            }
            _ => {}
        }
    }

    fn inward(&self, key: &Key) -> Key {
        match (self.flaw, key) {
            (Flaw::DeletesRoles, Key::Named(epoch, Kind::Role, name)) => {
                Key::Named(*epoch, Kind::Task, name.clone())
            }
            (Flaw::FoldsCase, Key::Named(epoch, kind, name)) => {
                Key::Named(*epoch, *kind, Name::new(name.as_str().to_lowercase()).unwrap())
            }
            _ => key.clone(),
        }
    }

    fn outward(&self, mut entry: Entry) -> Entry {
        if let (Flaw::DeletesRoles, Key::Named(epoch, Kind::Task, name)) = (self.flaw, &entry.key) {
            entry.key = Key::Named(*epoch, Kind::Role, name.clone());
        }
        if self.flaw == Flaw::LowersTokens {
            entry.value.token = self.shared.tokens.lock().unwrap().get(&entry.version).copied();
        }
        entry
    }

    fn outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Conflict(found) => Outcome::Conflict(found.map(|found| self.outward(found))),
            other => other,
        }
    }

    /// The flaws of a whole batch; none if it is to be carried out as it is.
    async fn spoil(&self, namespace: &Name, writes: &[Write]) -> Option<Vec<Outcome>> {
        if self.flaw == Flaw::AllOrNothing {
            let mut spoilt = false;
            for write in writes {
                spoilt |= self.current(namespace, &write.key).await != write.expect;
            }
            return (spoilt && writes.len() > 1)
                .then(|| writes.iter().map(|_| Outcome::Conflict(None)).collect());
        }
        if self.flaw == Flaw::ShowsWhatLost && writes.len() > 1 {
            let mut loser = writes[0].clone();
            loser.expect = self.current(namespace, &loser.key).await;
            let winner = Write { expect: loser.put.as_ref().map(|put| put.0), ..writes[1].clone() };
            self.inner.write(namespace, &[loser]).await.unwrap();
            tokio::task::yield_now().await;
            self.inner.write(namespace, &[winner]).await.unwrap();
            return Some(vec![Outcome::Conflict(None), Outcome::Applied]);
        }
        None
    }
}

impl fmt::Debug for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = if self.flaw == Flaw::ShowsSecrets { SECRET } else { "…" };
        f.debug_struct("Flawed").field("password", &password).finish_non_exhaustive()
    }
}

impl fmt::Display for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flawed")
    }
}

#[async_trait]
impl Store for Flawed {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let mut query = query.clone();
        query.keys = query.keys.iter().map(|key| self.inward(key)).collect();
        if self.flaw == Flaw::EmptyIsAll && query == Query::default() {
            query.kinds =
                Kind::ALL.map(|kind| (tenure::store::Epoch::new(18_000_000_000_000_000_001), kind)).to_vec();
        }
        let mut found = self.inner.read(namespace, &query).await?;
        if self.flaw == Flaw::ListsOne && !query.kinds.is_empty() {
            found.truncate(1);
        }
        let postponed: Vec<_> = std::mem::take(&mut *self.shared.postponed.lock().unwrap());
        if !postponed.is_empty() {
            self.inner.write(namespace, &postponed).await?;
            found = self.inner.read(namespace, &query).await?;
        }
        Ok(found.into_iter().map(|entry| self.outward(entry)).collect())
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let remembered = self.read(namespace, query).await;
        let written = self.write(namespace, writes).await;
        let mut read = self.read(namespace, query).await;
        let applied = |outcome: &Outcome| matches!(outcome, Outcome::Applied);
        let conflict = written.as_ref().is_ok_and(|outcomes| !outcomes.iter().all(applied));
        if self.flaw == Flaw::ReadsNothingAfterAConflict && conflict {
            read = Ok(Vec::new());
        }
        if self.flaw == Flaw::ReadsFromMemory {
            let mut last = self.shared.last_read.lock().unwrap();
            let before = std::mem::replace(&mut *last, remembered.unwrap_or_default());
            read = if before.is_empty() { read } else { Ok(before) };
        }
        Exchanged { written, read }
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let earlier = self.read(namespace, query).await;
        tokio::task::yield_now().await;
        let written = self.write(namespace, writes).await;
        let mut read = self.read(namespace, query).await;
        let applied = |outcome: &Outcome| matches!(outcome, Outcome::Applied);
        let conflict = written.as_ref().is_ok_and(|outcomes| !outcomes.iter().all(applied));
        let is_own = |entry: &Entry| writes.iter().any(|write| write.key == entry.key);
        match (self.flaw, &mut read, earlier) {
            (Flaw::ReadsNothingLastAfterAConflict, Ok(read), _) if conflict => read.clear(),
            (Flaw::MissesItsWrites, Ok(read), _) => read.retain(|entry| !is_own(entry)),
            (Flaw::ReadsBeforeItWrites, Ok(read), Ok(earlier)) => {
                read.retain(is_own);
                read.extend(earlier.into_iter().filter(|entry| !is_own(entry)));
            }
            _ => {}
        }
        Exchanged { written, read }
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.shared.namespaces.lock().unwrap().push(namespace.clone());
        if let Some(outcomes) = self.spoil(namespace, writes).await {
            return Ok(outcomes);
        }
        let mut bent = Vec::new();
        for write in writes {
            bent.push(self.bend(namespace, write.clone()).await);
        }
        if self.flaw == Flaw::CutsBatches {
            bent.truncate(100);
        }
        if self.flaw == Flaw::LosesSignals && bent.len() > 200 {
            bent.iter_mut().for_each(|write| write.notify = false);
        }
        match self.inner.write(namespace, &bent).await {
            Ok(outcomes) if self.flaw == Flaw::LiesAboutFate && writes[0].key.name().starts_with("amid") => {
                drop(outcomes);
                Err(StoreError::not_applied("flawed", "nothing happened, honestly"))
            }
            Err(error) if self.flaw == Flaw::AppliesLater => {
                self.shared.postponed.lock().unwrap().extend_from_slice(writes);
                Err(error)
            }
            outcomes => Ok(outcomes?.into_iter().map(|outcome| self.outcome(outcome)).collect()),
        }
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.inner.watch(namespace);
        if self.flaw == Flaw::TellsEarly {
            let shared = self.shared.clone();
            let early = futures_util::stream::poll_fn(move |context| {
                context.waker().wake_by_ref();
                let told = shared.early.lock().unwrap().pop();
                told.map_or(Poll::Pending, |(session, lock)| {
                    Poll::Ready(Some(Signal::Evidence(Evidence::Disconnected { session, lock })))
                })
            });
            return Box::pin(select(watch, early));
        }
        if self.flaw != Flaw::CrossesNamespaces {
            return watch;
        }
        let resync = self.shared.clone();
        let own = namespace.clone();
        let crossing = move |signal| {
            let others = resync.namespaces.lock().unwrap().iter().filter(|other| **other != own).count();
            futures_util::stream::iter(vec![Signal::Resync; others].into_iter().chain([signal]))
        };
        Box::pin(select(watch.flat_map(crossing), futures_util::stream::empty()))
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let mut described = self.inner.describe().await?;
        described.process_liveness_locks = self.flaw == Flaw::ClaimsLivenessLocks;
        Ok(described)
    }

    async fn close(&self) {
        match self.flaw {
            Flaw::NeverCloses => {}
            Flaw::ForgetsAtClose => self.inner.forget(),
            _ => self.inner.close().await,
        }
    }
}

#[async_trait]
impl LivenessLocks for Flawed {
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        self.shared.acquired.lock().unwrap().push(session);
        // So that the first plain write of a strict session is not refused yet.
        let bent = if self.flaw == Flaw::RefusesPlainWrites { Takeover::OnDisconnect } else { takeover };
        let lock = self.inner.acquire_lock(namespace, session, bent).await?;
        let again = lock.is_none() && self.flaw == Flaw::TakesTwice && takeover == Takeover::OnDisconnect;
        let id = format!("again:{session}");
        Ok(if again { Some(LivenessLock { id, covers_work: false, connection: true }) } else { lock })
    }

    fn release_lock(&self, namespace: &Name, session: SessionId) {
        self.inner.release_lock(namespace, session);
    }

    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, takeover: Takeover) {
        match self.flaw {
            Flaw::TellsNothing => {}
            Flaw::TellsEarly => self.shared.early.lock().unwrap().push((session, id.to_owned())),
            _ => self.inner.watch_lock(namespace, session, id, takeover),
        }
    }

    fn unwatch_lock(&self, namespace: &Name, session: SessionId) {
        self.inner.unwatch_lock(namespace, session);
    }
}

struct Broken(Memory, Flaw, Arc<Shared>);

#[async_trait]
impl Harness for Broken {
    async fn open(&self) -> SharedStore {
        Arc::new(Flawed { inner: self.0.clone(), flaw: self.1, shared: self.2.clone() })
    }

    async fn severable(&self) -> Option<(SharedStore, BoxFuture<'static, ()>)> {
        let handle = Arc::new(Flawed { inner: self.0.clone(), flaw: self.1, shared: self.2.clone() });
        let cut = handle.clone();
        Some((handle, Box::pin(async move { cut.inner.sever() })))
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}

/// Runs a clause on a store with that flaw; it must fail.
fn caught(flaw: Flaw, clause: impl for<'a> Fn(&'a dyn Harness) -> BoxFuture<'a, ()> + Send + 'static) {
    let trial = std::thread::spawn(move || {
        let harness = Broken(Memory::new(), flaw, Arc::default());
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(clause(&harness));
    });
    assert!(trial.join().is_err(), "{flaw:?} went unnoticed");
}

/// One test for each flaw, named by the clause that has to catch it.
macro_rules! caught_by {
    ($($test:ident: $flaw:ident by $clause:ident;)*) => { $(
        #[test]
        fn $test() {
            caught(Flaw::$flaw, |harness| Box::pin(conformance::$clause(harness)));
        }
    )* };
}

caught_by! {
    lists_one: ListsOne by r1_reads_return_what_was_asked_for_and_exists;
    shows_what_lost: ShowsWhatLost by r2_reads_return_only_what_was_committed;
    empty_is_all: EmptyIsAll by r3_an_empty_query_returns_nothing;
    ignores_conflicts: IgnoresConflicts by w1_a_conflict_changes_nothing_and_shows_what_is_there;
    ignores_races: IgnoresConflicts by w2_one_winner_per_version;
    looks_then_writes: LooksThenWrites by w2_one_winner_per_version;
    all_or_nothing: AllOrNothing by w3_items_of_a_batch_are_independent;
    none_matches_anything: NoneMatchesAnything by w4_versions_never_match_absence;
    deletes_roles: DeletesRoles by w5_roles_are_never_deleted;
    lowers_tokens: LowersTokens by w6_tokens_never_fall;
    replaces_versions: ReplacesVersions by w7_versions_and_values_come_back_as_given;
    normalises_values: NormalisesValues by w7_versions_and_values_come_back_as_given;
    forgets_at_close: ForgetsAtClose by w8_acknowledged_writes_survive;
    cuts_batches: CutsBatches by w9_large_batches_and_values_fit;
    reads_nothing_after_a_conflict: ReadsNothingAfterAConflict by x1_the_parts_of_an_exchange_are_independent;
    reads_from_memory: ReadsFromMemory by x2_an_exchange_reads_what_was_there_when_it_was_asked;
    reads_nothing_last_after_a_conflict: ReadsNothingLastAfterAConflict by x1_the_parts_of_an_exchange_are_independent;
    reads_before_it_writes: ReadsBeforeItWrites by x3_a_read_after_writes_misses_nothing_older;
    misses_its_writes: MissesItsWrites by x3_a_read_after_writes_misses_nothing_older;
    lies_about_fate: LiesAboutFate by f1_an_error_never_hides_what_happened;
    applies_later: AppliesLater by f2_what_was_not_applied_never_comes_later;
    never_closes: NeverCloses by f4_a_closed_store_refuses_and_its_watches_end;
    shows_secrets: ShowsSecrets by f5_secrets_are_never_shown;
    notifies_for_beats: NotifiesForBeats by s1_notifying_writes_are_signalled_and_beats_are_not;
    loses_signals: LosesSignals by s2_a_watch_that_missed_signals_says_so;
    crosses_namespaces: CrossesNamespaces by s3_signals_stay_in_their_namespace;
    claims_liveness_locks_and_holds_none: ClaimsLivenessLocks by e1_a_lock_is_held_once_acquired;
    claims_liveness_locks_and_sees_nothing: ClaimsLivenessLocks by e2_evidence_comes_with_death_only;
    claims_liveness_locks: ClaimsLivenessLocks by e3_without_liveness_locks_nothing_is_acquired;
    takes_twice: TakesTwice by e4_a_lock_is_taken_once;
    believes_beats: BelievesBeats by e5_writes_that_require_a_lock_need_it;
    takes_again: TakesAgain by e5_writes_that_require_a_lock_need_it;
    takes_again_after_it_was_seen_gone: TakesAgain by e6_evidence_comes_with_the_end_of_the_connection;
    tells_early: TellsEarly by e6_evidence_comes_with_the_end_of_the_connection;
    tells_nothing: TellsNothing by e6_evidence_comes_with_the_end_of_the_connection;
    refuses_plain_writes: RefusesPlainWrites by e7_strict_sessions_do_not_depend_on_connections;
    folds_case: FoldsCase by n1_namespaces_and_names_differ_by_every_byte;
}

/// The flaws are what is caught, not the wrapping: without effect on a clause, it passes.
#[test]
fn a_flaw_elsewhere_is_not_caught() {
    let harness = Broken(Memory::new(), Flaw::ShowsSecrets, Arc::default());
    conformance::run(conformance::w1_a_conflict_changes_nothing_and_shows_what_is_there(&harness));
    conformance::run(conformance::s3_signals_stay_in_their_namespace(&harness));
}
