//! Sockets: a Unix socket, loopback, and TLS beyond it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
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
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::App;
use super::guard::{Peer, Way};
use crate::agent::config::HttpConfig;

/// Listens wherever it was told to, and answers for as long as the runtime lives.
///
/// # Errors
/// If a socket cannot be had, or certificates cannot be read.
pub async fn serve(app: &Arc<App>) -> Result<(), String> {
    let http = &app.config.http;
    let server = Arc::new(Server {
        router: super::router(app.clone()),
        connections: Arc::new(Semaphore::new(http.connections)),
        patience: http.request_timeout / 6,
        tls: http.tls.as_ref().map(|(cert, key)| acceptor(cert, key)).transpose()?,
    });
    if let Some(path) = &http.socket {
        let listener = unix(path, http).await.map_err(|error| format!("{}: {error}", path.display()))?;
        tracing::info!(socket = %path.display(), "listening");
        let server = server.clone();
        tokio::spawn(async move {
            loop {
                server.clone().accept_unix(&listener).await;
            }
        });
    }
    for address in &http.listen {
        let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
        let bound = listener.local_addr().map_err(|error| format!("{address}: {error}"))?;
        app.listens_on(bound);
        tracing::info!(address = %bound, tls = server.tls.is_some(), "listening");
        let server = server.clone();
        tokio::spawn(async move {
            loop {
                server.clone().accept_tcp(&listener).await;
            }
        });
    }
    Ok(())
}

struct Server {
    router: Router,
    connections: Arc<Semaphore>,
    patience: Duration,
    tls: Option<TlsAcceptor>,
}

impl Server {
    async fn accept_unix(self: Arc<Self>, listener: &UnixListener) {
        match listener.accept().await {
            Ok((stream, _)) => {
                let user = stream.peer_cred().map(|peer| peer.uid());
                let Ok(user) = user else { return };
                let peer = Peer { way: Way::Unix(user), wire: duplicate::<UnixStream>(&stream) };
                self.spawn(stream, peer);
            }
            Err(error) => rest(&error).await,
        }
    }

    async fn accept_tcp(self: Arc<Self>, listener: &TcpListener) {
        match listener.accept().await {
            Ok((stream, from)) => {
                let _ = stream.set_nodelay(true);
                let peer = Peer { way: Way::Tcp(from), wire: duplicate::<TcpStream>(&stream) };
                match self.tls.clone() {
                    None => self.spawn(stream, peer),
                    Some(tls) => {
                        tokio::spawn(async move {
                            let handshake = tokio::time::timeout(self.patience, tls.accept(stream)).await;
                            if let Ok(Ok(stream)) = handshake {
                                self.spawn(stream, peer);
                            }
                        });
                    }
                }
            }
            Err(error) => rest(&error).await,
        }
    }

    /// Answers on a connection, if there are not too many already.
    fn spawn(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let Ok(permit) = self.connections.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let router = TowerToHyperService::new(self.router.clone());
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer.clone());
                hyper::service::Service::call(&router, request)
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            // Small buffers: whoever does not read is noticed.
            builder.timer(TokioTimer::new()).header_read_timeout(self.patience).max_buf_size(16 * 1024);
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}

fn duplicate<T: AsFd>(stream: &T) -> Option<Arc<OwnedFd>> {
    stream.as_fd().try_clone_to_owned().ok().map(Arc::new)
}

/// No more descriptors, most likely: others have to close theirs first.
async fn rest(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// A socket that nobody answers on is left over from an agent that died.
async fn unix(path: &Path, http: &HttpConfig) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            let why = "another agent listens there; give this one a socket of its own (http.socket)";
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
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(cert).map_err(|error| unreadable(cert, &error))?.collect();
    let chain = chain.map_err(|error| unreadable(cert, &error))?;
    private(key)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| unreadable(cert, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Others must not be able to read a private key.
fn private(key: &Path) -> Result<(), String> {
    let about = std::fs::metadata(key).map_err(|error| format!("{}: {error}", key.display()))?;
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(format!("{0} has mode {mode:04o}: others can read it; `chmod 600 {0}`", key.display()))
}
