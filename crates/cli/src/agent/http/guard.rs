//! Who is asking, and whether it may: peer credentials or a token, `Host`, `Origin`, rate, time.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::tokens::Scope;
use super::{App, is_stream};
use crate::agent::config::HttpConfig;
use crate::agent::ui;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// How it came.
    pub way: Way,
    /// The connection itself, so that a stream can make its buffer small.
    pub wire: Option<Arc<OwnedFd>>,
}

/// How a client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the Unix socket, as this user.
    Unix(u32),
    /// Through TCP, from there.
    Tcp(SocketAddr),
}

/// A client that was let in.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who, for the audit trail.
    pub who: String,
    /// What its limits are counted by.
    pub client: String,
    /// What it may do.
    pub scope: Scope,
}

/// A client that may act.
#[derive(Debug, Clone)]
pub struct Acting(pub Caller);

/// Lets a request in, or says why not; bounds its time; and says on every answer what browsers must not do with it.
pub async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let mut response = match check(&app, &request) {
        Ok(caller) => {
            let stream = is_stream(request.uri().path());
            request.extensions_mut().insert(caller);
            let answer = next.run(request);
            if stream {
                answer.await
            } else {
                let limit = app.config.http.request_timeout;
                let late = || Problem::new(StatusCode::GATEWAY_TIMEOUT, format!("not done within {limit:?}"));
                tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| late().into_response())
            }
        }
        Err(problem) => problem.into_response(),
    };
    for (name, value) in HEADERS {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// What is said on every answer.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

fn check(app: &App, request: &Request) -> Result<Caller, Problem> {
    let peer = request.extensions().get::<Peer>().cloned();
    let peer =
        peer.ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a connection without a peer"))?;
    if let Way::Tcp(_) = peer.way {
        check_host(&app.config.http, &app.addresses(), request.headers())?;
    }
    check_origin(request.headers())?;
    let caller = identify(&app.config.http, peer.way, request)?;
    if !app.rate.admits(&caller.client) {
        let rate = app.config.http.rate;
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("more than {rate} requests a second"),
        ));
    }
    Ok(caller)
}

/// A name that was pointed at this address by somebody else is not ours (DNS rebinding).
fn check_host(http: &HttpConfig, addresses: &[SocketAddr], headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = without_port(host);
    let ours = ["localhost", "127.0.0.1", "[::1]"].contains(&name)
        || http.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
        || addresses.iter().any(|address| bracketed(*address) == name);
    if ours {
        return Ok(());
    }
    let detail = "this agent is not called that; `http.hosts` lists the names under which it is reached";
    Err(Problem { field: Some("Host".to_owned()), ..Problem::new(StatusCode::MISDIRECTED_REQUEST, detail) })
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn bracketed(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// A page of another origin has no business here.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let origin = origin.to_str().unwrap_or_default();
    let same =
        origin.split_once("://").is_some_and(|(_, rest)| !host.is_empty() && rest.eq_ignore_ascii_case(host));
    if same {
        return Ok(());
    }
    let detail = "pages of other origins may not ask this agent";
    Err(Problem { field: Some("Origin".to_owned()), ..Problem::new(StatusCode::FORBIDDEN, detail) })
}

fn identify(http: &HttpConfig, way: Way, request: &Request) -> Result<Caller, Problem> {
    match (way, &http.tokens) {
        (Way::Unix(user), _) => {
            let scope = if http.operators.contains(&user) { Scope::Operator } else { Scope::Read };
            let name = crate::verbs::account(user).unwrap_or_else(|| format!("uid {user}"));
            Ok(Caller { who: name, client: format!("uid {user}"), scope })
        }
        (Way::Tcp(from), None) => {
            let client = from.ip().to_string();
            Ok(Caller { who: client.clone(), client, scope: http.loopback })
        }
        // The page holds nothing of the cluster, and it is what asks people for their token.
        (Way::Tcp(from), Some(_)) if ui::is_page(request.uri().path()) => {
            let client = from.ip().to_string();
            Ok(Caller { who: client.clone(), client, scope: Scope::Read })
        }
        (Way::Tcp(from), Some(tokens)) => {
            let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
            let detail = "a token is needed: Authorization: Bearer TOKEN";
            let scope = tokens.scope(shown).ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, detail))?;
            let client = from.ip().to_string();
            Ok(Caller { who: format!("token from {client}"), client, scope })
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let nobody = || Problem::new(StatusCode::UNAUTHORIZED, "nobody is asking");
        parts.extensions.get::<Self>().cloned().ok_or_else(nobody)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Acting {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        match caller.scope {
            Scope::Operator => Ok(Self(caller)),
            Scope::Read => {
                Err(Problem::new(StatusCode::FORBIDDEN, format!("{} may look, but not act", caller.who)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        all.iter().map(pair).collect()
    }

    #[test]
    fn only_pages_of_this_agent_may_ask_it() {
        for (host, origin, fine) in [
            ("localhost:1", "http://localhost:1", true),
            ("a.example", "https://a.example", true),
            ("localhost:1", "http://localhost:2", false),
            ("localhost:1", "http://evil.example", false),
            ("localhost:1", "null", false),
            ("", "http://", false),
        ] {
            let found = check_origin(&headers(&[("host", host), ("origin", origin)])).is_ok();
            assert_eq!(found, fine, "{origin} on {host}");
        }
        assert!(check_origin(&headers(&[])).is_ok());
    }

    /// Who may act where no token is asked for: `http.operators` through the socket, `http.loopback` over TCP.
    #[test]
    fn whoever_is_named_may_act_and_others_may_look() {
        let scope = |key: &str, value: &str, way: Way| {
            let mut layers = crate::agent::config::layers::Layers::default();
            layers.flag(key, value);
            let config = crate::agent::config::Config::of(layers).unwrap();
            identify(&config.http, way, &Request::default()).unwrap().scope
        };
        let (ada, bob) = (Way::Unix(4_000_001), Way::Unix(4_000_002));
        assert_eq!(scope("http.operators", "4000001", ada), Scope::Operator);
        assert_eq!(scope("http.operators", "4000001", bob), Scope::Read);
        assert_eq!(scope("http.operators", "4000001", Way::Unix(0)), Scope::Operator);
        let here = Way::Tcp(([127, 0, 0, 1], 9).into());
        assert_eq!(scope("http.loopback", "operator", here), Scope::Operator);
        assert_eq!(scope("http.loopback", "read", here), Scope::Read);
    }

    #[test]
    fn ports_are_taken_off_names() {
        for (host, name) in [("a:1", "a"), ("a", "a"), ("[::1]:7", "[::1]"), ("[::1]", "[::1]"), ("", "")] {
            assert_eq!(without_port(host), name);
        }
    }
}
