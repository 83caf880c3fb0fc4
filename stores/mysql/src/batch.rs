//! A batch of compare-and-sets as one text of statements, in one transaction and one round trip.
//!
//! ```text
//!   START TRANSACTION
//!   SELECT … FOR UPDATE        the registers, in the order of their keys: what is there stays so until the end
//!   UPDATE | INSERT | DELETE   each on the very version that it expects
//!   SELECT …                   what is there in the end, by us or by a node that came first
//!   COMMIT
//! ```
//!
//! What became of an item is read from the data and never from a count of rows, which means different things to different
//! clients. The row of the notifier is locked first and registers in the order of their keys, so that two batches never wait for each
//! other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row};

use super::connection::{Failed, Wire, change_and_read, change_then_read, sets, text_of};
use super::error::OperationError;
use super::liveness;
use super::{STORE, rows};
use tenure_store::kit::liveness::LockNumber;
use tenure_store::kit::rules::{WriteDecision, decide, refused_outright};
use tenure_store::{Entry, Fate, Key, Name, Outcome, StoreError, Version, Write};

/// The longest text that is sent at once; every server takes more.
const LONGEST: usize = 3 << 20;

/// A batch, cut into rounds: of one register there is one write in each, and none is too long.
#[derive(Debug)]
pub(super) struct Batch {
    namespace: Name,
    writes: Vec<Write>,
    outcomes: Vec<Option<Outcome>>,
    rounds: Vec<Vec<usize>>,
}

impl Batch {
    /// `may_hold` says whether this handle may hold a lock that a write requires.
    pub(super) fn new(namespace: &Name, writes: &[Write], may_hold: impl Fn(LockNumber) -> bool) -> Self {
        let lost = |write: &Write| {
            let lock = LockNumber::of_key(namespace, &write.key).filter(|_| write.requires_lock);
            write.requires_lock && !lock.is_some_and(&may_hold)
        };
        let refused = |write| {
            if lost(write) {
                Some(StoreError::severed(STORE))
            } else {
                refused_outright(STORE, &unproven(write))
            }
        };
        let outcomes: Vec<_> = writes.iter().map(|write| refused(write).map(Outcome::Failed)).collect();
        let mut items: Vec<usize> = (0..writes.len()).filter(|nth| outcomes[*nth].is_none()).collect();
        items.sort_by(|a, b| writes[*a].key.cmp(&writes[*b].key));
        let rounds = rounds(writes, &items);
        Self { namespace: namespace.clone(), writes: writes.to_vec(), outcomes, rounds }
    }

    /// Whether there is nothing to ask the server.
    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// How many texts have to be sent.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// One round, as what can be sent to the thread of the connection.
    pub(super) fn round(&self, nth: usize) -> Round {
        let writes = self.rounds[nth].iter().map(|item| self.writes[*item].clone()).collect();
        Round { namespace: self.namespace.clone(), writes }
    }

    /// Notes what became of a round.
    pub(super) fn note(&mut self, nth: usize, answers: Vec<Outcome>) {
        for (item, outcome) in self.rounds[nth].iter().zip(answers) {
            self.outcomes[*item] = Some(outcome);
        }
    }

    /// Notes that a round failed as a whole.
    pub(super) fn fail(&mut self, nth: usize, error: &StoreError) {
        for item in &self.rounds[nth] {
            let message = error.to_string();
            let again = match error.fate() {
                Fate::NotApplied | Fate::Severed => StoreError::not_applied(STORE, message),
                Fate::Unknown => StoreError::unknown(STORE, message),
            };
            self.outcomes[*item] = Some(Outcome::Failed(again));
        }
    }

    /// One outcome for each write, in the order in which they were given. What was not asked for after a failure did not
    /// happen.
    pub(super) fn outcomes(self) -> Vec<Outcome> {
        let skipped = || {
            let message = "an earlier part of this batch failed, and this was not sent";
            Outcome::Failed(StoreError::not_applied(STORE, message))
        };
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(skipped)).collect()
    }
}

/// Items come in the order of their keys; the second of a key comes in the second round. Each that has to prove its lock
/// comes alone.
fn rounds(writes: &[Write], items: &[usize]) -> Vec<Vec<usize>> {
    let mut layers: Vec<Vec<usize>> = Vec::new();
    let (mut last, mut depth): (Option<&Key>, usize) = (None, 0);
    for item in items {
        depth = if last == Some(&writes[*item].key) { depth + 1 } else { 0 };
        last = Some(&writes[*item].key);
        layers.resize(layers.len().max(depth + 1), Vec::new());
        layers[depth].push(*item);
    }
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for layer in layers {
        let mut size = LONGEST;
        for item in layer {
            let length = writes[item].put.as_ref().map_or(0, |(_, value)| 2 * value.json.len()) + 1000;
            size += length;
            if size > LONGEST || writes[item].requires_lock {
                rounds.push(Vec::new());
                size = length;
            }
            if let Some(round) = rounds.last_mut() {
                round.push(item);
            }
            if writes[item].requires_lock {
                size = LONGEST;
            }
        }
    }
    rounds
}

/// A write as it is decided about once its lock was proven.
fn unproven(write: &Write) -> Write {
    Write { requires_lock: false, ..write.clone() }
}

/// Writes of different registers, in the order of their keys.
#[derive(Debug)]
pub(super) struct Round {
    namespace: Name,
    writes: Vec<Write>,
}

/// What a round came to: one outcome for each write, whether others have to be notified, and what was asked for after it.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) notifies: bool,
    pub(super) rows: Vec<Row>,
}

impl Carried {
    /// One outcome, of which no other node has to be notified.
    fn quiet(outcome: Outcome, rows: Vec<Row>) -> Self {
        Self { outcomes: vec![outcome], notifies: false, rows }
    }
}

impl Round {
    /// Carries it out.
    pub(super) async fn run(self, wire: &mut Wire) -> Result<Carried, OperationError> {
        let conn = &mut wire.conn;
        if !self.has_lock(conn, &wire.locks).await? {
            return Ok(Carried::quiet(Outcome::Failed(StoreError::severed(STORE)), Vec::new()));
        }
        if let Some(text) = self.beat() {
            conn.query_drop(text).await?;
            let changed = conn.affected_rows();
            return Ok(Carried::quiet(self.beat_outcome(conn, changed).await?, Vec::new()));
        }
        self.run_all(conn, wire.is_galera, None).await
    }

    /// Carries it out and asks a question after it, in one text; on Galera in several, because there a write that lost against one
    /// on another member may be told of with the next text only (bug 192).
    pub(super) async fn run_then_ask(
        self,
        wire: &mut Wire,
        question: &str,
    ) -> Result<Carried, OperationError> {
        let conn = &mut wire.conn;
        if !self.has_lock(conn, &wire.locks).await? {
            let severed = Outcome::Failed(StoreError::severed(STORE));
            return Ok(Carried::quiet(severed, conn.query(question).await?));
        }
        let Some(beat) = self.beat() else {
            return self.run_all(conn, wire.is_galera, Some(question)).await;
        };
        let answered = if wire.is_galera {
            change_then_read(conn, &beat, question).await
        } else {
            change_and_read(conn, &format!("{beat}; {question}")).await
        };
        let (changed, rows) = answered.map_err(|failed| {
            // Once the question was begun the beat was carried out.
            let fault = OperationError::from(failed.error);
            OperationError { proven: fault.proven && failed.at_most == 0, ..fault }
        })?;
        Ok(Carried::quiet(self.beat_outcome(conn, changed).await?, rows))
    }

    /// Whether this connection has the lock that its one write has to prove, if any. A beat proves it to the server by itself.
    async fn has_lock(&self, conn: &mut Conn, held: &BTreeSet<LockNumber>) -> Result<bool, OperationError> {
        let Some(lock) = self.lock() else { return Ok(true) };
        Ok(held.contains(&lock) && (self.beat().is_some() || holds(conn, lock).await?))
    }

    /// The lock that its one write has to prove, if it is such a round. A connection that has it holds it until its end:
    /// what is written on it afterwards is written under the lock.
    fn lock(&self) -> Option<LockNumber> {
        let write = self.writes.first().filter(|write| write.requires_lock)?;
        LockNumber::of_key(&self.namespace, &write.key)
    }

    /// A member of Galera that rolls a transaction back, for a write on another member, says so at the next command, and not at
    /// the next statement of a text: the end of the transaction is a command of its own there.
    async fn run_all(
        &self,
        conn: &mut Conn,
        is_galera: bool,
        question: Option<&str>,
    ) -> Result<Carried, OperationError> {
        let text = self.text();
        let (commit, before) = text.split_last().expect("it has an end");
        let answers = if is_galera {
            match sets(conn, &before.join("; ")).await {
                Ok(answers) => {
                    let late = |error| Failed { error, at_most: text.len() };
                    end(conn, commit, question).await.map(|rows| (answers, rows)).map_err(late)
                }
                Err(failed) => Err(failed),
            }
        } else {
            let all: Vec<_> = text.iter().map(String::as_str).chain(question).collect();
            sets(conn, &all.join("; ")).await.map(|mut answers| {
                let rows = question.and_then(|_| answers.pop());
                (answers, rows.unwrap_or_default())
            })
        };
        match answers {
            Ok((answers, rows)) => {
                let outcomes = self.outcomes(&answers);
                let notified = |(write, outcome): (&Write, &Outcome)| {
                    write.notify && matches!(outcome, Outcome::Applied)
                };
                let notifies = self.writes.iter().zip(&outcomes).any(notified);
                Ok(Carried { outcomes, notifies, rows })
            }
            Err(failed) => {
                // What failed before COMMIT was begun was not committed, and is rolled back here or with the connection.
                let proven = matches!(failed.error, Error::Server(_)) && failed.at_most + 1 < text.len();
                let rolled_back = conn.query_drop("ROLLBACK").await;
                let mut fault = OperationError::from(failed.error);
                fault.proven = proven && rolled_back.is_ok();
                Err(fault)
            }
        }
    }

    /// The most frequent of all writes, a beat, is one statement that is a transaction of its own.
    fn beat(&self) -> Option<String> {
        let [write] = self.writes.as_slice() else { return None };
        let plain = !write.notify && write.put.is_some();
        (plain && write.expect.is_some()).then(|| self.change(write))
    }

    /// The version is another one at every write: so a row that was found was also changed, and the count is 1 for all
    /// clients. If it is 0, what is there tells.
    async fn beat_outcome(&self, conn: &mut Conn, changed: u64) -> Result<Outcome, OperationError> {
        let write = &self.writes[0];
        if changed > 0 {
            return Ok(Outcome::Applied);
        }
        if let Some(lock) = self.lock()
            && !holds(conn, lock).await.map_err(|error| OperationError { error, proven: true })?
        {
            return Ok(Outcome::Failed(StoreError::severed(STORE)));
        }
        let ask = rows::select_keys(&self.namespace, std::iter::once(&write.key));
        let found: Option<Row> =
            conn.query_first(ask).await.map_err(|error| OperationError { error, proven: true })?;
        let found = found.as_ref().and_then(rows::entry);
        if found.as_ref().map(|found| found.version) == write.expect {
            let message = "another writer came first, and what was expected came after; it is tried again";
            return Ok(Outcome::Failed(StoreError::not_applied(STORE, message)));
        }
        Ok(told(write, found))
    }

    fn text(&self) -> Vec<String> {
        let notifies = self.writes.iter().any(|write| write.notify);
        let keys = || self.writes.iter().map(|write| &write.key);
        let mut text = vec!["START TRANSACTION".to_owned()];
        if notifies {
            text.push("SELECT seq + 1 INTO @tenure_seq FROM tenure_notifier FOR UPDATE".to_owned());
        }
        text.push(format!("{} FOR UPDATE", rows::select_keys(&self.namespace, keys())));
        for write in &self.writes {
            text.push(self.change(write));
            if write.put.is_none() && write.notify {
                text.push(self.note_deletion());
            }
        }
        if notifies {
            text.push(NOTIFY.to_owned());
        }
        if self.puts().next().is_some() {
            text.push(rows::select_keys(&self.namespace, self.puts()));
        }
        text.push("COMMIT".to_owned());
        text
    }

    fn puts(&self) -> impl Iterator<Item = &Key> {
        self.writes.iter().filter(|write| write.put.is_some()).map(|write| &write.key)
    }

    /// The statement that carries out one write if it fits.
    fn change(&self, write: &Write) -> String {
        let is = rows::is(&self.namespace, &write.key);
        match (write.expect, &write.put) {
            (None, None) => "DO 0".to_owned(),
            (Some(expect), None) => {
                format!("DELETE FROM tenure_registers WHERE {is} AND version = '{expect}' AND kind <> 'role'")
            }
            (Some(expect), Some((version, value))) => {
                let (token, json) = (rows::token_literal(value.token), rows::literal(&value.json));
                let seq = if write.notify { ", seq = @tenure_seq" } else { "" };
                let held =
                    self.lock().map_or(String::new(), |lock| format!(" AND {}", liveness::is_held(lock)));
                format!(
                    "UPDATE tenure_registers SET version = '{version}', token = {token}, value = {json}{seq} \
                     WHERE {is} AND version = '{expect}' AND (token IS NULL OR token <= {token}){held}"
                )
            }
            (None, Some((version, value))) => {
                let (token, json) = (rows::token_literal(value.token), rows::literal(&value.json));
                let seq = if write.notify { "@tenure_seq" } else { "NULL" };
                let (epoch, kind, name) =
                    (write.key.epoch().get(), write.key.kind().as_str(), write.key.name());
                let namespace = &self.namespace;
                format!(
                    "INSERT INTO tenure_registers (namespace, epoch, kind, name, version, token, value, seq) VALUES \
                     ('{namespace}', '{epoch}', '{kind}', '{name}', '{version}', {token}, {json}, {seq}) \
                     ON DUPLICATE KEY UPDATE version = tenure_registers.version"
                )
            }
        }
    }

    /// Says that something of this namespace was deleted, if it was: of a row that is gone nothing else can tell.
    fn note_deletion(&self) -> String {
        format!(
            "INSERT INTO tenure_deletions (namespace, seq) SELECT '{}', @tenure_seq FROM DUAL WHERE ROW_COUNT() > 0 \
             ON DUPLICATE KEY UPDATE seq = @tenure_seq",
            self.namespace
        )
    }

    /// The first set of rows is what was there, and stayed so, being locked; the second, what was there in the end. A member of
    /// Galera may have rolled the transaction back between the two, without a word.
    fn outcomes(&self, answers: &[Vec<Row>]) -> Vec<Outcome> {
        let found = |nth: usize| -> BTreeMap<Key, Entry> {
            let rows = answers.get(nth).into_iter().flatten().filter_map(rows::entry);
            rows.map(|entry| (entry.key.clone(), entry)).collect()
        };
        let (mut before, mut after) = (found(0), found(1));
        let of = |write: &Write| {
            let found = before.remove(&write.key);
            let creates = found.is_none() && write.expect.is_none() && write.put.is_some();
            let outcome = if creates { Outcome::Applied } else { told(write, found) };
            match (&write.put, outcome) {
                (Some((version, _)), Outcome::Applied) => in_the_end(*version, after.remove(&write.key)),
                (_, outcome) => outcome,
            }
        };
        self.writes.iter().map(of).collect()
    }
}

/// Ends a transaction, and then asks.
async fn end(conn: &mut Conn, commit: &str, question: Option<&str>) -> mysql_async::Result<Vec<Row>> {
    conn.query_drop(commit).await?;
    match question {
        Some(question) => conn.query(question).await,
        None => Ok(Vec::new()),
    }
}

/// Whether this very connection holds a lock.
async fn holds(conn: &mut Conn, lock: LockNumber) -> mysql_async::Result<bool> {
    let held: Option<Row> = conn.query_first(format!("SELECT {}", liveness::is_held(lock))).await?;
    Ok(held.and_then(|row| text_of(&row, 0)).is_some_and(|held| held == "1"))
}

/// Only if something of ours was changed does the number of the notifier rise.
const NOTIFY: &str = "UPDATE tenure_notifier SET seq = @tenure_seq WHERE EXISTS (SELECT 1 FROM tenure_registers WHERE \
    seq = @tenure_seq) OR EXISTS (SELECT 1 FROM tenure_deletions WHERE seq = @tenure_seq)";

/// Versions are drawn by their writers and never twice: if ours is there, we came first.
fn in_the_end(version: Version, found: Option<Entry>) -> Outcome {
    match found {
        Some(found) if found.version == version => Outcome::Applied,
        Some(found) => Outcome::Conflict(Some(found)),
        None => Outcome::Failed(StoreError::unknown(STORE, "the server said nothing of this write")),
    }
}

/// What became of a write of a register that held this, and that no other client could change meanwhile.
fn told(write: &Write, found: Option<Entry>) -> Outcome {
    match decide(STORE, &unproven(write), found.as_ref().map(|found| (found.version, found.value.token))) {
        WriteDecision::Apply => Outcome::Applied,
        WriteDecision::Conflict => Outcome::Conflict(found),
        WriteDecision::Refuse(why) => Outcome::Failed(why),
    }
}
