//! One connection: how it is opened, questions on it, and what comes back.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::keys::{Keys, read_question};
use super::settings::{Login, NatsSettings};
use super::wire::{self, Connect, Frame, Info, Message};
use super::{PRODUCT, error};
use tenure_core::Entropy as _;
use tenure_store::StoreError;
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::connection::{Connection, DataIdentity};
use tenure_store::kit::socket::{Link, Socket};

/// The subscriptions of every connection: answers, and acknowledgements that others see too; then those of watches.
const REPLIES: u64 = 1;
const CHANGES: u64 = 2;
const WATCHED: u64 = 3;

/// An open connection.
#[derive(Debug)]
pub(super) struct NatsConnection {
    /// Drawn anew for each.
    pub(super) id: u64,
    pub(super) info: Info,
    replies: String,
    changes: String,
    pub(super) link: Arc<Link<Waiting>>,
}

/// Who waits for what.
#[derive(Default)]
pub(super) struct Waiting {
    questions: HashMap<u64, Question>,
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
        self.connection.link.waiting(|waiting| waiting.questions.remove(&self.number));
    }
}

impl Connection for NatsConnection {
    fn broken(&self) -> &CancellationToken {
        self.link.broken()
    }

    fn data_identity(&self) -> &DataIdentity {
        self.link.data_identity()
    }
}

impl NatsConnection {
    /// Opens a connection to one server; gives it with what moves its bytes.
    pub(super) async fn open(
        settings: &NatsSettings,
        keys: &Keys,
        server: &(String, u16),
    ) -> Result<(Arc<Self>, BoxFuture<'static, ()>), StoreError> {
        let mut socket = Socket::connect(PRODUCT, server).await?;
        let Frame::Info(info) = socket.frame(wire::take).await? else {
            return Err(PRODUCT.stranger(&socket.place));
        };
        error::check_server(&socket.place, &info, settings.tls.is_some())?;
        let mut socket = socket.encrypted(settings.tls.as_ref()).await?;
        let id = nonce();
        let (replies, changes) = (keys.replies(&format!("{id:016x}")), keys.changes(&format!("{id:016x}")));
        let hello = hello(settings, &info);
        let first = format!("{hello}SUB {replies}* {REPLIES}\r\nSUB {changes}> {CHANGES}\r\nPING\r\n");
        socket.send(first.as_bytes()).await?;
        loop {
            match socket.frame(wire::take).await? {
                Frame::Pong => break,
                Frame::Complaint(why) => return Err(error::refused(&socket.place, &why, &info)),
                _ => {}
            }
        }
        let (link, work) = Link::new(socket, Bytes::from_static(b"PING\r\n"));
        let this = Arc::new(Self { id, info: *info, replies, changes, link });
        let receiver = this.clone();
        let work = Box::pin(work.run(wire::take, move |frame| receiver.receive(frame)));
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
        self.link.ask(|waiting| {
            waiting.questions.insert(number, question);
            wire::publish(subject, &reply, headers, payload)
        });
        Answers { connection: self.clone(), number, answers }
    }

    /// Listens to a subject, once the server has confirmed it; `None` if the connection ended or the server refuses.
    pub(super) async fn subscribe(&self, subject: &str) -> Option<mpsc::UnboundedReceiver<Message>> {
        let (sender, messages) = mpsc::unbounded_channel();
        self.link.waiting(|waiting| waiting.watching = Some(sender));
        self.link.send(format!("SUB {subject} {WATCHED}\r\n"));
        self.link.ping().await.ok()?;
        (!self.may_not_hear(subject)).then_some(messages)
    }

    /// Whether the server said that this user may not listen to that subject.
    pub(super) fn may_not_hear(&self, subject: &str) -> bool {
        self.link.waiting(|waiting| waiting.unheard.iter().any(|known| known == subject))
    }

    fn receive(&self, frame: Frame) {
        match frame {
            Frame::Ping => self.link.send(Bytes::from_static(b"PONG\r\n")),
            Frame::Pong => self.link.pong(),
            // That no client listens is told to one subscription alone, whichever it is.
            Frame::Message(WATCHED, message) if message.status.is_none() => {
                self.link.waiting(|waiting| waiting.watching.as_ref().map(|watching| watching.send(message)));
            }
            Frame::Message(_, message) => {
                let question = read_question(&message.subject);
                self.link.waiting(|waiting| {
                    let question = question.and_then(|number| waiting.questions.get(&number));
                    question.map(|question| question.answers.send(Answer::Message(message)))
                });
            }
            Frame::Complaint(why) => self.link.waiting(|waiting| waiting.complaint(&why)),
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
