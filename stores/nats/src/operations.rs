//! The connection for everything, what is known of the bucket, and which sequence each version has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::bucket::{self, BucketFacts, StreamInfo};
use super::connection::{Answer, Answers, NatsConnection};
use super::error::{self, Refusal, code};
use super::keys::Keys;
use super::settings::NatsSettings;
use super::{PRODUCT, STORE};
use tenure_core::Token;
use tenure_store::kit::connection::{Connection as _, ManagedConnection, OpenedConnection, ServerAddress};
use tenure_store::kit::socket::ServersInTurn;
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Retry, Signal, StoreError, Version};

/// Registers whose sequence is remembered; more than any node works with at once.
const REMEMBERED: usize = 50_000;

/// While a stream has no leader, what it did not hear is tried again after this.
const LEADERLESS: std::time::Duration = std::time::Duration::from_millis(20);

/// A connection over which nothing worked for so long is left for one to another server.
const PATIENCE_WITH_A_SERVER: std::time::Duration = std::time::Duration::from_secs(1);

/// The operations of one handle.
#[derive(Debug)]
pub(super) struct Operations {
    pub(super) settings: Arc<NatsSettings>,
    pub(super) keys: Keys,
    managed: ManagedConnection<NatsConnection>,
    watches: Arc<Watches>,
    facts: Arc<Mutex<Option<BucketFacts>>>,
    known: Mutex<Known>,
    /// The highest sequence that a write of this handle was acknowledged with.
    highest: AtomicU64,
    barrier: tokio::sync::Mutex<Option<Barrier>>,
    failing_since: Mutex<Option<Instant>>,
}

/// What registers were last seen to hold. Of one connection only: servers that were set back while it was open would close it.
#[derive(Debug, Default)]
struct Known {
    connection: u64,
    registers: HashMap<String, Seen>,
}

/// A register, as it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// None if it was deleted.
    pub(super) content: Option<(Version, Option<Token>)>,
    pub(super) sequence: u64,
}

/// A write of nothing that was acknowledged: a replica that has it has everything that was acknowledged before it was sent.
#[derive(Debug, Clone, Copy)]
struct Barrier {
    sent: Instant,
    sequence: u64,
}

/// What became of a message to the stream.
#[derive(Debug)]
pub(super) enum Published {
    At(u64),
    /// The last message of the subject has another sequence, or another one is under way. Nothing was done.
    WrongSequence,
}

/// What became of a question.
enum Heard<T> {
    Answer(T),
    /// No server listens there now: nothing was done.
    NoResponder(StoreError),
}

/// An acknowledgement.
#[derive(Debug, Deserialize)]
pub(super) struct Acknowledgement {
    #[serde(default)]
    pub(super) stream: String,
    #[serde(default)]
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) error: Option<Refusal>,
}

impl Operations {
    /// The operations, and what keeps their connection open until dropped.
    pub(super) fn new(
        settings: Arc<NatsSettings>,
        watches: Arc<Watches>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let keys = Keys::new(&settings.bucket);
        let server = ServerAddress { store: STORE, name: settings.to_string(), patience: settings.timeout };
        let facts = Arc::<Mutex<Option<BucketFacts>>>::default();
        let turn =
            ServersInTurn::new(PRODUCT, settings.servers.clone(), settings.timeout, settings.suspicion());
        let opening = Arc::new((settings.clone(), keys.clone(), facts.clone(), turn));
        let open = move || {
            let opening = opening.clone();
            async move {
                let (settings, keys, facts, turn) = &*opening;
                turn.open(|server| use_server(settings, keys, facts, server)).await
            }
        };
        let (managed, keep) = ManagedConnection::new(server, watches.clone(), open);
        let this = Self {
            settings,
            keys,
            managed,
            watches,
            facts,
            known: Mutex::default(),
            highest: AtomicU64::new(0),
            barrier: tokio::sync::Mutex::default(),
            failing_since: Mutex::default(),
        };
        (this, keep)
    }

    /// Until when an operation that begins now may take.
    pub(super) fn until(&self) -> Instant {
        self.managed.until()
    }

    /// The open connection; if there is none, nothing was sent.
    pub(super) async fn connection(&self, until: Instant) -> Result<Arc<NatsConnection>, StoreError> {
        self.managed.reached(until, self.managed.connection()).await
    }

    /// What is known of the bucket: something, once a connection was open.
    pub(super) fn facts(&self) -> BucketFacts {
        lock(&self.facts).clone().unwrap_or_default()
    }

    /// The bucket was changed, perhaps: from now on it is known like this.
    pub(super) fn learn(&self, facts: BucketFacts) {
        *lock(&self.facts) = Some(facts);
    }

    /// The next answer to a question. A server that says nothing is asked whether it is there; one that never answers is left.
    pub(super) async fn answer(
        &self,
        connection: &Arc<NatsConnection>,
        answers: &mut Answers,
        until: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = connection.link.answer(answers.next(), self.settings.suspicion(), until).await;
        answer.map_err(|unanswered| {
            if unanswered.late {
                self.fails(connection);
            }
            unanswered.error
        })
    }

    /// Sends a message to the stream.
    pub(super) async fn publish(
        &self,
        connection: &Arc<NatsConnection>,
        subject: &str,
        changed: Option<&str>,
        headers: &[(&str, String)],
        payload: &[u8],
        until: Instant,
    ) -> Result<Published, StoreError> {
        if payload.len() + 512 > connection.info.max_payload {
            let message =
                "the value is longer than the server takes: set max_payload to 2MB in its configuration";
            return Err(StoreError::not_applied(STORE, message).permanent());
        }
        let patient = self.patient(until);
        let (highest, answer) = loop {
            let highest = self.highest.load(Ordering::Acquire);
            let mut answers = connection.ask(subject, changed, headers, payload);
            match self.read_answer::<Acknowledgement>(connection, &mut answers, until).await? {
                Heard::Answer(answer) => break (highest, answer),
                Heard::NoResponder(error) => self.wait_for_leader(error, patient).await?,
            }
        };
        match answer.error {
            None if answer.seq > 0 && answer.stream == self.keys.stream() => {
                self.works();
                self.acknowledged(highest, answer.seq)?;
                Ok(Published::At(answer.seq))
            }
            None => Err(PRODUCT.strange(&connection.link.place)),
            Some(refusal) if [code::WRONG_SEQUENCE, code::WRITE_UNDER_WAY].contains(&refusal.err_code) => {
                Ok(Published::WrongSequence)
            }
            Some(refusal) => {
                self.fails(connection);
                Err(error::of_refusal(&connection.link.place, &refusal))
            }
        }
    }

    /// The sequence before which a replica must not be asked, if there are several.
    pub(super) async fn barrier(
        &self,
        connection: &Arc<NatsConnection>,
        until: Instant,
    ) -> Result<Option<u64>, StoreError> {
        if self.facts().replicas < 2 {
            return Ok(None);
        }
        let began = Instant::now();
        let mut last = self.barrier.lock().await;
        // What was sent meanwhile, by a read that came later than this one, does for this one.
        if let Some(last) = last.filter(|last| last.sent >= began) {
            return Ok(Some(last.sequence));
        }
        let sent = Instant::now();
        match self.publish(connection, &self.keys.barrier(), None, &[], b"", until).await? {
            Published::At(sequence) => {
                *last = Some(Barrier { sent, sequence });
                Ok(Some(sequence))
            }
            Published::WrongSequence => Err(PRODUCT.strange(&connection.link.place)),
        }
    }

    /// Asks the interface of JetStream.
    pub(super) async fn api<T: DeserializeOwned>(
        &self,
        connection: &Arc<NatsConnection>,
        what: &str,
        question: &str,
        until: Instant,
    ) -> Result<T, StoreError> {
        let subject = format!("$JS.API.{what}.{}", self.keys.stream());
        let mut answers = connection.ask(&subject, None, &[], question.as_bytes());
        match self.read_answer(connection, &mut answers, until).await? {
            Heard::Answer(answer) => Ok(answer),
            Heard::NoResponder(error) => Err(error),
        }
    }

    /// Until when an operation that begins now waits for a stream that has no leader at the moment.
    pub(super) fn patient(&self, until: Instant) -> Instant {
        until.min(Instant::now() + self.settings.suspicion())
    }

    /// No server heard a question: it may be asked again, for a while.
    pub(super) async fn wait_for_leader(
        &self,
        error: StoreError,
        patient: Instant,
    ) -> Result<(), StoreError> {
        if error.retry() == Retry::Never || Instant::now() + LEADERLESS >= patient {
            return Err(error);
        }
        tokio::time::sleep(LEADERLESS).await;
        Ok(())
    }

    async fn read_answer<T: DeserializeOwned>(
        &self,
        connection: &Arc<NatsConnection>,
        answers: &mut Answers,
        until: Instant,
    ) -> Result<Heard<T>, StoreError> {
        match self.answer(connection, answers, until).await? {
            Answer::Forbidden => Err(error::forbidden(&connection.link.place)),
            Answer::Message(message) if message.status == Some(503) => {
                Ok(Heard::NoResponder(self.unheard(connection, until).await))
            }
            Answer::Message(message) => {
                let answer = serde_json::from_slice(&message.payload);
                answer.map(Heard::Answer).map_err(|_| PRODUCT.strange(&connection.link.place))
            }
        }
    }

    /// No server listens: the stream has no leader, or is gone, and then it is made again.
    pub(super) async fn unheard(&self, connection: &Arc<NatsConnection>, until: Instant) -> StoreError {
        self.fails(connection);
        let remaining = until.saturating_duration_since(Instant::now());
        let patience = remaining.min(self.settings.suspicion());
        let looked = timeout(patience, look(&self.settings, &self.keys, connection)).await;
        match looked {
            Ok(Ok(found)) => self.learn(found),
            Ok(Err(error)) if error.retry() == Retry::Never => return error,
            Ok(Err(_)) | Err(_) => {}
        }
        error::unheard(&connection.link.place)
    }

    /// Something worked.
    pub(super) fn works(&self) {
        *lock(&self.failing_since) = None;
    }

    /// Something did not work that another server may be able to do. A stream without a leader is no better off there, so that
    /// a server is not left at once.
    fn fails(&self, connection: &NatsConnection) {
        let mut since = lock(&self.failing_since);
        let began = *since.get_or_insert_with(Instant::now);
        if self.settings.servers.len() > 1 && began.elapsed() >= PATIENCE_WITH_A_SERVER {
            *since = None;
            connection.broken().cancel();
        }
    }

    /// Sequences only rise: one that is not above what was acknowledged before it was asked for comes from other data. What it
    /// was compared with may be other data too.
    fn acknowledged(&self, before: u64, now: u64) -> Result<(), StoreError> {
        if now > before {
            self.highest.fetch_max(now, Ordering::AcqRel);
            return Ok(());
        }
        self.highest.store(now, Ordering::Release);
        lock(&self.known).registers.clear();
        self.watches.send_all(&Signal::Forgot);
        Err(StoreError::unknown(
            STORE,
            "the bucket has an older state than before: look whether it was written",
        ))
    }

    /// What a register was last seen to hold on this connection.
    pub(super) fn recall(&self, connection: &NatsConnection, subject: &str) -> Option<Seen> {
        let known = lock(&self.known);
        let same = known.connection == connection.id;
        same.then(|| known.registers.get(subject).copied()).flatten()
    }

    /// What a register was seen to hold; of two, the later counts.
    pub(super) fn remember(&self, connection: &NatsConnection, subject: &str, seen: Seen) {
        let mut known = lock(&self.known);
        if known.connection != connection.id || known.registers.len() >= REMEMBERED {
            *known = Known { connection: connection.id, registers: HashMap::new() };
        }
        let there = known.registers.entry(subject.to_owned()).or_insert(seen);
        if there.sequence < seen.sequence {
            *there = seen;
        }
    }

    /// What was seen of a register is out of date.
    pub(super) fn forget(&self, subject: &str) {
        lock(&self.known).registers.remove(subject);
    }
}

/// Opens a connection, and looks at the bucket if nothing is known of it yet.
async fn use_server(
    settings: &NatsSettings,
    keys: &Keys,
    facts: &Mutex<Option<BucketFacts>>,
    server: (String, u16),
) -> Result<OpenedConnection<NatsConnection>, StoreError> {
    let (connection, mut work) = NatsConnection::open(settings, keys, &server).await?;
    if lock(facts).is_none() {
        let found = tokio::select! {
            found = look(settings, keys, &connection) => found.map_err(StoreError::only_looked)?,
            () = &mut work => return Err(PRODUCT.unreachable(&connection.link.place, "it hung up")),
        };
        *lock(facts) = Some(found);
    }
    Ok((connection, work))
}

/// Looks at the bucket, and makes it if it is not there and may be made.
async fn look(
    settings: &NatsSettings,
    keys: &Keys,
    connection: &Arc<NatsConnection>,
) -> Result<BucketFacts, StoreError> {
    let found = ask_stream(keys, connection, "INFO", b"").await?;
    match found.error {
        None => return found.config.facts(&settings.bucket),
        Some(refusal) if refusal.err_code == code::STREAM_NOT_FOUND => {}
        Some(refusal) => return Err(error::of_refusal(&connection.link.place, &refusal)),
    }
    if !settings.create {
        return Err(StoreError::unused(
            STORE,
            &format!("there is no bucket {} at {settings}", settings.bucket),
        ));
    }
    let grouped = if connection.info.cluster.is_some() { 3 } else { 1 };
    let replicas = settings.replicas.map_or(grouped, usize::from);
    let made =
        ask_stream(keys, connection, "CREATE", bucket::create(&settings.bucket, replicas).as_bytes()).await?;
    match made.error {
        None => made.config.facts(&settings.bucket),
        // Another node was faster, with other settings: they are looked at next time.
        Some(refusal) if refusal.err_code == code::STREAM_EXISTS => {
            Err(error::unheard(&connection.link.place))
        }
        Some(refusal) => Err(error::of_refusal(&connection.link.place, &refusal)),
    }
}

async fn ask_stream(
    keys: &Keys,
    connection: &Arc<NatsConnection>,
    what: &str,
    question: &[u8],
) -> Result<StreamInfo, StoreError> {
    let subject = format!("$JS.API.STREAM.{what}.{}", keys.stream());
    let mut answers = connection.ask(&subject, None, &[], question);
    match answers.next().await {
        None => Err(PRODUCT.lost(&connection.link.place)),
        Some(Answer::Forbidden) => Err(error::forbidden(&connection.link.place)),
        Some(Answer::Message(message)) if message.status == Some(503) => {
            let message = "JetStream is off, or has no leader now: start the servers with -js";
            Err(StoreError::not_applied(STORE, format!("{}: {message}", connection.link.place)))
        }
        Some(Answer::Message(message)) => {
            serde_json::from_slice(&message.payload).map_err(|_| PRODUCT.strange(&connection.link.place))
        }
    }
}
