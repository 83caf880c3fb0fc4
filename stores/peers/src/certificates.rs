//! Certificates instead of a secret: TLS 1.3, in which both sides show one of the same authority.
//!
//! The certificate of a member names its host, and the connecting side looks for that name; so does a member to whom
//! another one connects, so that the certificate of a client does not make it a member. Files that are renewed count
//! from the next connection on.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::channel::Closed;
use super::settings::refuse;
use super::trust::host_of;
use tenure_store::StoreError;
use tenure_store::kit::watches::lock;

/// A secure stream, and the certificate of the other end.
pub(super) type Vouched = (TlsStream<TcpStream>, CertificateDer<'static>);

/// The files of the authority, of our certificate and of its key, and what was read in them.
pub(super) struct Certificates {
    files: [PathBuf; 3],
    loaded: Mutex<Loaded>,
}

#[derive(Clone)]
struct Loaded {
    /// When the files were last changed.
    stamps: [Option<SystemTime>; 3],
    connects: Arc<ClientConfig>,
    listens: Arc<ServerConfig>,
}

impl Certificates {
    /// Reads the files.
    pub(super) fn load(files: [PathBuf; 3]) -> Result<Self, StoreError> {
        let loaded = Mutex::new(Loaded::read(&files)?);
        Ok(Self { files, loaded })
    }

    /// Shows ours to the listening side, and wants one that names that host.
    pub(super) async fn connect(&self, stream: TcpStream, address: &str) -> Result<Vouched, Closed> {
        let name = name_of(address)?;
        let connector = TlsConnector::from(self.current().connects);
        let stream = connector.connect(name, stream).await.map_err(distrust)?;
        vouched(TlsStream::from(stream))
    }

    /// Shows ours to the connecting side, and wants one of the same authority.
    pub(super) async fn accept(&self, stream: TcpStream) -> Result<Vouched, Closed> {
        let acceptor = TlsAcceptor::from(self.current().listens);
        let stream = acceptor.accept(stream).await.map_err(distrust)?;
        vouched(TlsStream::from(stream))
    }

    /// What is in the files now; if that cannot be used, what was in them before.
    fn current(&self) -> Loaded {
        let mut loaded = lock(&self.loaded);
        let now = stamps(&self.files);
        if now != loaded.stamps {
            match Loaded::read(&self.files) {
                Ok(new) => *loaded = new,
                Err(error) => {
                    tracing::warn!("{}; the former certificates are used still", error.message());
                    loaded.stamps = now;
                }
            }
        }
        loaded.clone()
    }
}

impl Loaded {
    fn read(files: &[PathBuf; 3]) -> Result<Self, StoreError> {
        let [ca, cert, key] = files;
        let unusable = |file: &PathBuf, error: &dyn fmt::Display| {
            refuse(&format!("{} cannot be used: {error}; it is to be a file in PEM form", file.display()))
        };
        let stamps = stamps(files);
        let chain = |file: &PathBuf| -> Result<Vec<CertificateDer<'static>>, StoreError> {
            let (pem, _) = tenure_store::trust::read(file).map_err(|why| refuse(&why))?;
            let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
                .collect::<Result<_, _>>()
                .map_err(|error| unusable(file, &error))?;
            if found.is_empty() { Err(unusable(file, &"it holds no certificate")) } else { Ok(found) }
        };
        let mut roots = RootCertStore::empty();
        for root in chain(ca)? {
            roots.add(root).map_err(|error| unusable(ca, &error))?;
        }
        let (roots, shown) = (Arc::new(roots), chain(cert)?);
        let secret = tenure_store::trust::read_secret(key).map_err(|why| refuse(&why))?;
        let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|error| unusable(key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let verifier = verifier.build().map_err(|error| unusable(ca, &error))?;
        let connects = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(cert, &error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(shown.clone(), secret.clone_key())
            .map_err(|error| unusable(cert, &error))?;
        let listens = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(cert, &error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(shown, secret)
            .map_err(|error| unusable(key, &error))?;
        Ok(Self { stamps, connects: Arc::new(connects), listens: Arc::new(listens) })
    }
}

fn stamps(files: &[PathBuf; 3]) -> [Option<SystemTime>; 3] {
    files.each_ref().map(|file| std::fs::metadata(file).and_then(|found| found.modified()).ok())
}

fn name_of(address: &str) -> Result<ServerName<'static>, Closed> {
    ServerName::try_from(host_of(address).to_owned())
        .map_err(|_| Closed::Certificate("its host is no name that a certificate could have".to_owned()))
}

/// Whether a certificate names the host of that address.
pub(super) fn names(certificate: &CertificateDer<'_>, address: &str) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    name_of(address).is_ok_and(|name| parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok()))
}

fn vouched(stream: TlsStream<TcpStream>) -> Result<Vouched, Closed> {
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
    let shown = shown.ok_or_else(|| Closed::Certificate("it shows no certificate".to_owned()))?;
    Ok((stream, shown.into_owned()))
}

/// What TLS refuses, a person has to see to; what the network did may pass.
pub(super) fn distrust(error: std::io::Error) -> Closed {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(why) => Closed::Certificate(why.to_string()),
        None => Closed::Io(error),
    }
}
