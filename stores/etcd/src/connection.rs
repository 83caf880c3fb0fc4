//! The members: which one is asked, as whom, and what becomes of a question that one of them cannot answer.
//!
//! One member is asked until it fails, or keeps a question waiting; then the next is. A question that was not sent, that was
//! refused before anything was done, or that only reads, is put to the next at once. A write that was sent is never sent again:
//! its fate is unknown, and reading tells.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::error::{self, Failure, Then};
use super::messages::{Authenticate, Authenticated, Header};
use super::settings::{EtcdSettings, Login};
use tenure_store::kit::http::{HttpAnswer, HttpError, HttpRequest, Lines};
use tenure_store::kit::servers::{Choice, Servers};
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Fate, Signal, StoreError};

/// How long a member may take to check a password, which is slow by intention.
const LOGIN: Duration = Duration::from_secs(15);

/// Where the parts of etcd's API are.
pub(super) mod path {
    pub(in super::super) const TXN: &str = "/v3/kv/txn";
    pub(in super::super) const RANGE: &str = "/v3/kv/range";
    pub(in super::super) const WATCH: &str = "/v3/watch";
    pub(in super::super) const MEMBERS: &str = "/v3/cluster/member/list";
    pub(in super::super) const STATUS: &str = "/v3/maintenance/status";
    pub(in super::super) const ALARM: &str = "/v3/maintenance/alarm";
    pub(in super::super) const LEASE_GRANT: &str = "/v3/lease/grant";
    pub(in super::super) const LEASE_KEEP_ALIVE: &str = "/v3/lease/keepalive";
    pub(in super::super) const LEASE_REVOKE: &str = "/v3/lease/revoke";
    pub(super) const AUTHENTICATE: &str = "/v3/auth/authenticate";
}

/// Whether a question may be asked twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Writes,
}

/// The members of a handle.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) settings: Arc<EtcdSettings>,
    members: Arc<Servers>,
    watches: Arc<Watches>,
    token: Arc<tokio::sync::Mutex<Token>>,
    seen: Mutex<Option<Header>>,
}

/// What shows who asks.
#[derive(Clone, Default)]
enum Token {
    #[default]
    Unknown,
    /// The server has no users, and asks for none.
    NotNeeded,
    Held(Arc<str>),
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "Unknown",
            Self::NotNeeded => "NotNeeded",
            Self::Held(_) => "Held",
        })
    }
}

impl Members {
    pub(super) fn new(settings: Arc<EtcdSettings>, watches: Arc<Watches>) -> Result<Self, StoreError> {
        let members = Arc::new(Servers::new(settings.endpoints()?));
        Ok(Self { settings, members, watches, token: Arc::default(), seen: Mutex::default() })
    }

    /// Asks a member, and others if that one cannot answer, no longer than an operation may take.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        effect: Effect,
        path: &'static str,
        question: &impl Serialize,
    ) -> Result<T, StoreError> {
        let until = Instant::now() + self.settings.timeout;
        let body = json(question);
        let (mut others, mut logged_in) = (self.members.count().max(2), false);
        loop {
            let (choice, began) = (self.members.current(), Instant::now());
            let failure = match self.ask_one(choice, effect, path, &body, until).await {
                Ok(answer) => match serde_json::from_slice(&answer.body) {
                    Ok(read) => return Ok(read),
                    Err(_) => error::strange(&self.place(choice)),
                },
                Err(failure) => failure,
            };
            let harmless = effect == Effect::Reads || failure.error.fate() == Fate::NotApplied;
            match failure.then {
                Then::LogIn if !logged_in && self.settings.login.is_some() => logged_in = true,
                Then::AskAnother => {
                    self.members.leave(choice);
                    // Members that kept the question waiting are limited by the time that it may take.
                    others -= usize::from(began.elapsed() < self.settings.suspicion());
                    if !harmless || others == 0 || Instant::now() >= until {
                        return Err(failure.error);
                    }
                }
                Then::Tell | Then::LogIn => return Err(failure.error),
            }
        }
    }

    /// Asks for registers, of which only the latest state is of use: an answer that is older than one before it comes from
    /// other data.
    pub(super) async fn ask_latest<T: DeserializeOwned>(
        &self,
        effect: Effect,
        path: &'static str,
        question: &impl Serialize,
        header: impl Fn(&T) -> Header,
    ) -> Result<T, StoreError> {
        let before = *lock(&self.seen);
        let answer = self.ask(effect, path, question).await?;
        self.compare(before, header(&answer));
        Ok(answer)
    }

    /// Asks each member how it is; none if it does not answer.
    pub(super) async fn ask_each<T: DeserializeOwned>(
        &self,
        path: &'static str,
        question: &impl Serialize,
    ) -> Vec<(String, Option<T>)> {
        let (until, body) = (Instant::now() + self.settings.timeout, json(question));
        let one = |choice| {
            let body = body.clone();
            async move {
                let answer = self.send(choice, path, &body, until).await.ok();
                let read = answer.and_then(|answer| serde_json::from_slice(&answer.body).ok());
                (self.place(choice), read)
            }
        };
        futures_util::future::join_all(self.members.each().map(one)).await
    }

    /// Opens a stream at the member that is asked now. What is wrong with it is found in its first lines.
    pub(super) async fn open(
        &self,
        path: &'static str,
        question: &impl Serialize,
    ) -> Result<(Lines, Choice), StoreError> {
        let choice = self.members.current();
        let until = Instant::now() + self.settings.timeout;
        let opened = self.open_at(choice, path, json(question), until).await;
        opened.map(|lines| (lines, choice)).map_err(|failure| self.no_stream(choice, failure))
    }

    /// What to tell of a stream that failed with this; the member is left if another may be better off.
    pub(super) fn no_stream(&self, choice: Choice, failure: Failure) -> StoreError {
        if failure.then == Then::AskAnother {
            self.members.leave(choice);
        }
        failure.error
    }

    /// The token that was shown last is not valid any more.
    pub(super) async fn log_in_again(&self) {
        *self.token.lock().await = Token::Unknown;
    }

    /// Waits until another member is asked, or the same one anew.
    pub(super) async fn left(&self, choice: Choice) {
        self.members.left(choice).await;
    }

    /// The address of the member, for messages.
    pub(super) fn place(&self, choice: Choice) -> String {
        self.members.place(choice)
    }

    /// Whether a user is known to be needed. As long as nothing was asked, none is.
    pub(super) async fn has_users(&self) -> bool {
        matches!(*self.token.lock().await, Token::Held(_))
    }

    async fn ask_one(
        &self,
        choice: Choice,
        effect: Effect,
        path: &'static str,
        body: &Bytes,
        until: Instant,
    ) -> Result<HttpAnswer, Failure> {
        let began = Instant::now();
        let patience = match self.members.count() {
            1 => until,
            _ => until.min(began + self.settings.suspicion()),
        };
        let mut answer = std::pin::pin!(self.send(choice, path, body, until));
        if let Ok(answer) = timeout_at(patience, &mut answer).await {
            return answer;
        }
        // The next operation asks another member; only a read follows it there.
        self.members.leave(choice);
        let late = || error::late(&self.place(choice), began.elapsed());
        match effect {
            Effect::Reads => Err(late()),
            Effect::Writes => timeout_at(until, answer).await.unwrap_or_else(|_| Err(late())),
        }
    }

    /// One question to one member, with a token if the server has users.
    async fn send(
        &self,
        choice: Choice,
        path: &'static str,
        body: &Bytes,
        until: Instant,
    ) -> Result<HttpAnswer, Failure> {
        let token = self.token(choice, until).await?;
        let answer = self.post(choice, path, body.clone(), &token).await;
        let answer = answer.map_err(|error| self.unanswered(choice, &error))?;
        if answer.status == 200 {
            return Ok(answer);
        }
        let failure = error::refused(&self.place(choice), &answer);
        if failure.then == Then::LogIn {
            self.discard(&token).await;
        }
        Err(failure)
    }

    async fn open_at(
        &self,
        choice: Choice,
        path: &'static str,
        body: Bytes,
        until: Instant,
    ) -> Result<Lines, Failure> {
        let token = self.token(choice, until).await?;
        let request = request(path, body, &token);
        let member = &self.members[choice];
        let opened = timeout_at(until, member.open(&request, self.connecting())).await;
        let opened = opened.map_err(|_| error::late(&self.place(choice), self.settings.timeout))?;
        let (status, mut lines) = opened.map_err(|error| self.unanswered(choice, &error))?;
        if status == 200 {
            return Ok(lines);
        }
        let body = timeout_at(until, lines.next()).await.ok().and_then(Result::ok).flatten();
        let answer = HttpAnswer { status, retry_after: None, body: body.unwrap_or_default() };
        let failure = error::refused(&self.place(choice), &answer);
        if failure.then == Then::LogIn {
            self.discard(&token).await;
        }
        Err(failure)
    }

    async fn post(
        &self,
        choice: Choice,
        path: &'static str,
        body: Bytes,
        token: &Token,
    ) -> Result<HttpAnswer, HttpError> {
        self.members[choice].send(&request(path, body, token), self.connecting()).await
    }

    /// How long opening a connection may take: nothing has been sent by then, so that another member can be asked.
    fn connecting(&self) -> Duration {
        if self.members.count() == 1 { self.settings.timeout } else { self.settings.suspicion() }
    }

    /// The token, if there is a login. An operation that needs it while it is being asked for waits.
    async fn token(&self, choice: Choice, until: Instant) -> Result<Token, Failure> {
        if self.settings.login.is_none() {
            return Ok(Token::NotNeeded);
        }
        let late = || before(&error::late(&self.place(choice), self.settings.timeout));
        let token = timeout_at(until, self.token.clone().lock_owned()).await.map_err(|_| late())?;
        if !matches!(*token, Token::Unknown) {
            return Ok(token.clone());
        }
        // Goes on when this operation is over: members check passwords slowly, and many nodes that start at once would all
        // have to begin again, for ever.
        let login = log_in(self.members.clone(), choice, self.settings.clone(), token);
        match timeout_at(until, tokio::spawn(login)).await {
            Ok(Ok(found)) => found.map_err(|failure| before(&failure)),
            _ => Err(late()),
        }
    }

    /// No answer came. Where none ever did, the server may speak TLS, and hangs up on a client that does not.
    fn unanswered(&self, choice: Choice, error: &HttpError) -> Failure {
        let mut place = self.place(choice);
        if lock(&self.seen).is_none() && !self.settings.is_encrypted() && matches!(error, HttpError::Lost(_))
        {
            place = format!("if {place} speaks TLS, write etcds:// instead of etcd://; otherwise it");
        }
        error::unanswered(&place, error)
    }

    /// That token is not valid any more; another operation may have got a new one meanwhile.
    async fn discard(&self, used: &Token) {
        let mut token = self.token.lock().await;
        let same = match (&*token, used) {
            (Token::Held(held), Token::Held(used)) => held == used,
            (Token::NotNeeded, Token::NotNeeded) => true,
            _ => false,
        };
        if same {
            *token = Token::Unknown;
        }
    }

    /// Revisions only rise, and every answer shows the latest: one that was asked for after another had come, and shows less,
    /// or another cluster, has forgotten.
    fn compare(&self, before: Option<Header>, now: Header) {
        let mut seen = lock(&self.seen);
        let forgot = before
            .is_some_and(|before| before.cluster_id != now.cluster_id || before.revision > now.revision);
        let newer = seen.is_none_or(|seen| seen.revision < now.revision);
        if forgot || newer {
            *seen = Some(now);
        }
        drop(seen);
        if forgot {
            self.watches.send_all(&Signal::Forgot);
        }
    }
}

/// Shows the password to a member, and keeps the token that it gives for it.
async fn log_in(
    members: Arc<Servers>,
    choice: Choice,
    settings: Arc<EtcdSettings>,
    mut token: tokio::sync::OwnedMutexGuard<Token>,
) -> Result<Token, Failure> {
    let (member, place) = (&members[choice], members.place(choice));
    let Some(Login { user, password }) = &settings.login else { return Ok(Token::NotNeeded) };
    let question = json(&Authenticate { name: user, password });
    let question = request(path::AUTHENTICATE, question, &Token::NotNeeded);
    let answer = tokio::time::timeout(LOGIN, member.send(&question, settings.timeout)).await;
    let answer = answer.map_err(|_| error::late(&place, LOGIN))?;
    let answer = answer.map_err(|error| error::unanswered(&place, &error))?;
    *token = match answer.status {
        200 => match serde_json::from_slice::<Authenticated>(&answer.body) {
            Ok(found) => Token::Held(found.token.into()),
            Err(_) => return Err(error::strange(&place)),
        },
        _ if error::says_without_users(&answer) => Token::NotNeeded,
        _ => return Err(error::refused(&place, &answer)),
    };
    Ok(token.clone())
}

/// Nothing but the login was tried.
fn before(failure: &Failure) -> Failure {
    Failure { error: failure.error.clone().only_looked(), then: failure.then }
}

/// A member without a leader says so at once, and ends its streams, instead of keeping everything waiting.
fn request(path: &'static str, body: Bytes, token: &Token) -> HttpRequest {
    let mut headers = vec![("grpc-metadata-hasleader", "true".to_owned())];
    if let Token::Held(token) = token {
        headers.push(("authorization", token.to_string()));
    }
    HttpRequest { method: "POST", path: path.into(), headers, body }
}

fn json(question: &impl Serialize) -> Bytes {
    serde_json::to_vec(question).expect("questions serialise").into()
}
