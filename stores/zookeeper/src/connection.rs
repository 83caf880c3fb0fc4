//! One connection, which is one session at the servers: how it is opened, questions on it, and what comes back.
//!
//! What was handed to a connection may have been sent, and is never sent on another one: when a connection ends, what it had
//! not sent yet is thrown away with it, and its session is left to expire.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error;
use super::settings::ZooKeeperSettings;
use super::wire::{self, Answer, Question, Reply, op};
use tenure_store::kit::connection::{Connection, DataIdentity};
use tenure_store::kit::watches::lock;
use tenure_store::{StoreError, with_causes};

/// Something was made.
const NODE_CREATED: i32 = 1;

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// An open connection.
pub(super) struct ZooKeeperConnection {
    pub(super) place: String,
    /// The servers forget the session if they hear nothing for so long.
    pub(super) session: Duration,
    out: mpsc::UnboundedSender<Bytes>,
    waiting: Mutex<Waiting>,
    broken: CancellationToken,
    probing: AtomicBool,
    data: DataIdentity,
}

/// Who waits for what.
#[derive(Default)]
struct Waiting {
    last: i32,
    questions: HashMap<i32, oneshot::Sender<Reply>>,
    pings: VecDeque<oneshot::Sender<()>>,
    watching: Option<mpsc::UnboundedSender<String>>,
}

impl fmt::Debug for ZooKeeperConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperConnection").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Connection for ZooKeeperConnection {
    fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    fn data_identity(&self) -> &DataIdentity {
        &self.data
    }
}

impl ZooKeeperConnection {
    /// Opens a connection to one server; gives it with what moves its bytes.
    pub(super) async fn open(
        settings: &ZooKeeperSettings,
        server: &(String, u16),
    ) -> Result<(Arc<Self>, BoxFuture<'static, ()>), StoreError> {
        let place = format!("{}:{}", server.0, server.1);
        let mut wire = reach(settings, server).await?;
        let mut buffer = BytesMut::new();
        send(&mut wire, &Question::connect(millis(settings.session)), &place).await?;
        let begun = frame(&mut wire, &mut buffer, &place).await?;
        let session = Answer::new(begun).session_millis().map_err(|_| error::stranger(&place))?;
        let session = Duration::from_millis(u64::try_from(session).unwrap_or_default());
        if session.is_zero() {
            return Err(error::unreachable(&place, "it begins no session"));
        }
        if let Some(login) = &settings.login {
            let who = Question::new(op::AUTH).int(0).text("digest").text(login);
            send(&mut wire, &who.finish(wire::AUTH), &place).await?;
            let reply = Answer::new(frame(&mut wire, &mut buffer, &place).await?).reply();
            if reply.map_err(|_| error::stranger(&place))?.code != 0 {
                return Err(error::refused_login(&place));
            }
        }
        let (out, queue) = mpsc::unbounded_channel();
        let this = Arc::new(Self {
            place,
            session,
            out,
            waiting: Mutex::default(),
            broken: CancellationToken::new(),
            probing: AtomicBool::new(false),
            data: DataIdentity { identity: String::new(), marks: [None, None] },
        });
        let work = Box::pin(this.clone().work(wire, buffer, queue));
        Ok((this, work))
    }

    /// Asks something. No answer comes once the connection has ended.
    pub(super) fn ask(&self, question: Question) -> oneshot::Receiver<Reply> {
        let (sender, reply) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if !self.broken.is_cancelled() {
            let number = waiting.last % i32::MAX + 1;
            waiting.last = number;
            waiting.questions.insert(number, sender);
            let _ = self.out.send(question.finish(number));
        }
        reply
    }

    /// The paths of everything that is made from now on under those that are watched.
    pub(super) fn events(&self) -> mpsc::UnboundedReceiver<String> {
        let (sender, events) = mpsc::unbounded_channel();
        lock(&self.waiting).watching = Some(sender);
        events
    }

    /// Whether the server is there at all: if it does not say so in time, the connection is given up.
    pub(super) fn probe(self: &Arc<Self>, patience: Duration) {
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

    fn ping(&self) -> oneshot::Receiver<()> {
        let (sender, answer) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if !self.broken.is_cancelled() {
            waiting.pings.push_back(sender);
            let _ = self.out.send(Question::new(op::PING).finish(wire::PING));
        }
        answer
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
                match wire::take(&mut buffer) {
                    Ok(Some(frame)) => match Answer::new(frame).reply() {
                        Ok(reply) => self.receive(reply),
                        Err(_) => return,
                    },
                    Ok(None) if matches!(reading.read_buf(&mut buffer).await, Ok(1..)) => {}
                    Ok(None) | Err(_) => return,
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
        // The servers forget a session of which they hear nothing.
        let stay = async {
            loop {
                tokio::time::sleep(self.session / 3).await;
                self.probe(self.session / 3);
            }
        };
        tokio::select! {
            () = read => {}
            () = write => {}
            () = stay => {}
        }
    }

    fn receive(&self, reply: Reply) {
        let mut waiting = lock(&self.waiting);
        match reply.number {
            wire::PING => drop(waiting.pings.pop_front().map(|ping| ping.send(()))),
            wire::EVENT => {
                let mut event = Answer::new(reply.body);
                let path = event.int().and_then(|kind| event.int().map(|_| kind)).and_then(|kind| {
                    let path = event.text()?;
                    Ok((kind == NODE_CREATED).then_some(path))
                });
                if let (Some(watching), Ok(Some(path))) = (&waiting.watching, path) {
                    let _ = watching.send(path);
                }
            }
            number => drop(waiting.questions.remove(&number).map(|question| question.send(reply))),
        }
    }
}

/// A connection that has ended: its callers wait no longer.
struct Ended(Arc<ZooKeeperConnection>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        self.0.broken.cancel();
        *waiting = Waiting::default();
    }
}

/// The way to a server, encrypted if it has to be.
async fn reach(
    settings: &ZooKeeperSettings,
    (host, port): &(String, u16),
) -> Result<Box<dyn Wire>, StoreError> {
    let place = format!("{host}:{port}");
    let unreachable = |error: std::io::Error| error::unreachable(&place, &with_causes(&error));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, *port)).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let Some(config) = &settings.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| error::stranger(&place))?;
    let connector = tokio_rustls::TlsConnector::from(config.clone());
    Ok(Box::new(connector.connect(name, stream).await.map_err(unreachable)?))
}

/// What a server says of itself, if it answers such questions of four letters.
pub(super) async fn four_letters(
    settings: &ZooKeeperSettings,
    server: &(String, u16),
    word: &str,
) -> Option<String> {
    let mut wire = reach(settings, server).await.ok()?;
    wire.write_all(word.as_bytes()).await.ok()?;
    wire.flush().await.ok()?;
    let mut said = Vec::new();
    let whole = wire.take(1 << 16).read_to_end(&mut said).await;
    // A server that hangs up without a farewell of TLS has said everything too.
    (whole.is_ok() || !said.is_empty()).then(|| String::from_utf8_lossy(&said).into_owned())
}

async fn send(wire: &mut Box<dyn Wire>, bytes: &[u8], place: &str) -> Result<(), StoreError> {
    let unreachable = |error: std::io::Error| error::unreachable(place, &with_causes(&error));
    wire.write_all(bytes).await.map_err(unreachable)?;
    wire.flush().await.map_err(unreachable)
}

async fn frame(wire: &mut Box<dyn Wire>, buffer: &mut BytesMut, place: &str) -> Result<Bytes, StoreError> {
    loop {
        match wire::take(buffer) {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(_) => return Err(error::stranger(place)),
        }
        match wire.read_buf(buffer).await {
            Ok(0) => return Err(error::unreachable(place, "it hung up; a server without a majority does")),
            Ok(_) => {}
            Err(error) => return Err(error::unreachable(place, &with_causes(&error))),
        }
    }
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
