//! One connection: how it is opened, questions on it, and what comes back.
//!
//! What was handed to a connection may have been sent, and is never sent on another one: when a connection ends, what it had
//! not sent yet is thrown away with it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error;
use super::keys::{Keys, read_question};
use super::settings::{Login, NatsSettings};
use super::wire::{self, Connect, Frame, Info, Message};
use tenure_core::Entropy as _;
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::connection::{Connection, DataIdentity};
use tenure_store::kit::watches::lock;
use tenure_store::{StoreError, with_causes};

/// The subscriptions of every connection: answers, and acknowledgements that others see too; then those of watches.
const REPLIES: u64 = 1;
const CHANGES: u64 = 2;
const WATCHED: u64 = 3;

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// An open connection.
pub(super) struct NatsConnection {
    /// Drawn anew for each.
    pub(super) id: u64,
    pub(super) place: String,
    pub(super) info: Info,
    replies: String,
    changes: String,
    out: mpsc::UnboundedSender<Bytes>,
    waiting: Mutex<Waiting>,
    broken: CancellationToken,
    probing: AtomicBool,
    data: DataIdentity,
}

/// Who waits for what.
#[derive(Default)]
struct Waiting {
    questions: HashMap<u64, Question>,
    pongs: VecDeque<oneshot::Sender<()>>,
    watching: Option<mpsc::UnboundedSender<Message>>,
    /// Subjects that this user may not listen to.
    unheard: Vec<String>,
}

struct Question {
    subject: String,
    answers: mpsc::UnboundedSender<Answer>,
}

/// What comes back.
#[derive(Debug)]
pub(super) enum Answer {
    Message(Message),
    /// This user may not send to that subject: nothing was done.
    Forbidden,
}

/// The answers to one question; there may be several. None comes once the connection has ended.
pub(super) struct Answers {
    connection: Arc<NatsConnection>,
    number: u64,
    answers: mpsc::UnboundedReceiver<Answer>,
}

impl Answers {
    pub(super) async fn next(&mut self) -> Option<Answer> {
        self.answers.recv().await
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        lock(&self.connection.waiting).questions.remove(&self.number);
    }
}

impl fmt::Debug for NatsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsConnection").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Connection for NatsConnection {
    fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    fn data_identity(&self) -> &DataIdentity {
        &self.data
    }
}

impl NatsConnection {
    /// Opens a connection to one server; gives it with what moves its bytes.
    pub(super) async fn open(
        settings: &NatsSettings,
        keys: &Keys,
        (host, port): &(String, u16),
    ) -> Result<(Arc<Self>, BoxFuture<'static, ()>), StoreError> {
        let place = format!("{host}:{port}");
        let unreachable = |error: std::io::Error| error::unreachable(&place, &with_causes(&error));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, *port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let (mut wire, mut buffer): (Box<dyn Wire>, _) = (Box::new(stream), BytesMut::new());
        let Frame::Info(info) = frame(&mut wire, &mut buffer, &place).await? else {
            return Err(error::stranger(&place));
        };
        error::check_server(&place, &info, settings.tls.is_some())?;
        if let Some(config) = &settings.tls {
            let name = ServerName::try_from(host.to_owned()).map_err(|_| error::stranger(&place))?;
            let connector = tokio_rustls::TlsConnector::from(config.clone());
            wire = Box::new(connector.connect(name, wire).await.map_err(unreachable)?);
        }
        let id = nonce();
        let (replies, changes) = (keys.replies(&format!("{id:016x}")), keys.changes(&format!("{id:016x}")));
        let hello = hello(settings, &info);
        let first = format!("{hello}SUB {replies}* {REPLIES}\r\nSUB {changes}> {CHANGES}\r\nPING\r\n");
        wire.write_all(first.as_bytes()).await.map_err(unreachable)?;
        wire.flush().await.map_err(unreachable)?;
        loop {
            match frame(&mut wire, &mut buffer, &place).await? {
                Frame::Pong => break,
                Frame::Complaint(why) => return Err(error::refused(&place, &why, &info)),
                _ => {}
            }
        }
        let (out, queue) = mpsc::unbounded_channel();
        let this = Arc::new(Self {
            id,
            place,
            info: *info,
            replies,
            changes,
            out,
            waiting: Mutex::default(),
            broken: CancellationToken::new(),
            probing: AtomicBool::new(false),
            data: DataIdentity { identity: String::new(), marks: [None, None] },
        });
        let work = Box::pin(this.clone().work(wire, buffer, queue));
        Ok((this, work))
    }

    /// Asks something. If `changed` names a register, every node sees the answer.
    pub(super) fn ask(
        self: &Arc<Self>,
        subject: &str,
        changed: Option<&str>,
        headers: &[(&str, String)],
        payload: &[u8],
    ) -> Answers {
        // Drawn, because others learn the subjects of earlier answers: none can be foreseen, and so none forged.
        let number = nonce();
        let reply = match changed {
            Some(register) => format!("{}{number}.{register}", self.changes),
            None => format!("{}{number}", self.replies),
        };
        let (sender, answers) = mpsc::unbounded_channel();
        let question = Question { subject: subject.to_owned(), answers: sender };
        let mut waiting = lock(&self.waiting);
        if !self.broken.is_cancelled() {
            waiting.questions.insert(number, question);
            let _ = self.out.send(wire::publish(subject, &reply, headers, payload));
        }
        drop(waiting);
        Answers { connection: self.clone(), number, answers }
    }

    /// Listens to a subject, once the server has confirmed it; `None` if the connection ended or the server refuses.
    pub(super) async fn subscribe(&self, subject: &str) -> Option<mpsc::UnboundedReceiver<Message>> {
        let (sender, messages) = mpsc::unbounded_channel();
        lock(&self.waiting).watching = Some(sender);
        let _ = self.out.send(format!("SUB {subject} {WATCHED}\r\n").into());
        self.ping().await.ok()?;
        (!self.may_not_hear(subject)).then_some(messages)
    }

    /// Whether the server said that this user may not listen to that subject.
    pub(super) fn may_not_hear(&self, subject: &str) -> bool {
        lock(&self.waiting).unheard.iter().any(|known| known == subject)
    }

    /// Whether the server is there at all: if it does not say so in time, the connection is given up.
    pub(super) fn probe(self: &Arc<Self>, patience: std::time::Duration) {
        if self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            if !matches!(timeout(patience, this.ping()).await, Ok(Ok(()))) {
                this.broken.cancel();
            }
            this.probing.store(false, Ordering::Release);
        });
    }

    /// Waits until the server has seen everything that was sent before.
    pub(super) fn ping(&self) -> oneshot::Receiver<()> {
        let (sender, pong) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if !self.broken.is_cancelled() {
            waiting.pongs.push_back(sender);
            let _ = self.out.send(Bytes::from_static(b"PING\r\n"));
        }
        pong
    }

    /// Moves bytes until either side ends; then no caller waits any longer.
    async fn work(
        self: Arc<Self>,
        wire: Box<dyn Wire>,
        mut buffer: BytesMut,
        mut queue: mpsc::UnboundedReceiver<Bytes>,
    ) {
        let _end = Ended(self.clone());
        let (mut reading, mut writing) = tokio::io::split(wire);
        let read = async {
            loop {
                while let Ok(Some(frame)) = wire::take(&mut buffer) {
                    self.receive(frame);
                }
                if wire::take(&mut buffer).is_err() || !matches!(reading.read_buf(&mut buffer).await, Ok(1..))
                {
                    return;
                }
            }
        };
        let write = async {
            while let Some(bytes) = queue.recv().await {
                let mut sent = writing.write_all(&bytes).await;
                while let (Ok(()), Ok(more)) = (&sent, queue.try_recv()) {
                    sent = writing.write_all(&more).await;
                }
                if sent.is_err() || writing.flush().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = read => {}
            () = write => {}
        }
    }

    fn receive(&self, frame: Frame) {
        let mut waiting = lock(&self.waiting);
        match frame {
            Frame::Ping => drop(self.out.send(Bytes::from_static(b"PONG\r\n"))),
            Frame::Pong => drop(waiting.pongs.pop_front().map(|pong| pong.send(()))),
            // That no client listens is told to one subscription alone, whichever it is.
            Frame::Message(WATCHED, message) if message.status.is_none() => {
                if let Some(watching) = &waiting.watching {
                    let _ = watching.send(message);
                }
            }
            Frame::Message(_, message) => {
                let question = read_question(&message.subject);
                if let Some(question) = question.and_then(|number| waiting.questions.get(&number)) {
                    let _ = question.answers.send(Answer::Message(message));
                }
            }
            Frame::Complaint(why) => waiting.complaint(&why),
            Frame::Info(_) | Frame::Okay => {}
        }
    }
}

impl Waiting {
    /// What this user may not do; everything else ends the connection by itself.
    fn complaint(&mut self, why: &str) {
        let Some(rest) = why.strip_prefix("Permissions Violation for ") else { return };
        let subject = rest.split('"').nth(1).unwrap_or_default();
        if rest.starts_with("Subscription") {
            self.unheard.push(subject.to_owned());
        }
        let forbidden = |question: &&Question| rest.starts_with("Publish") && question.subject == subject;
        for question in self.questions.values().filter(forbidden) {
            let _ = question.answers.send(Answer::Forbidden);
        }
    }
}

/// A connection that has ended: what waits for it waits no longer.
struct Ended(Arc<NatsConnection>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        self.0.broken.cancel();
        *waiting = Waiting::default();
    }
}

async fn frame(wire: &mut Box<dyn Wire>, buffer: &mut BytesMut, place: &str) -> Result<Frame, StoreError> {
    loop {
        match wire::take(buffer) {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(_) => return Err(error::stranger(place)),
        }
        match wire.read_buf(buffer).await {
            Ok(0) => return Err(error::unreachable(place, "it hung up")),
            Ok(_) => {}
            Err(error) => return Err(error::unreachable(place, &with_causes(&error))),
        }
    }
}

/// Half of what the kernel gives.
pub(super) fn nonce() -> u64 {
    u64::try_from(KernelEntropy.nonce() >> 64).unwrap_or_default()
}

/// Who asks.
fn hello(settings: &NatsSettings, info: &Info) -> String {
    let mut connect = Connect {
        tls_required: settings.tls.is_some(),
        name: "tenure",
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        headers: true,
        no_responders: true,
        ..Connect::default()
    };
    let (signer, jwt) = match &settings.login {
        Login::Key(signer) => (Some(signer), None),
        Login::Credentials { jwt, signer } => (Some(signer), Some(jwt.as_str())),
        Login::Password { user, password } => {
            connect.user = Some(user);
            connect.pass = Some(password);
            (None, None)
        }
        Login::Token(token) => {
            connect.auth_token = Some(token);
            (None, None)
        }
        Login::None => (None, None),
    };
    // A token names its key itself.
    connect.nkey = signer.filter(|_| jwt.is_none()).map(|signer| signer.public.as_str());
    connect.jwt = jwt;
    connect.sig = signer.map(|signer| signer.sign(&info.nonce));
    format!("CONNECT {}\r\n", serde_json::to_string(&connect).expect("it serialises"))
}
