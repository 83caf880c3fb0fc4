//! What NATS and the network complain about: what may be assumed, and what to do.

use serde::Deserialize;
use tenure_store::{Fate, StoreError};

use super::STORE;
use super::wire::Info;

/// The first version that gives the last message of several subjects at once, and lets markers of deletions expire.
const OLDEST: (u32, u32) = (2, 11);

/// What JetStream answers instead of what was asked for.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub(super) err_code: u32,
    #[serde(default)]
    pub(super) description: String,
}

/// The errors of JetStream that are told apart.
pub(super) mod code {
    pub(in super::super) const STREAM_NOT_FOUND: u32 = 10059;
    pub(in super::super) const STREAM_EXISTS: u32 = 10058;
    pub(in super::super) const WRONG_SEQUENCE: u32 = 10071;
    /// Another write of the same subject is under way.
    pub(in super::super) const WRITE_UNDER_WAY: u32 = 10164;
    pub(in super::super) const UNAVAILABLE: u32 = 10008;
}

/// Whether a server can be used, as it says itself.
pub(super) fn check_server(place: &str, info: &Info, encrypted: bool) -> Result<(), StoreError> {
    let refuse = |message: String| Err(StoreError::not_applied(STORE, message).permanent());
    let mut parts = info.version.split('.').map(|part| part.parse().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version < OLDEST || !info.headers {
        return refuse(format!("{place} is NATS {}: 2.11 or later is needed", info.version));
    }
    match (encrypted, info.tls_required, info.tls_available) {
        (false, true, _) => refuse(format!("{place} speaks TLS: write tls:// instead of nats://")),
        (true, false, false) => {
            refuse(format!("{place} does not speak TLS: give it a certificate, or write nats://"))
        }
        _ => Ok(()),
    }
}

/// A server that ends a connection before anything was asked says why.
pub(super) fn refused(place: &str, why: &str, info: &Info) -> StoreError {
    let lower = why.to_ascii_lowercase();
    let message = if lower.contains("permissions violation") {
        format!(
            "{place}: this user may not listen to its answers: give it the rights that `tenure schema --for nats` prints"
        )
    } else if lower.contains("authorization") || lower.contains("authentication") {
        match info.auth_required {
            true => {
                format!("{place} refuses this login: write nats://USER:PASSWORD@HOST, or add creds= or nkey=")
            }
            false => format!("{place} refuses this login"),
        }
    } else {
        return StoreError::not_applied(STORE, format!("{place} says: {why}"));
    };
    StoreError::not_applied(STORE, message).permanent()
}

/// No server listens to that subject: nothing was received.
pub(super) fn unheard(place: &str) -> StoreError {
    let message = format!(
        "{place} knows no server that has the bucket now: its stream has no leader yet, or JetStream is off; see \
         `nats stream info`"
    );
    StoreError::not_applied(STORE, message)
}

pub(super) fn forbidden(place: &str) -> StoreError {
    let message = format!(
        "{place}: this user may not ask for that: give it the rights that `tenure schema --for nats` prints"
    );
    StoreError::not_applied(STORE, message).permanent()
}

/// What JetStream refuses before anything is written, and what may only be so at one of several replicas.
const COMPLAINTS: &[(u32, Fate, &str)] = &[
    (
        10077,
        Fate::NotApplied,
        "the bucket is full (max_bytes, max_msgs), or a value too long: raise its limits",
    ),
    (10054, Fate::NotApplied, "the value is longer than the bucket takes: raise its max_msg_size"),
    (10109, Fate::NotApplied, "the bucket is sealed, and takes no writes"),
    (10039, Fate::NotApplied, "JetStream is not on for this account"),
    (10076, Fate::NotApplied, "JetStream is off: start the servers with -js"),
    (
        10005,
        Fate::NotApplied,
        "too few servers for that many replicas: add servers, or add replicas=1 to the URL",
    ),
    (10074, Fate::NotApplied, "one server cannot hold several replicas: add replicas=1 to the URL"),
    (
        code::STREAM_NOT_FOUND,
        Fate::NotApplied,
        "the bucket is not there: run what `tenure schema --for nats` prints",
    ),
    (
        code::UNAVAILABLE,
        Fate::NotApplied,
        "JetStream has no leader now: see whether a majority of the servers runs",
    ),
    (10047, Fate::Unknown, "the servers have no storage left: make room, or raise max_file_store"),
    (10023, Fate::Unknown, "the servers have no resources left: see their disks, and max_file_store"),
    (10002, Fate::Unknown, "the account has no storage left: raise its limit"),
    (10028, Fate::Unknown, "the account has no memory left: raise its limit"),
];

/// What JetStream says, in words that say what to do. Everything that is not known is unknown.
pub(super) fn of_refusal(place: &str, refusal: &Refusal) -> StoreError {
    let (message, fate) = match COMPLAINTS.iter().find(|(known, ..)| *known == refusal.err_code) {
        Some((_, fate, words)) => (format!("{place}: {words}"), *fate),
        None => (format!("{place} says: {} ({})", refusal.description, refusal.err_code), Fate::Unknown),
    };
    match fate {
        Fate::NotApplied => StoreError::not_applied(STORE, message),
        Fate::Unknown | Fate::Severed => StoreError::unknown(STORE, message),
    }
}

#[cfg(test)]
mod tests {
    use super::super::PRODUCT;
    use super::*;

    #[test]
    fn only_what_the_server_refused_is_proven() {
        let told = |err_code| of_refusal("h:1", &Refusal { err_code, description: "x".into() }).fate();
        assert_eq!(told(10077), Fate::NotApplied);
        assert_eq!(told(code::UNAVAILABLE), Fate::NotApplied);
        assert_eq!(told(10023), Fate::Unknown);
        assert_eq!(told(1), Fate::Unknown);
        assert_eq!(PRODUCT.lost("h:1").fate(), Fate::Unknown);
        assert_eq!(unheard("h:1").fate(), Fate::NotApplied);
        assert_eq!(PRODUCT.lost("h:1").only_looked().fate(), Fate::NotApplied);
    }

    #[test]
    fn servers_that_cannot_be_used_are_told_what_to_do() {
        let info = Info { version: "2.15.2".into(), headers: true, ..Info::default() };
        assert!(check_server("h:1", &info, false).is_ok());
        for (info, encrypted, part) in [
            (Info { version: "2.9.10".into(), ..info.clone() }, false, "2.11"),
            (Info { tls_required: true, ..info.clone() }, false, "tls://"),
            (info.clone(), true, "certificate"),
        ] {
            let error = check_server("h:1", &info, encrypted).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let wrong = refused("h:1", "Authorization Violation", &Info { auth_required: true, ..info });
        assert!(wrong.to_string().contains("creds="), "{wrong}");
    }
}
