//! What Redis and the network complain about: what may be assumed, and what to do.

use redis::{ErrorKind, RedisError, ServerError};

use super::STORE;
use tenure_store::StoreError;

/// What the connection is health after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionHealth {
    /// It can be used on.
    Good,
    /// It must be made anew, and its server looked for again.
    Spent,
}

/// No connection came about: it is proven that nothing was sent.
pub(super) fn unreachable(place: &str, error: &RedisError) -> StoreError {
    if let Some(code) = error.code() {
        let (message, permanent) = explain(code, error.detail().unwrap_or_default());
        return StoreError::not_applied(STORE, message).permanent_if(permanent);
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            let (message, permanent) = explain("WRONGPASS", "");
            StoreError::not_applied(STORE, message).permanent_if(permanent)
        }
        _ => StoreError::not_applied(
            STORE,
            format!("{place} cannot be reached ({}): see whether it runs and listens there", plainly(error)),
        ),
    }
}

/// An operation that was sent failed: unless the server itself says that it refused, its fate is unknown.
pub(super) fn of_operation(error: &RedisError) -> (StoreError, ConnectionHealth) {
    match error.code() {
        Some(code) => of_code(code, error.detail().unwrap_or_default()),
        None => {
            let message = format!("the connection broke ({}): look whether it was written", plainly(error));
            (StoreError::unknown(STORE, message), ConnectionHealth::Spent)
        }
    }
}

/// One answer of a pipeline was an error.
pub(super) fn of_server(error: &ServerError) -> (StoreError, ConnectionHealth) {
    of_code(error.code(), error.details().unwrap_or_default())
}

/// A command within the script failed, and so did nothing; the script went on.
pub(super) fn in_script(text: &str) -> (StoreError, ConnectionHealth) {
    let text = text.trim_start_matches('-');
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    let denied = detail.contains("user executing the script") || detail.contains("ACL failure");
    let code = if denied { "NOPERM" } else { code };
    let (message, permanent) = explain(code, detail);
    (StoreError::not_applied(STORE, message).permanent_if(permanent), health_after(code))
}

/// No answer in time.
pub(super) fn timed_out(patience: std::time::Duration) -> StoreError {
    let patience = humantime::format_duration(patience);
    let message = format!(
        "no answer within {patience}: the server hangs, or the network does; look whether it was written"
    );
    StoreError::unknown(STORE, message)
}

/// Errors that come instead of running anything; every other may have come in the middle of it.
const BEFORE_ANYTHING: [&str; 16] = [
    "NOSCRIPT",
    "LOADING",
    "MASTERDOWN",
    "READONLY",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CROSSSLOT",
];

/// Errors after which another server, or another state of this one, is to be looked for.
const SPENT: [&str; 8] =
    ["LOADING", "MASTERDOWN", "READONLY", "NOAUTH", "CLUSTERDOWN", "MOVED", "ASK", "UNBLOCKED"];

fn of_code(code: &str, detail: &str) -> (StoreError, ConnectionHealth) {
    let (message, permanent) = explain(code, detail);
    let error = match BEFORE_ANYTHING.contains(&code) {
        true => StoreError::not_applied(STORE, message),
        false => StoreError::unknown(STORE, message),
    };
    (error.permanent_if(permanent), health_after(code))
}

fn health_after(code: &str) -> ConnectionHealth {
    if SPENT.contains(&code) { ConnectionHealth::Spent } else { ConnectionHealth::Good }
}

/// The message, and whether a person has to do something first. What the server says is shown only where it cannot
/// repeat what it was sent.
fn explain(code: &str, detail: &str) -> (String, bool) {
    let words = match code {
        "LOADING" => "the server is still loading its data: it goes on by itself",
        "READONLY" => "this server is a replica, which takes no writes: name the primary",
        "MASTERDOWN" => "this server is a replica that has lost its primary: name the primary",
        "NOAUTH" => "the server asks for a password: write redis://USER:PASSWORD@HOST, or :PASSWORD@HOST",
        "WRONGPASS" => "the server refuses this user or password",
        "NOPERM" => {
            return (
                format!(
                    "this user may not do that ({detail}): give it the permissions in docs/stores/redis.md"
                ),
                true,
            );
        }
        "OOM" => "the server's memory is full: raise maxmemory, or remove what else it keeps",
        "MISCONF" => "the server cannot save its data and takes no writes: see its log, free disk space",
        "NOREPLICAS" => "too few replicas are connected (min-replicas-to-write): see why",
        "BUSY" => "a script of another client holds up the server: SCRIPT KILL ends it",
        "CLUSTERDOWN" => "the Redis Cluster is down: see CLUSTER INFO",
        "MOVED" | "ASK" => "another node of the Redis Cluster has this namespace now",
        "CROSSSLOT" => "a proxy has spread one namespace over several servers: connect without it",
        "WRONGTYPE" => {
            let message =
                "a key of this namespace belongs to another program: use another namespace or database";
            return (message.to_owned(), true);
        }
        "NOPROTO" => "the server is too old: Redis 6 or later is needed",
        _ => return (format!("the server says {code} {detail}"), false),
    };
    (words.to_owned(), matches!(code, "NOAUTH" | "WRONGPASS" | "CROSSSLOT" | "NOPROTO"))
}

/// What went wrong between here and the server, in words without addresses or secrets.
fn plainly(error: &RedisError) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Fate;

    use super::*;
    use tenure_store::Retry;

    #[test]
    fn only_what_the_server_refused_beforehand_is_proven() {
        for code in BEFORE_ANYTHING {
            assert_eq!(of_code(code, "").0.fate(), Fate::NotApplied, "{code}");
        }
        for code in ["ERR", "EXECABORT", "UNBLOCKED", "WHATEVER"] {
            assert_eq!(of_code(code, "").0.fate(), Fate::Unknown, "{code}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        let (error, connection) = of_operation(&broken);
        assert_eq!((error.fate(), connection), (Fate::Unknown, ConnectionHealth::Spent));
        assert_eq!(unreachable("h", &broken).fate(), Fate::NotApplied);
    }

    #[test]
    fn each_refusal_has_its_own_words_and_says_what_to_do() {
        let mut messages: Vec<_> = BEFORE_ANYTHING.iter().map(|code| explain(code, "").0).collect();
        messages.sort();
        messages.dedup();
        // MOVED and ASK say the same; NOSCRIPT is answered by sending the script.
        assert_eq!(messages.len(), BEFORE_ANYTHING.len() - 1, "{messages:#?}");
        assert_eq!(
            in_script("-READONLY You can't write against a read only replica.").1,
            ConnectionHealth::Spent
        );
        assert_eq!(in_script("NOPERM x").0.retry(), Retry::Never);
        assert_eq!(in_script("OOM x").0.retry(), Retry::Soon);
    }
}
