//! The API servers: which one is asked, as whom, and what becomes of a question that one of them cannot answer.
//!
//! One server is asked until it fails, or keeps a question waiting; then the next is. A question that was not sent, that was
//! refused before anything was done, or that only reads, is asked again. A write that was sent is never sent again: its fate is
//! unknown, and reading tells.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use super::STORE;
use super::error::{self, Failure, Status, Then};
use super::kubeconfig::Credential;
use super::leases::Held;
use super::settings::KubernetesSettings;
use tenure_store::kit::http::{HttpAnswer, HttpRequest, Lines};
use tenure_store::kit::servers::{Choice, Servers};
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Fate, Signal, StoreError};

/// How old the token in memory may be. The kubelet that replaces the file leaves the one before valid for longer than that.
const TOKEN_AGE: Duration = Duration::from_secs(30);

/// So many Leases are remembered at most: more are those of long ago.
const REMEMBERED: usize = 1 << 16;

/// Whether a question may be asked twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Writes,
}

/// What an API server is asked.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Bytes,
}

/// The answers that mean something to those who ask; all others are failures.
#[derive(Debug)]
pub(super) enum Reply {
    /// 200, 201.
    Done(Bytes),
    /// 404: there is no such Lease.
    Absent,
    /// 409: it is there already, or has another revision.
    Conflict,
    /// 410: what was to be gone on with is forgotten.
    Gone,
}

/// The API servers of a handle, and what is known of the Leases there.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) settings: Arc<KubernetesSettings>,
    pub(super) servers: Servers,
    watches: Arc<Watches>,
    token: Mutex<Option<Token>>,
    held: Mutex<HashMap<String, Held>>,
    /// The highest revision that an answer has shown, and the highest that a write of ours got.
    seen: Mutex<Revisions>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Revisions {
    shown: u64,
    written: u64,
}

/// A token that was read from a file.
#[derive(Clone)]
struct Token {
    text: Arc<str>,
    read: Instant,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Question {
    pub(super) fn get(path: String) -> Self {
        Self { method: "GET", path, body: Bytes::new() }
    }

    pub(super) fn with(method: &'static str, path: String, body: &impl serde::Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("questions serialise").into();
        Self { method, path, body }
    }
}

impl Cluster {
    pub(super) fn new(settings: Arc<KubernetesSettings>, watches: Arc<Watches>) -> Result<Self, StoreError> {
        let servers = Servers::new(settings.endpoints()?);
        let (token, held, seen) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { settings, servers, watches, token, held, seen })
    }

    /// Asks a server, and others if that one cannot answer, no longer than an operation may take.
    pub(super) async fn ask(&self, effect: Effect, question: &Question) -> Result<Reply, StoreError> {
        let until = Instant::now() + self.settings.timeout;
        let (mut others, mut read_token) = (self.servers.count().max(2), false);
        loop {
            let (choice, began) = (self.servers.current(), Instant::now());
            let failure = match self.ask_one(choice, effect, question, until).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let harmless = effect == Effect::Reads || failure.error.fate() == Fate::NotApplied;
            match failure.then {
                // Once: another operation may have read it anew already.
                Then::ReadToken if !read_token && self.forget_token() => read_token = true,
                Then::Wait(pause) if Instant::now() + pause < until => sleep(pause).await,
                Then::AskAnother => {
                    self.servers.leave(choice);
                    // Servers that kept the question waiting are limited by the time that it may take.
                    others -= usize::from(began.elapsed() < self.settings.suspicion());
                    if !harmless || others == 0 || Instant::now() >= until {
                        return Err(failure.error);
                    }
                }
                Then::Tell | Then::ReadToken | Then::Wait(_) => return Err(failure.error),
            }
        }
    }

    /// Asks something that is only read, and of which there is an answer whenever all is well.
    pub(super) async fn read<T: DeserializeOwned>(&self, question: &Question) -> Result<T, StoreError> {
        match self.ask(Effect::Reads, question).await? {
            Reply::Done(body) => serde_json::from_slice(&body).map_err(|_| self.strange()),
            Reply::Absent | Reply::Conflict | Reply::Gone => Err(self.strange()),
        }
    }

    /// Opens a stream at the server that is asked now.
    pub(super) async fn open(&self, path: String) -> Result<(Lines, Choice), StoreError> {
        let (choice, until) = (self.servers.current(), Instant::now() + self.settings.timeout);
        let opened = self.open_at(choice, &Question::get(path), until).await;
        let opened = opened.map_err(|failure| {
            match failure.then {
                Then::AskAnother => self.servers.leave(choice),
                Then::ReadToken => drop(self.forget_token()),
                Then::Tell | Then::Wait(_) => {}
            }
            failure.error
        });
        Ok((opened?, choice))
    }

    /// What was last known of a Lease.
    pub(super) fn held(&self, lease: &str) -> Option<Held> {
        lock(&self.held).get(lease).cloned()
    }

    /// What is known of a Lease now, unless something later is.
    pub(super) fn remember(&self, lease: &str, now: Held) {
        let mut held = lock(&self.held);
        if held.get(lease).is_some_and(|known| known.revision > now.revision) {
            return;
        }
        if held.len() >= REMEMBERED {
            held.clear();
        }
        held.insert(lease.to_owned(), now);
    }

    /// A Lease is gone, or not as it was known.
    pub(super) fn forget(&self, lease: &str) {
        lock(&self.held).remove(lease);
    }

    /// The highest revision that was shown before a question is asked, for [`Cluster::compare`].
    pub(super) fn revision(&self) -> u64 {
        lock(&self.seen).shown
    }

    /// The highest revision that a write of this handle got: a watch has to come to it.
    pub(super) fn written(&self) -> u64 {
        lock(&self.seen).written
    }

    /// A write of this handle got that revision.
    pub(super) fn note_written(&self, before: u64, now: u64) {
        let mut seen = lock(&self.seen);
        seen.written = seen.written.max(now);
        drop(seen);
        self.compare(before, now);
    }

    /// Revisions only rise, and lists and writes show the latest: one that was asked for after another had come, and shows less,
    /// comes from older data.
    pub(super) fn compare(&self, before: u64, now: u64) {
        let mut seen = lock(&self.seen);
        let forgot = before > now;
        if forgot {
            *seen = Revisions { shown: now, written: now };
        }
        seen.shown = seen.shown.max(now);
        drop(seen);
        if forgot {
            lock(&self.held).clear();
            self.watches.send_all(&Signal::Forgot);
        }
    }

    pub(super) fn strange(&self) -> StoreError {
        error::strange(&self.servers.place(self.servers.current()))
    }

    async fn ask_one(
        &self,
        choice: Choice,
        effect: Effect,
        question: &Question,
        until: Instant,
    ) -> Result<Reply, Failure> {
        let began = Instant::now();
        let patience = match self.servers.count() {
            1 => until,
            _ => until.min(began + self.settings.suspicion()),
        };
        let mut reply = std::pin::pin!(self.send(choice, question));
        if let Ok(reply) = timeout_at(patience, &mut reply).await {
            return reply;
        }
        // Later questions go to another server; only a read follows them there.
        self.servers.leave(choice);
        let late = || error::late(&self.servers.place(choice), began.elapsed());
        match effect {
            Effect::Reads => Err(late()),
            Effect::Writes => timeout_at(until, reply).await.unwrap_or_else(|_| Err(late())),
        }
    }

    async fn send(&self, choice: Choice, question: &Question) -> Result<Reply, Failure> {
        let request = self.request(question)?;
        let answer = self.servers[choice].send(&request, self.connecting()).await;
        let place = self.servers.place(choice);
        let answer = answer.map_err(|error| error::unanswered(&place, &error))?;
        let told = || Status::read(&answer.body);
        match answer.status {
            200 | 201 => Ok(Reply::Done(answer.body)),
            404 if told().is_some_and(|told| told.reason == "NotFound" && !told.is_of_namespace()) => {
                Ok(Reply::Absent)
            }
            409 if told().is_some() => Ok(Reply::Conflict),
            410 if told().is_some() => Ok(Reply::Gone),
            _ => Err(error::refused(&place, &answer)),
        }
    }

    async fn open_at(&self, choice: Choice, question: &Question, until: Instant) -> Result<Lines, Failure> {
        let (request, place) = (self.request(question)?, self.servers.place(choice));
        let opened = timeout_at(until, self.servers[choice].open(&request, self.connecting())).await;
        let opened = opened.map_err(|_| error::late(&place, self.settings.timeout))?;
        let (status, mut lines) = opened.map_err(|error| error::unanswered(&place, &error))?;
        if status == 200 {
            return Ok(lines);
        }
        let body = timeout_at(until, lines.next()).await.ok().and_then(Result::ok).flatten();
        let answer = HttpAnswer { status, retry_after: None, body: body.unwrap_or_default() };
        Err(error::refused(&place, &answer))
    }

    /// How long opening a connection may take: nothing has been sent by then, so that another server can be asked.
    fn connecting(&self) -> Duration {
        if self.servers.count() == 1 { self.settings.timeout } else { self.settings.suspicion() }
    }

    fn request(&self, question: &Question) -> Result<HttpRequest, Failure> {
        let headers = match self.token()? {
            Some(token) => {
                vec![("accept", "application/json".to_owned()), ("authorization", format!("Bearer {token}"))]
            }
            None => vec![("accept", "application/json".to_owned())],
        };
        let (method, path, body) = (question.method, question.path.clone().into(), question.body.clone());
        Ok(HttpRequest { method, path, headers, body })
    }

    /// The token; one in a file is read again from time to time, because it is replaced there.
    fn token(&self) -> Result<Option<Arc<str>>, Failure> {
        let file = match &self.settings.credential {
            Credential::None => return Ok(None),
            Credential::Token(token) => return Ok(Some(token.as_str().into())),
            Credential::TokenFile(file) => file,
        };
        let mut token = lock(&self.token);
        if let Some(known) = token.as_ref().filter(|known| known.read.elapsed() < TOKEN_AGE) {
            return Ok(Some(known.text.clone()));
        }
        match read_token(file) {
            Ok(text) => {
                *token = Some(Token { text: text.clone(), read: Instant::now() });
                Ok(Some(text))
            }
            // While it is being replaced, the one before is still good.
            Err(_) if token.is_some() => Ok(token.as_ref().map(|known| known.text.clone())),
            Err(error) => Err(Failure { error, then: Then::Tell }),
        }
    }

    /// Has the token read anew; false if it is in no file, or the file has none that was not refused already.
    fn forget_token(&self) -> bool {
        let Credential::TokenFile(file) = &self.settings.credential else { return false };
        let mut token = lock(&self.token);
        let Ok(text) = read_token(file) else { return false };
        let another = token.as_ref().is_none_or(|known| known.text != text);
        *token = Some(Token { text, read: Instant::now() });
        another
    }
}

fn read_token(file: &Path) -> Result<Arc<str>, StoreError> {
    let cannot = |why: String| {
        StoreError::not_applied(STORE, format!("cannot read the token in {}: {why}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
    match text.trim() {
        "" => Err(cannot("the file is empty".to_owned())),
        token => Ok(token.into()),
    }
}
