//! What API servers and the network complain about: what may be assumed, and what to do.

use std::time::Duration;

use serde::Deserialize;
use tenure_store::StoreError;
use tenure_store::kit::http::{self, HttpAnswer, HttpError};

use super::STORE;

/// How long to wait after 429 if the server does not say.
const A_WHILE: Duration = Duration::from_secs(1);

/// A question that has no answer.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) then: Then,
}

/// What can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: every server would say the same.
    Tell,
    /// Another server may be better off.
    AskAnother,
    /// The token may have been replaced meanwhile.
    ReadToken,
    /// The server has too much to do, and asks for so long a pause.
    Wait(Duration),
}

/// What an API server says when it does not do what it was asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    kind: String,
}

impl Status {
    /// None if no API server said it.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok().filter(|status: &Self| status.code != 0)
    }

    /// Whether it is the namespace of Kubernetes that is missing.
    pub(super) fn is_of_namespace(&self) -> bool {
        self.reason == "NotFound" && self.details.kind == "namespaces"
    }
}

/// No answer came.
pub(super) fn unanswered(place: &str, error: &HttpError) -> Failure {
    Failure { error: error.to_store_error(STORE, place), then: Then::AskAnother }
}

/// No answer came in time.
pub(super) fn late(place: &str, waited: Duration) -> Failure {
    Failure { error: http::late(STORE, place, waited), then: Then::AskAnother }
}

/// An answer that says yes and cannot be read.
pub(super) fn strange(place: &str) -> StoreError {
    StoreError::unknown(
        STORE,
        format!("{place} gives an answer that no API server gives: see what stands between"),
    )
}

/// An answer that is not one of those that were asked for.
pub(super) fn refused(place: &str, answer: &HttpAnswer) -> Failure {
    let Some(status) = Status::read(&answer.body) else {
        // What stands between may have passed the request on.
        let message = format!("{place} answers {}, and not as an API server does", answer.status);
        return Failure { error: StoreError::unknown(STORE, message), then: Then::AskAnother };
    };
    let told = &status.message;
    let (words, then) = match answer.status {
        401 => (
            "it does not know this token or certificate: see whether it has expired".to_owned(),
            Then::ReadToken,
        ),
        403 if told.contains("being terminated") => (
            format!("the namespace is being deleted: create it anew, or name another one ({told})"),
            Then::Tell,
        ),
        403 => (
            format!("a right is missing: grant what `tenure schema --for kubernetes` prints ({told})"),
            Then::Tell,
        ),
        404 if status.is_of_namespace() => {
            (format!("the namespace does not exist: create it, or name another one ({told})"), Then::Tell)
        }
        429 => {
            let pause = answer.retry_after.unwrap_or(A_WHILE);
            (
                "it has too many requests (API priority and fairness): see who asks it so much".to_owned(),
                Then::Wait(pause),
            )
        }
        400 | 404 | 405 | 406 | 413 | 415 | 422 => (format!("it refuses this: {told}"), Then::Tell),
        // Anything else, 500, 503 and 504 above all, can come after a write was carried out.
        code => {
            let error = StoreError::unknown(STORE, format!("{place} says {code}: {told}"));
            return Failure { error, then: Then::AskAnother };
        }
    };
    // What a person has to do something about first. A token is replaced by the kubelet, and a namespace goes in a moment.
    let permanent = then == Then::Tell && !told.contains("being terminated");
    let error = StoreError::not_applied(STORE, format!("{place}: {words}")).permanent_if(permanent);
    Failure { error, then }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tenure_store::{Fate, Retry};

    use super::*;

    fn answer(status: u16, body: String) -> HttpAnswer {
        HttpAnswer { status, retry_after: Some(Duration::from_secs(3)), body: Bytes::from(body) }
    }

    #[test]
    fn only_what_the_server_refused_beforehand_is_proven() {
        let wait = Then::Wait(Duration::from_secs(3));
        for (code, message, fate, retry, then) in [
            (401, "Unauthorized", Fate::NotApplied, Retry::Soon, Then::ReadToken),
            (403, "User \\\"x\\\" cannot update", Fate::NotApplied, Retry::Never, Then::Tell),
            (403, "namespace x is being terminated", Fate::NotApplied, Retry::Soon, Then::Tell),
            (413, "Request entity too large", Fate::NotApplied, Retry::Never, Then::Tell),
            (422, "annotations size 1", Fate::NotApplied, Retry::Never, Then::Tell),
            (429, "too many requests", Fate::NotApplied, Retry::Soon, wait),
            (500, "etcdserver: leader changed", Fate::Unknown, Retry::Soon, Then::AskAnother),
            (503, "unavailable", Fate::Unknown, Retry::Soon, Then::AskAnother),
            (504, "timeout", Fate::Unknown, Retry::Soon, Then::AskAnother),
        ] {
            let body = format!("{{\"kind\":\"Status\",\"code\":{code},\"message\":\"{message}\"}}");
            let failure = refused("h:1", &answer(code, body));
            let found = (failure.error.fate(), failure.error.retry(), failure.then);
            assert_eq!(found, (fate, retry, then), "{code} {message}");
        }
        let proxy = refused("h:1", &answer(404, "<html>".to_owned()));
        assert_eq!(proxy.error.fate(), Fate::Unknown, "something stands between");
        assert_eq!(unanswered("h:1", &HttpError::Lost("x".into())).error.fate(), Fate::Unknown);
        assert_eq!(unanswered("h:1", &HttpError::Unsent("x".into())).error.fate(), Fate::NotApplied);
    }

    #[test]
    fn a_missing_namespace_is_told_from_a_missing_lease() {
        let of = |kind: &str| {
            format!(
                "{{\"code\":404,\"reason\":\"NotFound\",\"message\":\"m\",\"details\":{{\"kind\":\"{kind}\"}}}}"
            )
        };
        assert!(Status::read(of("namespaces").as_bytes()).unwrap().is_of_namespace());
        assert!(!Status::read(of("leases").as_bytes()).unwrap().is_of_namespace());
        let told = refused("h:1", &answer(404, of("namespaces"))).error;
        assert!(told.to_string().contains("does not exist") && told.retry() == Retry::Never, "{told}");
    }
}
