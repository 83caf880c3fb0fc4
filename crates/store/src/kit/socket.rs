//! One connection to one of several servers of a product whose protocol its store speaks itself.
//!
//! What was handed to a connection may have been sent, and is never sent on another one: when a connection ends, what it had
//! not sent yet is thrown away with it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tenure_core::Entropy as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, DataIdentity};
use super::watches::lock;
use crate::entropy::KernelEntropy;
use crate::{StoreError, with_causes};

/// What is the same for all servers of a product: the words for what goes wrong on the way to them.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// The store's name in messages.
    pub store: &'static str,
    /// The product, as its users call it.
    pub name: &'static str,
    /// What is said of a server that hangs up before it can be used.
    pub hung_up: &'static str,
}

impl Product {
    /// There is no connection: nothing was sent.
    #[must_use]
    pub fn unreachable(self, place: &str, why: &str) -> StoreError {
        let message = format!("{place} cannot be reached ({why}): see whether it runs and listens there");
        StoreError::not_applied(self.store, message)
    }

    /// What listens there is no server of the product: nothing was asked.
    #[must_use]
    pub fn stranger(self, place: &str) -> StoreError {
        let message = format!("{place} does not speak the protocol of {}: see what listens there", self.name);
        StoreError::not_applied(self.store, message).permanent()
    }

    /// The connection ended before there was an answer.
    #[must_use]
    pub fn lost(self, place: &str) -> StoreError {
        StoreError::unknown(self.store, format!("{place} broke off: look whether it was written"))
    }

    /// No answer came in time.
    #[must_use]
    pub fn late(self, place: &str, waited: Duration) -> StoreError {
        let message = format!("{place} did not answer within {waited:?}: look whether it was written");
        StoreError::unknown(self.store, message)
    }

    /// The answer means nothing.
    #[must_use]
    pub fn strange(self, place: &str) -> StoreError {
        StoreError::unknown(self.store, format!("{place} gives an answer that no {} server gives", self.name))
    }
}

/// Servers that are tried one after the other, beginning with another one each time.
#[derive(Debug)]
pub struct ServersInTurn {
    product: Product,
    servers: Vec<(String, u16)>,
    patience: Duration,
    next: AtomicUsize,
}

impl ServersInTurn {
    /// Of several servers each is waited for as long as `suspicion`, a single one as long as `timeout`.
    #[must_use]
    pub fn new(
        product: Product,
        servers: Vec<(String, u16)>,
        timeout: Duration,
        suspicion: Duration,
    ) -> Self {
        // Handles begin with different servers, so that none of these has to serve all.
        let first = usize::try_from(KernelEntropy.nonce() >> 96).unwrap_or_default();
        let patience = if servers.len() == 1 { timeout } else { suspicion };
        let next = AtomicUsize::new(first % servers.len().max(1));
        Self { product, servers, patience, next }
    }

    /// Opens a connection to the first server that can be used.
    pub async fn open<T, F>(&self, open: impl Fn((String, u16)) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut failure = None;
        for _ in &self.servers {
            let server = &self.servers[self.next.fetch_add(1, Ordering::Relaxed) % self.servers.len()];
            let late = || Err(self.product.unreachable(&show(server), "it says nothing"));
            match timeout(self.patience, open(server.clone())).await.unwrap_or_else(|_| late()) {
                Ok(opened) => return Ok(opened),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| self.product.unreachable("the URL", "it names no server")))
    }
}

fn show((host, port): &(String, u16)) -> String {
    format!("{host}:{port}")
}

trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// The bytes to a server and from it, while a connection is being opened.
#[expect(missing_debug_implementations, reason = "a stream shows nothing")]
pub struct Socket {
    product: Product,
    /// Host and port, for messages.
    pub place: String,
    host: String,
    stream: Box<dyn ReadWrite>,
    buffer: BytesMut,
}

impl Socket {
    /// Connects, not encrypted yet.
    pub async fn connect(product: Product, server: &(String, u16)) -> Result<Self, StoreError> {
        let place = show(server);
        let unreachable = |error: io::Error| product.unreachable(&place, &with_causes(&error));
        let host = server.0.trim_start_matches('[').trim_end_matches(']').to_owned();
        let stream = TcpStream::connect((host.as_str(), server.1)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(Self { product, place, host, stream: Box::new(stream), buffer: BytesMut::new() })
    }

    /// Encrypts what is sent from now on, if it is to be.
    pub async fn encrypted(mut self, config: Option<&Arc<ClientConfig>>) -> Result<Self, StoreError> {
        let Some(config) = config else { return Ok(self) };
        let name = ServerName::try_from(self.host.clone()).map_err(|_| self.product.stranger(&self.place))?;
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let stream = connector.connect(name, self.stream).await;
        let unreachable = |error: io::Error| self.product.unreachable(&self.place, &with_causes(&error));
        self.stream = Box::new(stream.map_err(unreachable)?);
        Ok(self)
    }

    /// Sends all of it.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let unreachable = |error: io::Error| self.product.unreachable(&self.place, &with_causes(&error));
        self.stream.write_all(bytes).await.map_err(unreachable)?;
        self.stream.flush().await.map_err(unreachable)
    }

    /// The next frame, which `take` takes out of what has come once it is whole.
    pub async fn frame<T, E>(
        &mut self,
        take: impl Fn(&mut BytesMut) -> Result<Option<T>, E>,
    ) -> Result<T, StoreError> {
        loop {
            match take(&mut self.buffer) {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err(self.product.stranger(&self.place)),
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(self.product.unreachable(&self.place, self.product.hung_up)),
                Ok(_) => {}
                Err(error) => return Err(self.product.unreachable(&self.place, &with_causes(&error))),
            }
        }
    }

    /// What the server says until it hangs up, or has said that many bytes. One that hangs up without a farewell of TLS has said
    /// everything too.
    pub async fn rest(self, longest: u64) -> Option<String> {
        let mut said = Vec::new();
        let whole = self.stream.take(longest).read_to_end(&mut said).await;
        (whole.is_ok() || !said.is_empty()).then(|| String::from_utf8_lossy(&said).into_owned())
    }
}

/// An open connection. What waits for answers is each store's own.
pub struct Link<W> {
    product: Product,
    /// Host and port, for messages.
    pub place: String,
    ping: Bytes,
    out: mpsc::UnboundedSender<Bytes>,
    waiting: Mutex<Waiting<W>>,
    broken: CancellationToken,
    probing: AtomicBool,
    data: DataIdentity,
}

/// Who waits for what.
#[derive(Default)]
struct Waiting<W> {
    answers: W,
    pongs: VecDeque<oneshot::Sender<()>>,
}

/// No answer came.
#[derive(Debug)]
pub struct Unanswered {
    /// Whether the connection is still there.
    pub late: bool,
    /// What the caller is told.
    pub error: StoreError,
}

impl<W> fmt::Debug for Link<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).finish_non_exhaustive()
    }
}

impl<W: Send + 'static> Connection for Link<W> {
    fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    fn data_identity(&self) -> &DataIdentity {
        &self.data
    }
}

impl<W: Default + Send + 'static> Link<W> {
    /// A connection that is ready for questions, and what moves its bytes. `ping` asks a server whether it is there.
    #[must_use]
    pub fn new(socket: Socket, ping: Bytes) -> (Arc<Self>, LinkWork<W>) {
        let (out, queue) = mpsc::unbounded_channel();
        let this = Arc::new(Self {
            product: socket.product,
            place: socket.place.clone(),
            ping,
            out,
            waiting: Mutex::default(),
            broken: CancellationToken::new(),
            probing: AtomicBool::new(false),
            data: DataIdentity { identity: String::new(), marks: [None, None] },
        });
        (this.clone(), LinkWork { socket, queue, end: LinkEnd(this) })
    }

    /// Notes who waits, and sends the question; neither once the connection has ended.
    pub fn ask(&self, question: impl FnOnce(&mut W) -> Bytes) {
        let mut waiting = lock(&self.waiting);
        if !self.broken.is_cancelled() {
            let _ = self.out.send(question(&mut waiting.answers));
        }
    }

    /// Sends what has no answer.
    pub fn send(&self, bytes: impl Into<Bytes>) {
        let _ = self.out.send(bytes.into());
    }

    /// Looks at who waits.
    pub fn waiting<T>(&self, look: impl FnOnce(&mut W) -> T) -> T {
        look(&mut lock(&self.waiting).answers)
    }

    /// Waits until the server has seen everything that was sent before.
    pub fn ping(&self) -> oneshot::Receiver<()> {
        let (sender, pong) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if !self.broken.is_cancelled() {
            waiting.pongs.push_back(sender);
            let _ = self.out.send(self.ping.clone());
        }
        pong
    }

    /// The server answered a ping.
    pub fn pong(&self) {
        if let Some(pong) = lock(&self.waiting).pongs.pop_front() {
            let _ = pong.send(());
        }
    }

    /// Whether the server is there at all: if it does not say so in time, the connection is given up.
    pub fn probe(self: &Arc<Self>, patience: Duration) {
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

    /// The answer to a question; none if the connection ended. A server that says nothing for as long as `suspicion` is asked
    /// whether it is there.
    pub async fn answer<T>(
        self: &Arc<Self>,
        answer: impl Future<Output = Option<T>>,
        suspicion: Duration,
        until: Instant,
    ) -> Result<T, Unanswered> {
        let began = Instant::now();
        let mut answer = std::pin::pin!(answer);
        let mut answered = timeout_at(until.min(began + suspicion), &mut answer).await;
        if answered.is_err() {
            self.probe(suspicion);
            answered = timeout_at(until, answer).await;
        }
        match answered {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Unanswered { late: false, error: self.product.lost(&self.place) }),
            Err(_) => Err(Unanswered { late: true, error: self.product.late(&self.place, began.elapsed()) }),
        }
    }

    /// Passes on what arrives, until the connection ends.
    pub async fn follow<T>(&self, mut messages: mpsc::UnboundedReceiver<T>, mut tell: impl FnMut(&T)) {
        let next = async {
            while let Some(message) = messages.recv().await {
                tell(&message);
            }
        };
        tokio::select! {
            () = next => {}
            () = self.broken.cancelled() => {}
        }
    }
}

/// What moves the bytes of a connection. Once it is gone, no caller waits any longer.
#[expect(missing_debug_implementations, reason = "a stream shows nothing")]
pub struct LinkWork<W: Default> {
    socket: Socket,
    queue: mpsc::UnboundedReceiver<Bytes>,
    end: LinkEnd<W>,
}

/// A connection that has ended.
struct LinkEnd<W: Default>(Arc<Link<W>>);

impl<W: Default> Drop for LinkEnd<W> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        self.0.broken.cancel();
        *waiting = Waiting::default();
    }
}

impl<W: Default> LinkWork<W> {
    /// Moves bytes until either side ends. `take` takes the next frame out of what has come, `receive` gets it.
    pub async fn run<T, E>(self, take: impl Fn(&mut BytesMut) -> Result<Option<T>, E>, receive: impl Fn(T)) {
        let Self { socket: Socket { stream, mut buffer, .. }, mut queue, end: _end } = self;
        let (mut reading, mut writing) = tokio::io::split(stream);
        let read = async {
            loop {
                match take(&mut buffer) {
                    Ok(Some(frame)) => receive(frame),
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
        tokio::select! {
            () = read => {}
            () = write => {}
        }
    }
}
