//! The two things asked of the server: some compare-and-sets in one script, and some reads in one round trip.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Script, Value as Reply};
use tenure_core::Entropy;

use super::error::{self, ConnectionHealth};
use super::{STORE, keys};
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::packed::{entry, pack, unpack};
use tenure_store::kit::registers::split;
use tenure_store::kit::rules::{WriteDecision, decide, refused_outright};
use tenure_store::{Entry, Epoch, Key, Kind, Name, Outcome, Query, StoreError, Write};

/// The format that this version writes, as the marker begins.
pub(super) const FORMAT: &str = "1:";

static CHANGE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("change.lua")));

/// A batch on its way.
#[derive(Debug)]
pub(super) struct Change<'a> {
    namespace: &'a Name,
    /// Each write, and why it is not sent, if it is not.
    items: Vec<(&'a Write, Option<StoreError>)>,
}

/// What a batch came to.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) marker: Option<String>,
    /// How many notifications the server refused.
    pub(super) unnotified: usize,
    /// What the connection is health after it.
    pub(super) connection: ConnectionHealth,
    pub(super) outcomes: Vec<Outcome>,
}

impl<'a> Change<'a> {
    pub(super) fn new(namespace: &'a Name, writes: &'a [Write]) -> Self {
        let items = writes.iter().map(|write| (write, refused_without_asking(write))).collect();
        Self { namespace, items }
    }

    /// Calls the script by its hash, or sends it whole.
    pub(super) fn command(&self, whole: bool) -> Cmd {
        let mut command = redis::cmd(if whole { "EVAL" } else { "EVALSHA" });
        match whole {
            true => command.arg(include_str!("change.lua")),
            false => command.arg(CHANGE.get_hash()),
        };
        command.arg(self.sent().count() + 1).arg(keys::marker(self.namespace));
        for write in self.sent() {
            command.arg(keys::hash(self.namespace, write.key.epoch(), write.key.kind()));
        }
        command.arg(keys::channel(self.namespace)).arg(fresh_marker());
        for write in self.sent() {
            command
                .arg(&*write.key.name())
                .arg(write.expect.map_or(String::new(), |version| version.to_string()));
            command.arg(write.put.as_ref().map_or(String::new(), |(version, value)| pack(*version, value)));
            command.arg(flags(write));
        }
        command
    }

    fn sent(&self) -> impl Iterator<Item = &'a Write> {
        self.items.iter().filter(|(_, refused)| refused.is_none()).map(|(write, _)| *write)
    }

    /// Reads the answer of the script.
    pub(super) fn read(self, reply: Reply) -> Result<Changed, StoreError> {
        let Reply::Array(parts) = reply else { return Err(strange()) };
        let mut parts = parts.into_iter();
        let marker = parts.next().and_then(text);
        check_format(marker.as_deref())?;
        let Some(Reply::Int(unnotified)) = parts.next() else { return Err(strange()) };
        let mut connection = ConnectionHealth::Good;
        let outcome = |(write, refused): (&Write, Option<StoreError>)| match refused {
            Some(why) => Ok(Outcome::Failed(why)),
            None => outcome(write, parts.next().ok_or_else(strange)?, &mut connection),
        };
        let outcomes = self.items.into_iter().map(outcome).collect::<Result<_, _>>()?;
        Ok(Changed { marker, unnotified: usize::try_from(unnotified).unwrap_or(0), connection, outcomes })
    }
}

/// What the server need not be asked about: values that are too long, tokens that are too large.
fn refused_without_asking(write: &Write) -> Option<StoreError> {
    if write.put.is_none() && !write.requires_lock {
        return None;
    }
    refused_outright(STORE, write)
}

fn flags(write: &Write) -> &'static str {
    match (write.notify, write.key.kind() == Kind::Role) {
        (true, true) => "nk",
        (true, false) => "n",
        (false, true) => "k",
        (false, false) => "",
    }
}

fn fresh_marker() -> String {
    format!("{FORMAT}{:032x}", KernelEntropy.nonce())
}

fn outcome(write: &Write, reply: Reply, connection: &mut ConnectionHealth) -> Result<Outcome, StoreError> {
    match reply {
        Reply::Int(1) => Ok(Outcome::Applied),
        Reply::Nil => Ok(Outcome::Conflict(None)),
        Reply::BulkString(packed) => Ok(Outcome::Conflict(Some(entry(&write.key, &packed)))),
        Reply::Array(parts) => {
            let (why, health) = refusal(write, parts);
            *connection = if health == ConnectionHealth::Spent { health } else { *connection };
            Ok(Outcome::Failed(why))
        }
        _ => Err(strange()),
    }
}

/// Why the script left one item out: proven, so nothing happened to it.
fn refusal(write: &Write, parts: Vec<Reply>) -> (StoreError, ConnectionHealth) {
    let mut parts = parts.into_iter();
    let what = parts.next().and_then(text).unwrap_or_default();
    let detail = parts.next().and_then(text);
    if what == "failed" {
        return error::in_script(&detail.unwrap_or_default());
    }
    let there = detail.and_then(|packed| unpack(packed.as_bytes()));
    match decide(STORE, write, there.map(|(version, value)| (version, value.token))) {
        WriteDecision::Refuse(why) => (why, ConnectionHealth::Good),
        WriteDecision::Apply | WriteDecision::Conflict => {
            error::in_script("ERR refused by the server's script")
        }
    }
}

/// What a query asks, hash by hash, and how to read the answers.
#[derive(Debug)]
pub(super) struct Look<'a> {
    namespace: &'a Name,
    whole: BTreeSet<(Epoch, Kind)>,
    single: BTreeMap<(Epoch, Kind), BTreeSet<&'a Key>>,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) marker: Option<String>,
    pub(super) entries: Vec<Entry>,
}

impl<'a> Look<'a> {
    /// A register that is asked for twice, by name and by kind, is found once.
    pub(super) fn new(namespace: &'a Name, query: &'a Query) -> Self {
        let (whole, named) = split(query);
        let mut single: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for key in named {
            single.entry((key.epoch(), key.kind())).or_default().insert(key);
        }
        Self { namespace, whole, single }
    }

    pub(super) fn commands(&self) -> Pipeline {
        let mut commands = Pipeline::new();
        commands.cmd("GET").arg(keys::marker(self.namespace));
        self.add_to(&mut commands);
        commands
    }

    /// The same after the script, which tells the marker.
    pub(super) fn commands_after(&self, script: Cmd) -> Pipeline {
        let mut commands = Pipeline::new();
        commands.add_command(script);
        self.add_to(&mut commands);
        commands
    }

    fn add_to(&self, commands: &mut Pipeline) {
        for (epoch, kind) in &self.whole {
            commands.cmd("HGETALL").arg(keys::hash(self.namespace, *epoch, *kind));
        }
        for ((epoch, kind), keys) in &self.single {
            let names: Vec<_> = keys.iter().map(|key| key.name()).collect();
            commands
                .cmd("HMGET")
                .arg(keys::hash(self.namespace, *epoch, *kind))
                .arg(names.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
        }
    }

    pub(super) fn read(self, replies: Vec<Reply>) -> Result<Found, StoreError> {
        let mut replies = replies.into_iter();
        let marker = replies.next().and_then(text);
        check_format(marker.as_deref())?;
        Ok(Found { marker, entries: self.entries(replies)? })
    }

    /// What the answers to the reads say.
    pub(super) fn entries(self, replies: impl IntoIterator<Item = Reply>) -> Result<Vec<Entry>, StoreError> {
        let (mut replies, mut entries) = (replies.into_iter(), Vec::new());
        for (epoch, kind) in self.whole {
            read_whole(epoch, kind, replies.next(), &mut entries)?;
        }
        for keys in self.single.into_values() {
            let Some(Reply::Array(values)) = replies.next() else { return Err(strange()) };
            for (key, value) in keys.into_iter().zip(values) {
                if let Reply::BulkString(packed) = value {
                    entries.push(entry(key, &packed));
                }
            }
        }
        Ok(entries)
    }
}

fn read_whole(
    epoch: Epoch,
    kind: Kind,
    reply: Option<Reply>,
    into: &mut Vec<Entry>,
) -> Result<(), StoreError> {
    let Some(Reply::Array(pairs)) = reply else { return Err(strange()) };
    for pair in pairs.chunks_exact(2) {
        let [Reply::BulkString(name), Reply::BulkString(packed)] = pair else { return Err(strange()) };
        // What cannot be named belongs to no watch.
        if let Ok(key) = Key::from_parts(epoch, kind, &String::from_utf8_lossy(name)) {
            into.push(entry(&key, packed));
        }
    }
    Ok(())
}

/// A namespace that another version wrote is left alone.
fn check_format(marker: Option<&str>) -> Result<(), StoreError> {
    match marker {
        Some(marker) if !marker.starts_with(FORMAT) => Err(StoreError::not_applied(
            STORE,
            "this namespace was written by another version of tenure: use that version, or another namespace",
        )
        .permanent()),
        _ => Ok(()),
    }
}

fn text(reply: Reply) -> Option<String> {
    match reply {
        Reply::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Reply::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn strange() -> StoreError {
    StoreError::unknown(
        STORE,
        "an answer that no Redis gives: see what stands between this process and the server",
    )
}
