//! Answers that are errors: `application/problem+json`, naming the field that is wrong.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::candidacies::CandidacyError;

/// Why a request was not answered as it was meant (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// The status again.
    pub status: u16,
    /// What kind of problem, in a few words.
    pub title: &'static str,
    /// What is wrong, and what to do about it.
    pub detail: String,
    /// The field that is wrong, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Problem {
    /// A problem with this status.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Problem");
        Self { status: status.as_u16(), title, detail: detail.into(), field: None }
    }

    /// A field of the request is wrong.
    #[must_use]
    pub fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(StatusCode::BAD_REQUEST, detail) }
    }

    /// What a field of the request names is not there.
    #[must_use]
    pub fn missing(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(StatusCode::NOT_FOUND, detail) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = crate::text::json(&self);
        let mut response = (status, body).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// A refusal of the library: the answer is no, or the store cannot be used.
impl From<tenure::Error> for Problem {
    fn from(error: tenure::Error) -> Self {
        use tenure::Error;
        let status = match &error {
            Error::Name(_) | Error::Timing(_) => StatusCode::BAD_REQUEST,
            Error::Store(_) | Error::Thread(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::NoSuchRole { .. } | Error::NoSuchTask { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, error.to_string())
    }
}

impl From<CandidacyError> for Problem {
    fn from(refused: CandidacyError) -> Self {
        let status = match &refused {
            CandidacyError::NotCandidate(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, refused.to_string())
    }
}
