//! Sockets: a Unix socket, loopback, and TLS beyond it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::App;
use super::guard::{Peer, Transport};
use super::limits::{RateLimit, SPARE, SlotPool};
use super::pace::ImpatientStream;
use crate::config::HttpConfig;

/// Listens wherever it was told to, and answers for as long as the runtime lives.
///
/// # Errors
/// If a socket cannot be had, or certificates cannot be read.
pub async fn serve(app: &Arc<App>) -> Result<(), String> {
    let http = &app.config.http;
    app.access.read(http)?;
    let server = Arc::new(Server {
        router: super::router(app.clone()),
        app: app.clone(),
        room: SlotPool::new(app.limits.connections_per_client, app.limits.connections),
        spare: Spare::default(),
        handshakes: RateLimit::new(HANDSHAKES, Duration::from_secs(1)),
        wait_limit: http.request_timeout / 6,
    });
    if let Some(path) = &http.socket {
        let listener = unix(path, http).await.map_err(|error| format!("{}: {error}", path.display()))?;
        tracing::info!(socket = %path.display(), "listening");
        let server = server.clone();
        tokio::spawn(async move {
            loop {
                server.accept_unix(&listener).await;
            }
        });
    }
    for address in &http.listen {
        let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
        let bound = listener.local_addr().map_err(|error| format!("{address}: {error}"))?;
        app.listens_on(bound);
        tracing::info!(address = %bound, tls = http.tls.is_some(), "listening");
        let server = server.clone();
        tokio::spawn(async move {
            loop {
                server.accept_tcp(&listener).await;
            }
        });
    }
    Ok(())
}

/// So many TLS handshakes of one client a second: a few percent of a core.
const HANDSHAKES: u32 = 50;

struct Server {
    router: Router,
    app: Arc<App>,
    room: Arc<SlotPool>,
    spare: Spare,
    handshakes: RateLimit,
    wait_limit: Duration,
}

impl Server {
    async fn accept_unix(self: &Arc<Self>, listener: &UnixListener) {
        match listener.accept().await {
            Ok((stream, _)) => {
                let user = stream.peer_cred().map(|peer| peer.uid());
                let Ok(user) = user else { return };
                let wire = duplicate::<UnixStream>(&stream);
                self.admit(stream, Transport::Unix(user), wire, None).await;
            }
            Err(error) => rest(&error).await,
        }
    }

    async fn accept_tcp(self: &Arc<Self>, listener: &TcpListener) {
        match listener.accept().await {
            Ok((stream, from)) => {
                let _ = stream.set_nodelay(true);
                let wire = duplicate::<TcpStream>(&stream);
                self.admit(stream, Transport::Tcp(from), wire, self.app.access.tls()).await;
            }
            Err(error) => rest(&error).await,
        }
    }

    /// Finds a place for a connection before a byte of it is read, so that half a handshake counts too.
    async fn admit(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        transport: Transport,
        wire: Option<Arc<OwnedFd>>,
        tls: Option<TlsAcceptor>,
    ) {
        let place = self.room.enter(&transport.client(), self.app.config.http.priority(transport));
        let answering = self.clone().answer(stream, Peer { transport, wire, spare: place.is_none() }, tls);
        match place {
            Some(place) => {
                tokio::spawn(async move {
                    answering.await;
                    drop(place);
                });
            }
            None => self.spare.spawn(answering).await,
        }
    }

    async fn answer(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        tls: Option<TlsAcceptor>,
    ) {
        let Some(tls) = tls else { return self.talk(stream, peer).await };
        let client = peer.transport.client();
        let handshake = self.shake_hands(stream, &client, &tls);
        if let Ok(Some(stream)) = tokio::time::timeout(self.wait_limit, handshake).await {
            self.talk(stream, peer).await;
        }
    }

    /// A handshake costs this host far more than the client: one client's follow each other at a bounded pace, counted from
    /// when it has said hello.
    async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        client: &str,
        tls: &TlsAcceptor,
    ) -> Option<TlsStream<S>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await.ok()?;
        let wait = self.handshakes.reserve(client, self.wait_limit)?;
        tokio::time::sleep(wait).await;
        hello.into_stream(tls.config().clone()).await.ok()
    }

    async fn talk(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let (router, spare) = (TowerToHyperService::new(self.router.clone()), peer.spare);
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            hyper::service::Service::call(&router, request)
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        // Small buffers: a client that does not read is noticed.
        builder.timer(TokioTimer::new()).header_read_timeout(self.wait_limit).max_buf_size(16 * 1024);
        let stream = TokioIo::new(ImpatientStream::new(stream, self.wait_limit));
        let _ = builder.keep_alive(!spare).serve_connection(stream, service).await;
    }
}

/// Connections beyond those that there is room for. There are few of them, and the oldest is cut off when another one comes:
/// a probe that says at once what it wants is answered, however many others say nothing.
#[derive(Default)]
struct Spare {
    open: Mutex<VecDeque<JoinHandle<()>>>,
}

impl Spare {
    /// Returns when there are no more than that again: the descriptors of the one that was cut off are free by then.
    async fn spawn(&self, answering: impl Future<Output = ()> + Send + 'static) {
        if let Some(oldest) = self.keep(tokio::spawn(answering)) {
            oldest.abort();
            let _ = oldest.await;
        }
    }

    /// The oldest, if there are too many.
    fn keep(&self, task: JoinHandle<()>) -> Option<JoinHandle<()>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|task| !task.is_finished());
        open.push_back(task);
        if open.len() > SPARE { open.pop_front() } else { None }
    }
}

fn duplicate<T: AsFd>(stream: &T) -> Option<Arc<OwnedFd>> {
    stream.as_fd().try_clone_to_owned().ok().map(Arc::new)
}

/// No more descriptors, most likely: others have to close theirs first.
async fn rest(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// A socket on which no process answers is left over from an agent that died; anything else at that path is not ours to remove.
async fn unix(path: &Path, http: &HttpConfig) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let why = "this is not a socket; remove it, or set another http.socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        if UnixStream::connect(path).await.is_ok() {
            let why = "another agent listens on this socket; set another http.socket";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(http.socket_mode))?;
    Ok(listener)
}

/// What answers over TLS, with these certificates and that key.
///
/// # Errors
/// If one of the files cannot be read, does not fit, or others can read the key.
pub(crate) fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(cert, &error))?;
    let secret = crate::secret_file::read(key)?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|error| unreadable(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| unreadable(cert, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `http.socket` may name the wrong path, and the agent may run as root.
    #[tokio::test]
    async fn only_a_socket_without_a_listener_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let http = crate::config::Config::of(crate::config::layers::Layers::default()).unwrap().http;
        std::fs::write(at("precious"), "precious").unwrap();
        std::os::unix::fs::symlink(at("precious"), at("link")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for name in ["precious", "link", "folder"] {
            let error = unix(&at(name), &http).await.unwrap_err();
            assert!(error.to_string().contains("http.socket"), "{name}: {error}");
            assert!(at(name).exists(), "{name}");
        }
        assert_eq!(std::fs::read(at("precious")).unwrap(), b"precious");
        let left_over = unix(&at("socket"), &http).await.unwrap();
        assert!(unix(&at("socket"), &http).await.is_err(), "another agent listens");
        drop(left_over);
        unix(&at("socket"), &http).await.unwrap();
    }
}
