//! What providers and the network complain about: what may be assumed, and what to do.

use object_store::client::{HttpError, HttpErrorKind};
use tenure_store::StoreError;

use super::STORE;

/// What a person can do about a complaint: a code in the answer, words for it, and whether waiting helps.
struct Complaint {
    codes: &'static [&'static str],
    permanent: bool,
    words: &'static str,
}

/// Everything that is not here is shown by its code. The first that fits counts.
const COMPLAINTS: &[Complaint] = &[
    Complaint {
        codes: &["NoSuchBucket", "ContainerNotFound"],
        permanent: true,
        words: "the bucket does not exist: create it, or name another one",
    },
    Complaint {
        codes: &["RequestTimeTooSkewed"],
        permanent: false,
        words: "the clock of this host is wrong by minutes, so that its signatures are refused: set it",
    },
    Complaint {
        codes: &[
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "InvalidToken",
            "ExpiredToken",
            "AuthenticationFailed",
        ],
        permanent: true,
        words: "the endpoint refuses these credentials",
    },
    Complaint {
        codes: &[
            "AccessDenied",
            "AuthorizationFailure",
            "AuthorizationPermissionMismatch",
            "AllAccessDisabled",
        ],
        permanent: true,
        words: "these credentials may not read, list and write the objects under the prefix: grant what `tenure schema --for object` \
                prints",
    },
    Complaint {
        codes: &[
            "AuthorizationHeaderMalformed",
            "PermanentRedirect",
            "TemporaryRedirect",
            "IllegalLocationConstraintException",
        ],
        permanent: true,
        words: "the bucket is in another region: write region=REGION in the URL",
    },
    Complaint {
        codes: &["NotImplemented"],
        permanent: true,
        words: "the endpoint knows no conditional puts: it cannot carry elections",
    },
    Complaint {
        codes: &["SlowDown", "ServerBusy", "TooManyRequests", "RequestLimitExceeded"],
        permanent: false,
        words: "the endpoint has more requests than it takes: raise --ttl, or give busy clusters prefixes of their own",
    },
];

/// What an operation is told. Only what the endpoint refused, or what was never sent, is proven not to have happened; no part
/// of an answer but its code is shown, because providers repeat access keys in them.
pub(super) fn told(place: &str, error: &object_store::Error) -> StoreError {
    use object_store::Error;
    if let Some(failure) = cause(error) {
        let why = last_cause(failure);
        return match failure.kind() {
            HttpErrorKind::Connect => StoreError::not_applied(
                STORE,
                format!("{place} cannot be reached ({why}): see whether the endpoint answers there"),
            ),
            HttpErrorKind::Timeout => late(place),
            _ => {
                StoreError::unknown(STORE, format!("{place} broke off ({why}): look whether it was written"))
            }
        };
    }
    let text = tenure_store::with_causes(error);
    let (code, status) = (code(&text), status(&text));
    let shown = match (&code, status) {
        (Some(code), _) => code.clone(),
        (None, Some(status)) => format!("HTTP status {status}"),
        (None, None) => "an error without a code".to_owned(),
    };
    let fits = |complaint: &&Complaint| code.as_deref().is_some_and(|code| complaint.codes.contains(&code));
    let complaint = COMPLAINTS.iter().find(fits);
    let message = match complaint {
        Some(complaint) => format!("{place}: {} ({shown})", complaint.words),
        None => format!("{place} answers with {shown}"),
    };
    let refused = matches!(
        error,
        Error::NotFound { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::AlreadyExists { .. }
            | Error::Precondition { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
    ) || matches!(status, Some(400 | 405 | 411 | 501));
    let answer =
        if refused { StoreError::not_applied(STORE, message) } else { StoreError::unknown(STORE, message) };
    answer.permanent_if(complaint.is_some_and(|complaint| complaint.permanent))
}

/// No answer came in time.
pub(super) fn late(place: &str) -> StoreError {
    StoreError::unknown(STORE, format!("{place} did not answer in time: look whether it was written"))
}

/// Whether an answer that says "not found" means the bucket, and not one object.
pub(super) fn lacks_bucket(error: &object_store::Error) -> bool {
    let code = code(&tenure_store::with_causes(error));
    code.is_some_and(|code| COMPLAINTS[0].codes.contains(&code.as_str()))
}

/// What stopped a request on its way.
fn cause(error: &object_store::Error) -> Option<&HttpError> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref::<HttpError>() {
            return Some(found);
        }
        source = cause.source();
    }
    None
}

/// What the network said; what is above it repeats the URL.
fn last_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// The code in an answer: all three providers write XML.
fn code(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let plain = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| code.to_owned())
}

/// The status of an answer, as the library words it.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::Error;
    use tenure_store::{Fate, Retry};

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    fn refused(text: &str) -> Error {
        Error::PermissionDenied { path: "p".to_owned(), source: text.to_owned().into() }
    }

    #[test]
    fn only_what_was_refused_is_proven_and_no_answer_is_repeated() {
        for (error, fate, retry, part) in [
            (
                refused(
                    "status code: 403 Forbidden: <Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>hunter2</AWSAccessKeyId>",
                ),
                Fate::NotApplied,
                Retry::Never,
                "refuses these credentials",
            ),
            (
                refused("status code: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code>"),
                Fate::NotApplied,
                Retry::Soon,
                "clock of this host",
            ),
            (
                generic(
                    "Server returned non-2xx status code: 503 Service Unavailable: <Error><Code>SlowDown</Code>",
                ),
                Fate::Unknown,
                Retry::Soon,
                "more requests",
            ),
            (
                generic("Server returned non-2xx status code: 500 Internal Server Error: hunter2"),
                Fate::Unknown,
                Retry::Soon,
                "HTTP status 500",
            ),
            (
                generic(
                    "Server returned non-2xx status code: 400 Bad Request: <Code>AuthorizationHeaderMalformed</Code>",
                ),
                Fate::NotApplied,
                Retry::Never,
                "region=",
            ),
            (
                generic(
                    "Server returned non-2xx status code: 501 Not Implemented: <Code>NotImplemented</Code>",
                ),
                Fate::NotApplied,
                Retry::Never,
                "conditional puts",
            ),
            (generic("hunter2 <Code>hunter2 hunter2</Code>"), Fate::Unknown, Retry::Soon, "without a code"),
        ] {
            let told = told("s3://b/x", &error);
            assert_eq!((told.fate(), told.retry()), (fate, retry), "{told}");
            assert!(told.to_string().contains(part) && !told.to_string().contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn a_missing_bucket_is_told_from_a_missing_object() {
        let missing = |code: &str| Error::NotFound {
            path: "p".to_owned(),
            source: format!("status code: 404: <Code>{code}</Code>").into(),
        };
        assert!(lacks_bucket(&missing("NoSuchBucket")) && lacks_bucket(&missing("ContainerNotFound")));
        assert!(!lacks_bucket(&missing("NoSuchKey")) && !lacks_bucket(&missing("BlobNotFound")));
    }
}
