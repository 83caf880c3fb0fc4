//! One connection, which is one session at the servers: how it is opened, questions on it, and what comes back.
//!
//! When a connection ends, its session is left to expire.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::settings::ZooKeeperSettings;
use super::wire::{self, Answer, Question, Reply, Strange, op};
use super::{PRODUCT, error};
use tenure_store::StoreError;
use tenure_store::kit::connection::{Connection, DataIdentity};
use tenure_store::kit::socket::{Link, Socket};

/// Something was made.
const NODE_CREATED: i32 = 1;

/// An open connection.
#[derive(Debug)]
pub(super) struct ZooKeeperConnection {
    /// The servers forget the session if they hear nothing for so long.
    pub(super) session: Duration,
    pub(super) link: Arc<Link<Waiting>>,
}

/// Who waits for what.
#[derive(Default)]
pub(super) struct Waiting {
    last: i32,
    questions: HashMap<i32, oneshot::Sender<Reply>>,
    watching: Option<mpsc::UnboundedSender<String>>,
}

impl Connection for ZooKeeperConnection {
    fn broken(&self) -> &CancellationToken {
        self.link.broken()
    }

    fn data_identity(&self) -> &DataIdentity {
        self.link.data_identity()
    }
}

impl ZooKeeperConnection {
    /// Opens a connection to one server; gives it with what moves its bytes.
    pub(super) async fn open(
        settings: &ZooKeeperSettings,
        server: &(String, u16),
    ) -> Result<(Arc<Self>, BoxFuture<'static, ()>), StoreError> {
        let mut socket = reach(settings, server).await?;
        socket.send(&Question::connect(millis(settings.session))).await?;
        let begun = Answer::new(socket.frame(wire::take).await?).session_millis();
        let session = begun.map_err(|_| PRODUCT.stranger(&socket.place))?;
        let session = Duration::from_millis(u64::try_from(session).unwrap_or_default());
        if session.is_zero() {
            return Err(PRODUCT.unreachable(&socket.place, "it begins no session"));
        }
        if let Some(login) = &settings.login {
            let who = Question::new(op::AUTH).int(0).text("digest").text(login);
            socket.send(&who.finish(wire::AUTH)).await?;
            if socket.frame(take_reply).await?.code != 0 {
                return Err(error::refused_login(&socket.place));
            }
        }
        let (link, work) = Link::new(socket, Question::new(op::PING).finish(wire::PING));
        let this = Arc::new(Self { session, link });
        let receiver = this.clone();
        let work = work.run(take_reply, move |reply| receiver.receive(reply));
        let staying = this.clone();
        let work = Box::pin(async move {
            tokio::select! {
                () = work => {}
                () = staying.stay() => {}
            }
        });
        Ok((this, work))
    }

    /// Asks something. No answer comes once the connection has ended.
    pub(super) fn ask(&self, question: Question) -> oneshot::Receiver<Reply> {
        let (sender, reply) = oneshot::channel();
        self.link.ask(|waiting| {
            let number = waiting.last % i32::MAX + 1;
            waiting.last = number;
            waiting.questions.insert(number, sender);
            question.finish(number)
        });
        reply
    }

    /// The paths of everything that is made from now on under those that are watched.
    pub(super) fn events(&self) -> mpsc::UnboundedReceiver<String> {
        let (sender, events) = mpsc::unbounded_channel();
        self.link.waiting(|waiting| waiting.watching = Some(sender));
        events
    }

    /// The servers forget a session of which they hear nothing.
    async fn stay(&self) {
        loop {
            tokio::time::sleep(self.session / 3).await;
            self.link.probe(self.session / 3);
        }
    }

    fn receive(&self, reply: Reply) {
        match reply.number {
            wire::PING => self.link.pong(),
            wire::EVENT => {
                let mut event = Answer::new(reply.body);
                let path = event.int().and_then(|kind| event.int().map(|_| kind)).and_then(|kind| {
                    let path = event.text()?;
                    Ok((kind == NODE_CREATED).then_some(path))
                });
                if let Ok(Some(path)) = path {
                    self.link
                        .waiting(|waiting| waiting.watching.as_ref().map(|watching| watching.send(path)));
                }
            }
            number => {
                let question = self.link.waiting(|waiting| waiting.questions.remove(&number));
                drop(question.map(|question| question.send(reply)));
            }
        }
    }
}

/// The way to a server, encrypted if it has to be.
async fn reach(settings: &ZooKeeperSettings, server: &(String, u16)) -> Result<Socket, StoreError> {
    Socket::connect(PRODUCT, server).await?.encrypted(settings.tls.as_ref()).await
}

fn take_reply(buffer: &mut BytesMut) -> Result<Option<Reply>, Strange> {
    wire::take(buffer)?.map(|frame| Answer::new(frame).reply()).transpose()
}

/// What a server says of itself, if it answers such questions of four letters.
pub(super) async fn four_letters(
    settings: &ZooKeeperSettings,
    server: &(String, u16),
    word: &str,
) -> Option<String> {
    let mut socket = reach(settings, server).await.ok()?;
    socket.send(word.as_bytes()).await.ok()?;
    socket.rest(1 << 16).await
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
