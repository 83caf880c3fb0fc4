//! What a server is and can promise, as far as this user may see it.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value as Reply};

use super::STORE;
use super::error::{self, ConnectionHealth};
use super::settings::{RedisSettings, refuse};
use tenure_store::{Class, Retry, StoreError};

/// The protocol's own word for replicas, spelt so that the words of this project stay the words of this project.
const REPLICAS: &str = "connected_slaves";

/// What was found out about a server when the connection was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) class: Class,
    /// Which start of the server this is, if this user may know.
    pub(super) run: Option<String>,
    pub(super) about: String,
    pub(super) remarks: Vec<String>,
}

/// Rights that elections do not need.
const EXCESS: &str = "rights wider than needed: this is the default user, who may do everything unless an administrator took it away; \
    docs/stores/redis.md has what a user of its own needs";

/// Everything that the server tells of itself.
#[derive(Debug, Default)]
struct Facts {
    hello: BTreeMap<String, String>,
    info: BTreeMap<String, String>,
    config: BTreeMap<String, String>,
    /// As whom we are logged in; empty if this user may not know.
    user: String,
}

/// Looks at the server behind a new connection, and refuses one that cannot take writes.
pub(super) async fn inspect(
    connection: &mut MultiplexedConnection,
    settings: &RedisSettings,
) -> Result<Server, StoreError> {
    let mut commands = Pipeline::new();
    commands.cmd("HELLO").cmd("INFO");
    commands.cmd("CONFIG").arg("GET").arg("append*");
    commands.cmd("CONFIG").arg("GET").arg("no-appendfsync-on-rewrite");
    commands.cmd("ACL").arg("WHOAMI");
    let replies = connection.send_packed_commands(&commands, 0, 5).await;
    let replies = replies.map_err(|error: RedisError| before(error::of_operation(&error)))?;
    let mut facts = Facts::default();
    for (nth, reply) in replies.into_iter().enumerate() {
        match (nth, reply) {
            (_, Reply::ServerError(error)) if error.code() == "NOAUTH" => {
                return Err(before(error::of_server(&error)));
            }
            (_, Reply::ServerError(_)) => {}
            (0, reply) => facts.hello.extend(pairs(reply)),
            (1, reply) => facts.info.extend(lines(&text(&reply))),
            (4, reply) => facts.user = text(&reply),
            (_, reply) => facts.config.extend(pairs(reply)),
        }
    }
    facts.refuse()?;
    Ok(facts.classify(settings))
}

/// Looking never writes.
fn before((error, _): (StoreError, ConnectionHealth)) -> StoreError {
    let seen = StoreError::not_applied(STORE, error.to_string().trim_start_matches("redis: ").to_owned());
    seen.permanent_if(error.retry() == Retry::Never)
}

impl Facts {
    fn hello(&self, name: &str) -> &str {
        self.hello.get(name).map_or("", String::as_str)
    }

    fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    fn config(&self, name: &str) -> &str {
        self.config.get(name).map_or("", String::as_str)
    }

    /// Servers that cannot serve, now or ever.
    fn refuse(&self) -> Result<(), StoreError> {
        if self.hello("mode") == "sentinel" {
            return Err(refuse("this is a Sentinel: write redis+sentinel://HOST:PORT/NAME"));
        }
        if !["master", ""].contains(&self.hello("role")) {
            return Err(error::in_script("READONLY").0);
        }
        if self.info("loading") == "1" {
            return Err(error::in_script("LOADING").0);
        }
        Ok(())
    }

    fn classify(&self, settings: &RedisSettings) -> Server {
        let mut remarks = self.weaknesses(settings);
        let class = if remarks.is_empty() { Class::B } else { Class::C };
        if class == Class::C {
            remarks.insert(0, FORGETFUL.to_owned());
        }
        remarks.extend(settings.warning().map(str::to_owned));
        if self.user == "default" {
            remarks.push(EXCESS.to_owned());
        }
        let run = self.info.get("run_id").cloned();
        Server { class, run, about: self.about(settings), remarks }
    }

    fn about(&self, settings: &RedisSettings) -> String {
        let name = if self.hello("server").is_empty() { "redis" } else { self.hello("server") };
        let mode = if self.hello("mode") == "cluster" { ", cluster" } else { "" };
        format!("{name} {}{mode}, {settings}", self.hello("version"))
    }

    /// Each way in which an acknowledged write can vanish, with what to do about it.
    fn weaknesses(&self, settings: &RedisSettings) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |wrong: bool, remark: &str| found.extend(wrong.then(|| remark.to_owned()));
        if self.info.is_empty() || self.config.is_empty() {
            note(true, "this user may not see how the server keeps its data: allow INFO and CONFIG GET");
        } else {
            note(
                self.config("appendonly") != "yes",
                "it keeps nothing, or snapshots only, and forgets acknowledged writes when it restarts: set `appendonly yes`",
            );
            note(
                self.config("appendonly") == "yes" && self.config("appendfsync") != "always",
                "it acknowledges writes before they are on disk: set `appendfsync always`",
            );
            note(
                self.config("no-appendfsync-on-rewrite") == "yes",
                "while it rewrites its log, writes are not flushed: set `no-appendfsync-on-rewrite no`",
            );
            let policy = self.info("maxmemory_policy");
            note(
                policy != "noeviction",
                &format!(
                    "it may throw registers away when memory is short ({policy}): set `maxmemory-policy noeviction`"
                ),
            );
            note(
                !["", "0"].contains(&self.info(REPLICAS)),
                "it has replicas: one that is promoted may lack the last writes; add `wait=N` to the URL to make that rarer",
            );
        }
        note(self.hello("mode") == "cluster" || self.info("cluster_enabled") == "1", CLUSTER);
        note(settings.sentinels.is_some(), SENTINEL);
        found
    }
}

const FORGETFUL: &str = "class C: acknowledged writes can vanish, so every start and restart is followed by a quarantine of one \
                         ttl, and after a loss only the token keeps a former leader out; fence what you write with it";
const CLUSTER: &str = "a Redis Cluster promotes replicas that may lack the last writes";
const SENTINEL: &str = "Sentinels promote replicas that may lack the last writes";

/// `name:value` lines, as INFO has them.
fn lines(text: &str) -> Vec<(String, String)> {
    let split = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(split).collect()
}

/// Names and values in turn, or a map of them.
fn pairs(reply: Reply) -> Vec<(String, String)> {
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        Reply::Array(parts) => parts.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        _ => Vec::new(),
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::SimpleString(text) | Reply::VerbatimString { text, .. } => text.clone(),
        Reply::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(changes: &[(&str, &str)]) -> Facts {
        let mut facts = Facts::default();
        facts.hello.extend(map(&[("mode", "standalone"), ("role", "master"), ("version", "7.0.15")]));
        facts.info.extend(map(&[("run_id", "r"), ("maxmemory_policy", "noeviction"), (REPLICAS, "0")]));
        facts.config.extend(map(&[
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
        ]));
        for (name, value) in changes {
            for part in [&mut facts.hello, &mut facts.info, &mut facts.config] {
                part.entry((*name).to_owned()).and_modify(|old| *old = (*value).to_owned());
            }
        }
        facts
    }

    fn map(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn one_durable_server_is_class_b_and_every_weakness_makes_it_c() {
        let settings = RedisSettings::parse("redis://localhost").unwrap();
        let durable = facts(&[]).classify(&settings);
        assert_eq!((durable.class, durable.remarks.len()), (Class::B, 0), "{durable:?}");
        for (weakness, word) in [
            (("appendonly", "no"), "appendonly yes"),
            (("appendfsync", "everysec"), "appendfsync always"),
            (("no-appendfsync-on-rewrite", "yes"), "no-appendfsync-on-rewrite no"),
            (("maxmemory_policy", "allkeys-lru"), "noeviction"),
            ((REPLICAS, "1"), "replicas"),
            (("mode", "cluster"), "Cluster"),
        ] {
            let server = facts(&[weakness]).classify(&settings);
            assert_eq!((server.class, server.remarks.len()), (Class::C, 2), "{server:?}");
            assert!(server.remarks[1].contains(word), "{server:?}");
        }
        let hidden = Facts { info: BTreeMap::new(), ..facts(&[]) }.classify(&settings);
        assert_eq!((hidden.class, hidden.run), (Class::C, None));
        let sentinels = RedisSettings::parse("redis+sentinel://h:1/main").unwrap();
        assert_eq!(facts(&[]).classify(&sentinels).class, Class::C);
    }

    #[test]
    fn servers_that_cannot_take_writes_are_refused() {
        for (change, word) in [(("role", "replica"), "replica"), (("mode", "sentinel"), "redis+sentinel://")]
        {
            let error = facts(&[change]).refuse().unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(facts(&[]).refuse().is_ok());
    }
}
