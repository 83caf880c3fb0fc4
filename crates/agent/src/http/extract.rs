//! What comes with a request, each part with the name that a problem calls it by.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;
use tenure::{Name, Operator};
use utoipa::ToSchema;

use super::App;
use super::guard::Operating;
use super::problem::Problem;

/// A name of a role, a node, a task or an alert.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 100, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
pub struct NameText(pub String);

/// How long, such as `500ms` or `1h 30m`.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, pattern = "^[0-9]{1,9}(ms|s|m|h|d)( [0-9]{1,9}(ms|s|m|h|d))*$")]
pub struct SpanText(pub String);

/// The role, node, task or alert that the path names.
#[derive(Debug, Clone)]
pub struct Subject(pub Name);

impl<S: Send + Sync> FromRequestParts<S> for Subject {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<BTreeMap<String, String>>::from_request_parts(parts, state).await;
        let Path(path) = path.map_err(|error| Problem::field("path", error.body_text()))?;
        let (field, text) = path.into_iter().next().unwrap_or_default();
        Name::new(&text).map(Self).map_err(|error| Problem::field(field, error.to_string()))
    }
}

/// What comes after the question mark. Asking for a key makes it known; what is left over is refused.
#[derive(Debug)]
pub struct Params {
    given: BTreeMap<String, String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<BTreeMap<String, String>>::from_request_parts(parts, state).await;
        let Query(given) = query.map_err(|error| Problem::field("query", error.body_text()))?;
        Ok(Self { given })
    }
}

impl Params {
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.given.remove(key)
    }

    /// A name.
    ///
    /// # Errors
    /// If it is not one.
    pub fn name(&mut self, key: &str) -> Result<Option<Name>, Problem> {
        let name = self.given.remove(key).map(Name::new).transpose();
        name.map_err(|error| Problem::field(key, error.to_string()))
    }

    /// A number from 1 to `most`.
    ///
    /// # Errors
    /// If it is not one.
    pub fn number(&mut self, key: &str, default: usize, most: usize) -> Result<usize, Problem> {
        self.within(key, default, 1..=most)
    }

    /// A number within a range.
    ///
    /// # Errors
    /// If it is not one.
    pub fn within(
        &mut self,
        key: &str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> Result<usize, Problem> {
        let Some(text) = self.given.remove(key) else { return Ok(default) };
        let number = text.parse::<usize>().ok().filter(|number| range.contains(number));
        let (least, most) = range.into_inner();
        number.ok_or_else(|| Problem::field(key, format!("{key} must be a number from {least} to {most}")))
    }

    /// Nothing else was meant.
    ///
    /// # Errors
    /// If there is an unknown key.
    pub fn done(self) -> Result<(), Problem> {
        match self.given.into_keys().next() {
            Some(key) => Err(Problem::field(&key, format!("unknown parameter {key}"))),
            None => Ok(()),
        }
    }
}

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if kind.is_none_or(|kind| !kind.starts_with("application/json")) {
            let detail = "Content-Type must be application/json";
            let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
            return Err(Problem { field: Some("Content-Type".to_owned()), ..problem });
        }
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| Problem::new(error.status(), error.body_text()))?;
        // A list of values in the right order would do for a reader of structures.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::field("body", "the body must be a JSON object"));
        }
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let read = serde_path_to_error::deserialize(&mut json);
        let body = read.map_err(|error| wrong(&error.path().to_string(), error.inner().to_string()))?;
        json.end().map_err(|error| wrong("body", error.to_string()))?;
        Ok(Self(body))
    }
}

/// Which field it is: one that is missing, or one too many, is in the message; else it is where the reader stopped.
fn wrong(place: &str, text: String) -> Problem {
    let said = text.contains("field `").then(|| text.split('`').nth(1)).flatten();
    let field = said.unwrap_or(if place == "." { "body" } else { place }).to_owned();
    Problem::field(field, text)
}

/// What an operator asks of whatever the path names. A client that may not act is refused before anything else is looked at.
#[derive(Debug)]
pub struct OperatorCall<T> {
    /// What every request can reach.
    pub app: Arc<App>,
    /// The role, node, task or alert.
    pub subject: Name,
    /// What is asked.
    pub request: T,
    /// Does it, with who asked on record.
    pub operator: Operator,
}

/// What can be asked says for whom.
pub trait OnBehalfOf: DeserializeOwned {
    /// Whether it stands behind the question mark: what takes something back has no body.
    const IN_QUERY: bool = false;

    /// For whom the client asks, if not for itself.
    fn by(&self) -> Option<&str>;
}

impl<T: OnBehalfOf> FromRequest<Arc<App>> for OperatorCall<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Operating(caller) = Operating::from_request_parts(&mut parts, app).await?;
        let Subject(subject) = Subject::from_request_parts(&mut parts, app).await?;
        let request: T = if T::IN_QUERY {
            let query = Query::try_from_uri(&parts.uri);
            query.map_err(|error| wrong("query", error.body_text()))?.0
        } else {
            Body::from_request(Request::from_parts(parts, body), app).await?.0
        };
        // Who the client is comes from the connection; for whom it asks, it says itself.
        let operator = app.operator.acting_for(match request.by() {
            Some(by) if by != caller.who => format!("{by} (as {})", caller.who),
            _ => caller.who,
        });
        Ok(Self { app: app.clone(), subject, request, operator })
    }
}
