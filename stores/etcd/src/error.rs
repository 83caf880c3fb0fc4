//! What etcd and the network complain about: what may be assumed, and what to do.

use tenure_store::kit::http::{self, HttpAnswer, HttpError};
use tenure_store::{Fate, StoreError};

use super::STORE;
use super::messages::Refusal;

/// A question that has no answer.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) then: Then,
}

/// What can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: every member would say the same.
    Tell,
    /// Another member may be better off.
    AskAnother,
    /// The token is worth nothing any more: the password gets another one.
    LogIn,
}

/// No answer came.
pub(super) fn unanswered(place: &str, error: &HttpError) -> Failure {
    let error = match error {
        HttpError::Lost(why) if why.contains("fatal alert") => StoreError::unknown(
            STORE,
            format!(
                "{place} refuses the encryption ({why}): if it asks for a certificate, add cert= and key= to the URL"
            ),
        ),
        _ => error.to_store_error(STORE, place),
    };
    Failure { error, then: Then::AskAnother }
}

/// No answer came in time.
pub(super) fn late(place: &str, waited: std::time::Duration) -> Failure {
    Failure { error: http::late(STORE, place, waited), then: Then::AskAnother }
}

/// An answer that is not the one that was asked for.
pub(super) fn refused(place: &str, answer: &HttpAnswer) -> Failure {
    match Refusal::read(&answer.body) {
        Some(told) => of_message(place, &told),
        None => stranger(place, answer),
    }
}

/// An answer that says yes and cannot be read.
pub(super) fn strange(place: &str) -> Failure {
    let message = format!("{place} gives an answer that no etcd gives: see what stands between");
    Failure { error: StoreError::unknown(STORE, message), then: Then::Tell }
}

fn stranger(place: &str, answer: &HttpAnswer) -> Failure {
    let status = answer.status;
    let (message, then) = if answer.body.windows(12).any(|text| text == b"HTTPS server") {
        (format!("{place} speaks TLS: write etcds:// instead of etcd://"), Then::Tell)
    } else if status == 404 {
        let message = format!(
            "{place} has no JSON gateway under /v3: etcd 3.4 or later is needed, without --enable-grpc-gateway=false"
        );
        (message, Then::AskAnother)
    } else {
        // What stands between may have passed the request on.
        let error = StoreError::unknown(STORE, format!("{place} answers {status}, and not as etcd does"));
        return Failure { error, then: Then::AskAnother };
    };
    Failure { error: StoreError::not_applied(STORE, message).permanent(), then }
}

/// What one complaint of etcd means.
struct Complaint {
    /// A part of what etcd says.
    says: &'static str,
    /// Not applied, or unknown.
    fate: Fate,
    permanent: bool,
    then: Then,
    /// What people are told.
    words: &'static str,
}

const fn proven(says: &'static str, then: Then, words: &'static str) -> Complaint {
    Complaint { says, fate: Fate::NotApplied, permanent: false, then, words }
}

const fn for_good(says: &'static str, words: &'static str) -> Complaint {
    Complaint { says, fate: Fate::NotApplied, permanent: true, then: Then::Tell, words }
}

/// Everything that is not here is shown as it is, and its fate is unknown. The first that fits counts.
const COMPLAINTS: &[Complaint] = &[
    proven("invalid auth token", Then::LogIn, "the token of this login is not valid any more"),
    proven("revision of auth store is old", Then::LogIn, "users or rights were changed meanwhile"),
    proven(
        "user name is empty",
        Then::LogIn,
        "the server asks for a user: write etcd://USER:PASSWORD@HOST, with the rights that `tenure schema --for etcd` prints",
    ),
    for_good("authentication failed", "the server refuses this user or password"),
    for_good(
        "permission denied",
        "this user may not read and write the keys under the prefix: grant it what `tenure schema --for etcd` prints",
    ),
    proven(
        "database space exceeded",
        Then::Tell,
        "the database is full, and takes no writes (alarm NOSPACE): compact it, defragment each member, then run \
         `etcdctl alarm disarm`; docs/stores/etcd.md has the commands",
    ),
    proven(
        "corrupt cluster",
        Then::Tell,
        "members have different data (alarm CORRUPT), and writes are refused: replace the member that differs",
    ),
    proven(
        "too many requests",
        Then::Tell,
        "the server has more requests than it can apply: see its load and its disk",
    ),
    for_good("request is too large", "the value is longer than the server takes: raise --max-request-bytes"),
    for_good("too many operations", "the server takes shorter transactions: raise --max-txn-ops to 128"),
    proven("not supported for learner", Then::AskAnother, "this member is a learner: name members that vote"),
    proven(
        "no leader",
        Then::AskAnother,
        "this member has no leader: see whether a majority of the members runs",
    ),
    proven("not capable", Then::AskAnother, "this member is starting"),
    Complaint {
        says: "request timed out",
        fate: Fate::Unknown,
        permanent: false,
        then: Then::AskAnother,
        words: "the members did not agree in time: see whether a majority of them runs, and how fast their disks are",
    },
    Complaint {
        says: "leader changed",
        fate: Fate::Unknown,
        permanent: false,
        then: Then::AskAnother,
        words: "the members chose another leader meanwhile",
    },
    Complaint {
        says: "server stopped",
        fate: Fate::Unknown,
        permanent: false,
        then: Then::AskAnother,
        words: "this member is being stopped",
    },
];

/// What etcd says, in words that say what to do.
pub(super) fn of_message(place: &str, told: &str) -> Failure {
    let Some(complaint) = COMPLAINTS.iter().find(|complaint| told.contains(complaint.says)) else {
        let error = StoreError::unknown(STORE, format!("{place} says: {told}"));
        return Failure { error, then: Then::AskAnother };
    };
    let message = format!("{place}: {}", complaint.words);
    let error = match complaint.fate {
        Fate::NotApplied => StoreError::not_applied(STORE, message),
        Fate::Unknown | Fate::Severed => StoreError::unknown(STORE, message),
    };
    Failure { error: error.permanent_if(complaint.permanent), then: complaint.then }
}

/// Whether the server has no users at all.
pub(super) fn says_without_users(answer: &HttpAnswer) -> bool {
    Refusal::read(&answer.body).is_some_and(|told| told.contains("authentication is not enabled"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tenure_store::Retry;

    use super::*;

    fn answer(status: u16, body: &'static str) -> HttpAnswer {
        HttpAnswer { status, retry_after: None, body: Bytes::from_static(body.as_bytes()) }
    }

    #[test]
    fn only_what_the_server_refused_beforehand_is_proven() {
        for (told, fate, then) in [
            ("etcdserver: invalid auth token", Fate::NotApplied, Then::LogIn),
            ("etcdserver: permission denied", Fate::NotApplied, Then::Tell),
            ("etcdserver: mvcc: database space exceeded", Fate::NotApplied, Then::Tell),
            ("etcdserver: no leader", Fate::NotApplied, Then::AskAnother),
            ("etcdserver: rpc not supported for learner", Fate::NotApplied, Then::AskAnother),
            (
                "etcdserver: request timed out, possibly due to connection lost",
                Fate::Unknown,
                Then::AskAnother,
            ),
            ("etcdserver: leader changed", Fate::Unknown, Then::AskAnother),
            ("whatever else", Fate::Unknown, Then::AskAnother),
        ] {
            let failure = of_message("h:1", told);
            assert_eq!((failure.error.fate(), failure.then), (fate, then), "{told}");
        }
        assert_eq!(unanswered("h:1", &HttpError::Lost("x".into())).error.fate(), Fate::Unknown);
        assert_eq!(unanswered("h:1", &HttpError::Unsent("x".into())).error.fate(), Fate::NotApplied);
    }

    #[test]
    fn what_is_no_etcd_is_told_what_to_do() {
        let tls = refused("h:1", &answer(400, "Client sent an HTTP request to an HTTPS server.\n"));
        assert!(tls.error.to_string().contains("etcds://"), "{tls:?}");
        let old = refused("h:1", &answer(404, "404 page not found\n"));
        assert!(old.error.to_string().contains("3.4") && old.error.retry() == Retry::Never, "{old:?}");
        let proxy = refused("h:1", &answer(502, "<html>bad gateway"));
        assert_eq!(proxy.error.fate(), Fate::Unknown);
    }
}
