//! Who is asking, and whether it may: peer credentials or a token, `Host`, `Origin`, rate, time.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::limits::Priority;
use super::pace::paced;
use super::problem::Problem;
use super::tokens::{Scope, Token};
use super::{App, cost, is_probe, is_stream};
use crate::config::HttpConfig;
use crate::ui;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// How it came.
    pub transport: Transport,
    /// The connection itself, so that a stream can make its buffer small.
    pub wire: Option<Arc<OwnedFd>>,
    /// Whether the connection is beyond the limit: it may only send probes.
    pub spare: bool,
}

/// How a client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Through the Unix socket, as this user.
    Unix(u32),
    /// Through TCP, from there.
    Tcp(SocketAddr),
}

impl Transport {
    /// What its limits are counted by: a user, an address, or the network of one. All of this host's own addresses are one,
    /// because every user of it can come from any of them.
    #[must_use]
    pub fn client(self) -> String {
        let address = match self {
            Self::Unix(user) => return format!("uid {user}"),
            Self::Tcp(from) => from.ip().to_canonical(),
        };
        match address {
            _ if address.is_loopback() => "loopback".to_owned(),
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        }
    }
}

impl HttpConfig {
    /// How much a connection matters, as far as can be told before it says anything.
    #[must_use]
    pub fn priority(&self, transport: Transport) -> Priority {
        match transport {
            Transport::Unix(user) if self.operators.contains(&user) => Priority::Operator,
            Transport::Unix(_) => Priority::Known,
            Transport::Tcp(_) => Priority::Network,
        }
    }
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
    /// How much it matters when there is not room for all.
    pub priority: Priority,
    /// The token that it showed.
    pub token: Option<Arc<Token>>,
}

/// A client that was not let in.
enum Denied {
    /// It is told why.
    AtOnce(Problem),
    /// It has guessed too often: it is told why, and has to wait for it.
    Slowly(Problem),
}

impl From<Problem> for Denied {
    fn from(problem: Problem) -> Self {
        Self::AtOnce(problem)
    }
}

/// How long a client that guesses tokens waits for each further answer. Clients with the right one never wait, so that no client that
/// shares an address with a guesser is locked out.
const GUESS: Duration = Duration::from_secs(1);

/// A client that may act.
#[derive(Debug, Clone)]
pub struct Operating(pub Caller);

/// Lets a request in, or says why not; bounds its time; and says on every answer what browsers must not do with it.
pub async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let mut response = match check(&app, &request) {
        Ok(caller) => {
            let stream = is_stream(request.uri().path());
            let cost = cost(request.method(), request.uri().path());
            let client = caller.client.clone();
            request.extensions_mut().insert(caller);
            let answer = async {
                let _turn = match cost {
                    Some(cost) => app.turns.take(&client, cost).await,
                    None => None,
                };
                let response = next.run(request).await;
                if cost.is_some() { paced(&app.turns, &client, response).await } else { response }
            };
            if stream {
                answer.await
            } else {
                let limit = app.config.http.request_timeout;
                let late = || {
                    Problem::new(
                        StatusCode::GATEWAY_TIMEOUT,
                        format!("the request took longer than {limit:?}"),
                    )
                };
                tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| late().into_response())
            }
        }
        Err(Denied::AtOnce(problem)) => problem.into_response(),
        Err(Denied::Slowly(problem)) => {
            tokio::time::sleep(GUESS).await;
            problem.into_response()
        }
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

fn check(app: &App, request: &Request) -> Result<Caller, Denied> {
    let (path, headers) = (request.uri().path(), request.headers());
    let peer = request.extensions().get::<Peer>().cloned();
    let peer =
        peer.ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a connection without a peer"))?;
    check_names(request)?;
    if let Transport::Tcp(_) = peer.transport {
        check_host(&app.config.http, &app.addresses(), headers)?;
    }
    check_site(request)?;
    check_origin(headers)?;
    if peer.spare && !is_probe(path) {
        return Err(too_many(
            "cannot answer: too many open connections; close some, or raise http.connections",
        )
        .into());
    }
    let caller = identify(app, peer.transport, request)?;
    if !is_probe(path) && !app.rate.admits(&caller.client) {
        let rate = app.config.http.rate;
        return Err(too_many(&format!("more than {rate} requests per second")).into());
    }
    Ok(caller)
}

fn too_many(detail: &str) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
}

/// A request names its host once, and its site and its origin at most once: who reads the first of two, and who the second, is
/// how requests are smuggled.
fn check_names(request: &Request) -> Result<(), Problem> {
    for name in [header::HOST, header::ORIGIN] {
        if request.headers().get_all(&name).iter().count() > 1 {
            return Err(Problem::field(title(&name), "this header must be given once"));
        }
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    match (request.uri().authority(), host) {
        (Some(first), Some(second)) if !first.as_str().eq_ignore_ascii_case(second) => {
            Err(Problem::field("Host", "the request line names another host"))
        }
        _ => Ok(()),
    }
}

fn title(name: &HeaderName) -> &'static str {
    if *name == header::HOST { "Host" } else { "Origin" }
}

/// A name that another party pointed at this address is not ours (DNS rebinding).
fn check_host(http: &HttpConfig, addresses: &[SocketAddr], headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = without_port(host);
    let ours = ["localhost", "127.0.0.1", "[::1]"].contains(&name)
        || http.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
        || addresses.iter().any(|address| bracketed(*address) == name);
    if ours {
        return Ok(());
    }
    let detail = "unknown host; add the name to `http.hosts`";
    Err(Problem { field: Some("Host".to_owned()), ..Problem::new(StatusCode::MISDIRECTED_REQUEST, detail) })
}

/// What a browser sends for a page of another site is refused, whatever it asks for. A link to the page of this agent may stand
/// anywhere: that holds nothing of the cluster, and no page can frame it.
fn check_site(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|said| said == value);
    let link = says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document");
    let own = |site: &HeaderValue| site == "same-origin" || site == "none";
    if headers.get_all("sec-fetch-site").iter().all(own) || (link && ui::is_page(request.uri().path())) {
        return Ok(());
    }
    Err(foreign("Sec-Fetch-Site"))
}

fn foreign(field: &str) -> Problem {
    let detail = "pages of other origins may not call this agent";
    Problem { field: Some(field.to_owned()), ..Problem::new(StatusCode::FORBIDDEN, detail) }
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
    Err(foreign("Origin"))
}

fn identify(app: &App, transport: Transport, request: &Request) -> Result<Caller, Denied> {
    let http = &app.config.http;
    let from = match transport {
        Transport::Unix(_) => return Ok(unproven(http, transport)),
        Transport::Tcp(from) => from.ip().to_canonical(),
    };
    let tokens = app.access.tokens();
    // The page holds nothing of the cluster, and it is what asks people for their token.
    let Some(tokens) = tokens.filter(|_| !ui::is_page(request.uri().path())) else {
        return Ok(unproven(http, transport));
    };
    let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let needed =
        || Problem::new(StatusCode::UNAUTHORIZED, "a token is required: send Authorization: Bearer TOKEN");
    let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(needed)?;
    let Some(token) = tokens.find(shown) else {
        if !app.failures.admits(&transport.client()) {
            return Err(Denied::Slowly(too_many("too many wrong tokens; wait a minute")));
        }
        tracing::warn!(client = %from, "authentication failed: wrong token");
        return Err(needed().into());
    };
    let priority = if token.scope == Scope::Operator { Priority::Known } else { Priority::Network };
    let (who, client) = (format!("token {} from {from}", token.name), format!("token {}", token.name));
    Ok(Caller { who, client, scope: token.scope, priority, token: Some(token) })
}

/// A client of whom the kernel says who it is, or of whom nothing is asked.
fn unproven(http: &HttpConfig, transport: Transport) -> Caller {
    let (who, scope) = match transport {
        Transport::Unix(user) => {
            let name = crate::identity::account(user).unwrap_or_else(|| format!("uid {user}"));
            (name, if http.operators.contains(&user) { Scope::Operator } else { Scope::Read })
        }
        Transport::Tcp(from) => {
            let scope = if http.tokens.is_some() { Scope::Read } else { http.loopback };
            (from.ip().to_canonical().to_string(), scope)
        }
    };
    Caller { who, client: transport.client(), scope, priority: http.priority(transport), token: None }
}

impl Caller {
    /// Why it may not act, if it may not, and what would let it.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let who = &self.who;
        let how = match self.scope {
            Scope::Operator => return None,
            Scope::Read if self.client.starts_with("uid ") => "`http.operators` lists the users who may act",
            Scope::Read if who.starts_with("token") => "its token is read-only",
            Scope::Read => "set `http.loopback = \"operator\"` or `http.tokens` to allow it",
        };
        Some(format!("{who} may read, but not act: {how}"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let no_identity = || Problem::new(StatusCode::UNAUTHORIZED, "the client has no identity");
        parts.extensions.get::<Self>().cloned().ok_or_else(no_identity)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Operating {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        match caller.refusal() {
            None => Ok(Self(caller)),
            Some(why) => Err(Problem::new(StatusCode::FORBIDDEN, why)),
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
    fn a_named_user_may_act_and_others_may_look() {
        let scope = |key: &str, value: &str, transport: Transport| {
            let mut layers = crate::config::layers::Layers::default();
            layers.flag(key, value);
            let config = crate::config::Config::of(layers).unwrap();
            unproven(&config.http, transport).scope
        };
        let (ada, bob) = (Transport::Unix(4_000_001), Transport::Unix(4_000_002));
        assert_eq!(scope("http.operators", "4000001", ada), Scope::Operator);
        assert_eq!(scope("http.operators", "4000001", bob), Scope::Read);
        assert_eq!(scope("http.operators", "4000001", Transport::Unix(0)), Scope::Operator);
        let here = Transport::Tcp(([127, 0, 0, 1], 9).into());
        assert_eq!(scope("http.loopback", "operator", here), Scope::Operator);
        assert_eq!(scope("http.loopback", "read", here), Scope::Read);
    }

    /// Limits that are counted by address would otherwise be none for a client that has many.
    #[test]
    fn a_client_is_a_user_an_address_or_a_network() {
        for (address, client) in [
            ("127.0.0.1", "loopback"),
            ("127.9.9.9", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("10.0.0.7", "10.0.0.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(Transport::Tcp((address.parse::<IpAddr>().unwrap(), 9).into()).client(), client);
        }
        assert_eq!(Transport::Unix(7).client(), "uid 7");
    }

    #[test]
    fn ports_are_taken_off_names() {
        for (host, name) in [("a:1", "a"), ("a", "a"), ("[::1]:7", "[::1]"), ("[::1]", "[::1]"), ("", "")] {
            assert_eq!(without_port(host), name);
        }
    }
}
