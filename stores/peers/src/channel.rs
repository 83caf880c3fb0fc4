//! A secure channel: TCP, then proofs of who both are, then frames.
//!
//! ```text
//!   connects                                   listens
//!   "TENURE-P", "-C" or "-T", version, oldest   ────▶   picks the highest that both know
//!                                               ◀────   verdict, version
//!   P, C: Noise with a secret that both know (NNpsk0)   T: TLS with certificates on both sides
//!   frames: their length, and what they say
//! ```
//!
//! The plain words before the proofs are part of what is proven, so that no attacker can change them unnoticed. What Noise
//! carries is cut in chunks of (length, ciphertext).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::certificates::{Certificates, Vouched, distrust, names};
use super::codec::Wire;
use super::frame::{Frame, PROTOCOL};
use super::trust::{Keys, Trust};

const MAGIC: &[u8; 7] = b"TENURE-";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Until so much time has passed, a stranger has proven who he is, or is cut off.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A host that does not even answer is given up sooner: when links heal, connecting anew is what carries.
const REACHING: Duration = Duration::from_secs(1);

/// The longest frame: a snapshot of everything.
pub(super) const LONGEST: usize = 256 << 20;
/// The longest frame of a peer that has not authenticated yet.
const LONGEST_GREETING: usize = 64 << 10;
/// Noise carries no more in one message; 16 bytes of it are the proof.
const CHUNK: usize = 65_535 - 16;

const ACCEPTED: u8 = 0;
const OTHER_VERSION: u8 = 1;
const OTHER_SECRET: u8 = 2;
const OTHER_TRUST: u8 = 3;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub(super) enum Closed {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it did not answer in time")]
    Silent,
    #[error("it does not speak as a member does: is that the port of another program?")]
    Stranger,
    #[error("the secret is another one there: compare the files that secret-file names")]
    Secret,
    #[error("one side has a secret, the other certificates: give all the same parameters")]
    Trust,
    #[error("{0}: look at the files that ca, cert and key name, here and there")]
    Certificate(String),
    #[error("it speaks protocols {1} to {0}, and this one {2} to {3}: upgrade the older of the two")]
    Version(u8, u8, u8, u8),
    #[error("it sent what cannot be read")]
    Garbled,
}

impl Closed {
    /// Whether a person has to do something first.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::Secret | Self::Trust | Self::Certificate(_) | Self::Version(..) | Self::Stranger)
    }
}

/// The half that sends.
pub(super) struct FrameWriter {
    to: BufWriter<Box<dyn AsyncWrite + Send + Unpin>>,
    seal: Option<Seal>,
}

/// The half that receives.
pub(super) struct FrameReader {
    from: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    seal: Option<Seal>,
    certificate: Option<CertificateDer<'static>>,
    /// The peer proved no more than a client has to.
    is_client: bool,
    longest: usize,
    last_length: usize,
}

/// What Noise made of the secret; TLS seals by itself.
pub(super) struct Seal {
    state: Arc<StatelessTransportState>,
    nonce: u64,
}

/// Connects to a member. A certificate has to name it as it is `known_as`.
pub(super) async fn connect(
    address: &str,
    known_as: &str,
    trust: &Trust,
) -> Result<(FrameWriter, FrameReader), Closed> {
    connect_as(address, known_as, trust, PROTOCOL).await
}

/// Connects as something that speaks these versions would.
async fn connect_as(
    address: &str,
    known_as: &str,
    trust: &Trust,
    (newest, oldest): (u8, u8),
) -> Result<(FrameWriter, FrameReader), Closed> {
    let greet = async {
        let reached = timeout(REACHING, TcpStream::connect(address)).await;
        let mut stream = reached.map_err(|_| Closed::Silent)??;
        prepare(&stream);
        let greeting = [&MAGIC[..], &[letter(trust), newest, oldest]].concat();
        stream.write_all(&greeting).await?;
        let mut verdict = [0; 3];
        stream.read_exact(&mut verdict).await?;
        match verdict {
            [ACCEPTED, ..] => {}
            [OTHER_VERSION, its_newest, its_oldest] => {
                return Err(Closed::Version(its_newest, its_oldest, oldest, newest));
            }
            [OTHER_TRUST, ..] => return Err(Closed::Trust),
            _ => return Err(Closed::Stranger),
        }
        let plain = [greeting, verdict.to_vec()].concat();
        match trust {
            Trust::Secret(keys) => prove_secret(stream, &keys.group.unwrap_or(keys.clients), &plain).await,
            Trust::Certificates(own) => prove_certificate(stream, own, known_as, &plain).await,
        }
    };
    timeout(PATIENCE, greet).await.unwrap_or(Err(Closed::Silent))
}

/// Answers a peer that connects.
pub(super) async fn accept(
    mut stream: TcpStream,
    trust: &Trust,
) -> Result<(FrameWriter, FrameReader), Closed> {
    let greet = async {
        prepare(&stream);
        let mut greeting = [0; 10];
        stream.read_exact(&mut greeting).await?;
        let [kind, newest, oldest] = [greeting[7], greeting[8], greeting[9]];
        if &greeting[..7] != MAGIC {
            return Err(Closed::Stranger);
        }
        let common = newest.min(PROTOCOL.0);
        if common < oldest.max(PROTOCOL.1) {
            stream.write_all(&[OTHER_VERSION, PROTOCOL.0, PROTOCOL.1]).await?;
            return Err(Closed::Version(newest, oldest, PROTOCOL.1, PROTOCOL.0));
        }
        if kind != letter(trust) && !(kind == CLIENT && matches!(trust, Trust::Secret(_))) {
            stream.write_all(&[OTHER_TRUST, 0, 0]).await?;
            return Err(Closed::Trust);
        }
        let verdict = [ACCEPTED, common, 0];
        stream.write_all(&verdict).await?;
        let plain = [&greeting[..], &verdict].concat();
        match trust {
            Trust::Secret(Keys { clients, .. }) if kind == CLIENT => {
                let (writer, reader) = check_secret(stream, clients, &plain).await?;
                Ok((writer, FrameReader { is_client: true, ..reader }))
            }
            Trust::Secret(keys) => check_secret(stream, &keys.group.ok_or(Closed::Trust)?, &plain).await,
            Trust::Certificates(own) => check_certificate(stream, own, &plain).await,
        }
    };
    timeout(PATIENCE, greet).await.unwrap_or(Err(Closed::Silent))
}

/// Proves no more than that it knows the secret of clients.
const CLIENT: u8 = b'C';

fn letter(trust: &Trust) -> u8 {
    match trust {
        Trust::Secret(Keys { group: None, .. }) => CLIENT,
        Trust::Secret(_) => b'P',
        Trust::Certificates(_) => b'T',
    }
}

async fn prove_secret(
    mut stream: TcpStream,
    secret: &[u8; 32],
    plain: &[u8],
) -> Result<(FrameWriter, FrameReader), Closed> {
    let mut noise = builder(secret, plain)?.build_initiator().map_err(broken)?;
    send_handshake(&mut stream, &mut noise).await?;
    match stream.read_u8().await? {
        ACCEPTED => {}
        OTHER_SECRET => return Err(Closed::Secret),
        _ => return Err(Closed::Stranger),
    }
    receive_handshake(&mut stream, &mut noise).await?;
    sealed(stream, noise)
}

async fn check_secret(
    mut stream: TcpStream,
    secret: &[u8; 32],
    plain: &[u8],
) -> Result<(FrameWriter, FrameReader), Closed> {
    let mut noise = builder(secret, plain)?.build_responder().map_err(broken)?;
    if let Err(error) = receive_handshake(&mut stream, &mut noise).await {
        stream.write_u8(OTHER_SECRET).await?;
        return Err(error);
    }
    stream.write_u8(ACCEPTED).await?;
    send_handshake(&mut stream, &mut noise).await?;
    sealed(stream, noise)
}

/// Repeats the plain words where no attacker can change them. The answer also tells that our certificate was accepted: in
/// TLS 1.3 the connecting side is not told otherwise.
async fn prove_certificate(
    stream: TcpStream,
    own: &Certificates,
    known_as: &str,
    plain: &[u8],
) -> Result<(FrameWriter, FrameReader), Closed> {
    let (mut stream, certificate) = own.connect(stream, known_as).await?;
    stream.write_all(plain).await.map_err(distrust)?;
    stream.flush().await.map_err(distrust)?;
    match stream.read_u8().await.map_err(distrust)? {
        ACCEPTED => Ok(vouched((stream, certificate))),
        _ => Err(Closed::Stranger),
    }
}

async fn check_certificate(
    stream: TcpStream,
    own: &Certificates,
    plain: &[u8],
) -> Result<(FrameWriter, FrameReader), Closed> {
    let (mut stream, certificate) = own.accept(stream).await?;
    let mut repeated = vec![0; plain.len()];
    stream.read_exact(&mut repeated).await?;
    if repeated != plain {
        return Err(Closed::Garbled);
    }
    stream.write_u8(ACCEPTED).await?;
    stream.flush().await?;
    Ok(vouched((stream, certificate)))
}

/// A peer that vanished without a word is noticed within seconds.
fn prepare(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(2));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
    let _ = sockopt::set_tcp_user_timeout(stream, 5_000);
}

fn builder<'a>(secret: &'a [u8; 32], plain: &'a [u8]) -> Result<Builder<'a>, Closed> {
    let pattern = PATTERN.parse().map_err(broken)?;
    Builder::new(pattern).psk(0, secret).and_then(|builder| builder.prologue(plain)).map_err(broken)
}

/// Both halves of the handshake are of fixed length: a key and its proof.
const WORD: usize = 32 + 16;

async fn send_handshake(stream: &mut TcpStream, noise: &mut HandshakeState) -> Result<(), Closed> {
    let mut word = [0; WORD];
    let length = noise.write_message(&[], &mut word).map_err(broken)?;
    Ok(stream.write_all(&word[..length]).await?)
}

async fn receive_handshake(stream: &mut TcpStream, noise: &mut HandshakeState) -> Result<(), Closed> {
    let mut word = [0; WORD];
    stream.read_exact(&mut word).await?;
    noise.read_message(&word, &mut []).map(drop).map_err(|_| Closed::Secret)
}

fn sealed(stream: TcpStream, noise: HandshakeState) -> Result<(FrameWriter, FrameReader), Closed> {
    let state = Arc::new(noise.into_stateless_transport_mode().map_err(broken)?);
    let (from, to) = stream.into_split();
    let seal = || Some(Seal { state: state.clone(), nonce: 0 });
    Ok((FrameWriter::new(Box::new(to), seal()), FrameReader::new(Box::new(from), seal(), None)))
}

fn vouched((stream, certificate): Vouched) -> (FrameWriter, FrameReader) {
    let (from, to) = tokio::io::split(stream);
    (FrameWriter::new(Box::new(to), None), FrameReader::new(Box::new(from), None, Some(certificate)))
}

fn broken(_: snow::Error) -> Closed {
    Closed::Garbled
}

impl FrameWriter {
    fn new(to: Box<dyn AsyncWrite + Send + Unpin>, seal: Option<Seal>) -> Self {
        Self { to: BufWriter::new(to), seal }
    }

    /// Sends one frame; nothing may be left in a buffer when the caller goes to wait.
    pub(super) async fn write_frame(&mut self, frame: &Frame) -> Result<(), Closed> {
        self.put(&frame.to_bytes()).await?;
        self.flush().await
    }

    /// Puts one frame in the buffer.
    pub(super) async fn put(&mut self, frame: &[u8]) -> Result<(), Closed> {
        let length = u32::try_from(frame.len()).ok().filter(|length| *length as usize <= LONGEST);
        let length = length.ok_or(Closed::Garbled)?.to_le_bytes();
        let Some(seal) = &mut self.seal else {
            self.to.write_all(&length).await?;
            return Ok(self.to.write_all(frame).await?);
        };
        let whole = [&length, frame].concat();
        let mut sealed = vec![0; whole.len().min(CHUNK) + 16];
        for chunk in whole.chunks(CHUNK) {
            let length = seal.state.write_message(seal.nonce, chunk, &mut sealed).map_err(broken)?;
            seal.nonce += 1;
            self.to.write_u16_le(u16::try_from(length).map_err(|_| Closed::Garbled)?).await?;
            self.to.write_all(&sealed[..length]).await?;
        }
        Ok(())
    }

    /// Sends what was put in the buffer.
    pub(super) async fn flush(&mut self) -> Result<(), Closed> {
        Ok(self.to.flush().await?)
    }
}

impl FrameReader {
    pub(super) fn new(
        from: Box<dyn AsyncRead + Send + Unpin>,
        seal: Option<Seal>,
        certificate: Option<CertificateDer<'static>>,
    ) -> Self {
        let (longest, last_length) = (LONGEST_GREETING, 0);
        Self { from: BufReader::new(from), seal, certificate, is_client: false, longest, last_length }
    }

    /// Lets frames be so long, once it is known who is there.
    pub(super) fn allow(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// How long the last frame was.
    pub(super) fn last_length(&self) -> usize {
        self.last_length
    }

    /// Whether the peer may say that it is at that address: the secret of the group allows any address, that of clients
    /// none, and a certificate names it.
    pub(super) fn may_be_at(&self, address: &str) -> bool {
        !self.is_client && self.certificate.as_ref().is_none_or(|certificate| names(certificate, address))
    }

    /// The next frame. Not to be abandoned half way, except with the channel.
    pub(super) async fn read_frame(&mut self) -> Result<Frame, Closed> {
        let first = self.chunk(4).await?;
        let (length, rest) = first.split_at_checked(4).ok_or(Closed::Garbled)?;
        let length = u32::from_le_bytes(length.try_into().map_err(|_| Closed::Garbled)?) as usize;
        if length > self.longest {
            return Err(Closed::Garbled);
        }
        let mut whole = rest.to_vec();
        while whole.len() < length {
            let missing = length - whole.len();
            whole.extend_from_slice(&self.chunk(missing).await?);
        }
        self.last_length = length;
        Frame::from_bytes(&whole).map_err(|_| Closed::Garbled)
    }

    /// What comes next: all of a sealed chunk, or as much as is wanted. Memory is taken for what came, not for what was
    /// announced.
    async fn chunk(&mut self, wanted: usize) -> Result<Vec<u8>, Closed> {
        let Some(seal) = &mut self.seal else {
            let mut plain = vec![0; wanted.min(CHUNK)];
            self.from.read_exact(&mut plain).await?;
            return Ok(plain);
        };
        let length = self.from.read_u16_le().await?;
        let mut sealed = vec![0; length.into()];
        self.from.read_exact(&mut sealed).await?;
        let mut plain = vec![0; sealed.len()];
        let length = seal.state.read_message(seal.nonce, &sealed, &mut plain).map_err(broken)?;
        seal.nonce += 1;
        plain.truncate(length);
        if plain.is_empty() { Err(Closed::Garbled) } else { Ok(plain) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::codec::Blob;

    const SEVEN: Trust = Trust::Secret(Keys { group: Some([7; 32]), clients: [17; 32] });

    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    #[tokio::test]
    async fn large_frames_arrive_whole_and_in_order() {
        let (listener, address) = listener().await;
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            let (mut writer, mut reader) = accept(stream, &SEVEN).await.unwrap();
            reader.allow(LONGEST);
            for _ in 0..3 {
                let Frame::Raft(blob) = reader.read_frame().await.unwrap() else { panic!("another frame") };
                writer.write_frame(&Frame::Raft(blob)).await.unwrap();
            }
        };
        let ask = async {
            let (mut writer, mut reader) = connect(&address, &address, &SEVEN).await.unwrap();
            reader.allow(LONGEST);
            for size in [0, 65_500, 3_000_000] {
                writer.write_frame(&Frame::Raft(Blob(vec![1; size]))).await.unwrap();
                let Frame::Raft(Blob(back)) = reader.read_frame().await.unwrap() else {
                    panic!("another frame")
                };
                assert_eq!(back.len(), size);
            }
        };
        tokio::join!(serve, ask);
    }

    #[tokio::test]
    async fn another_secret_is_refused_on_both_sides() {
        let (listener, address) = listener().await;
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            assert!(matches!(accept(stream, &SEVEN).await, Err(Closed::Secret)));
        };
        let eight = Trust::Secret(Keys::of_group([8; 32]));
        let (_, asked) = tokio::join!(serve, connect(&address, &address, &eight));
        assert!(matches!(asked, Err(Closed::Secret)));
    }

    #[tokio::test]
    async fn other_protocols_are_refused_with_both_versions() {
        for (theirs, works) in [((9, 1), true), ((0, 0), false), ((9, 2), false)] {
            let (listener, address) = listener().await;
            let serve = async {
                let (stream, _) = listener.accept().await.unwrap();
                accept(stream, &SEVEN).await.is_ok()
            };
            let (served, asked) = tokio::join!(serve, connect_as(&address, &address, &SEVEN, theirs));
            assert_eq!((served, asked.is_ok()), (works, works), "{theirs:?}");
            if let Err(error) = asked {
                assert!(error.is_permanent() && error.to_string().contains("upgrade"), "{error}");
            }
        }
    }

    /// A peer that has not authenticated cannot make a member take memory, and is told no more than that it is over.
    #[tokio::test]
    async fn a_greeting_is_short() {
        let (listener, address) = listener().await;
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            let (_mouth, mut reader) = accept(stream, &SEVEN).await.unwrap();
            reader.read_frame().await.map(drop)
        };
        let ask = async {
            let (mut writer, _ear) = connect(&address, &address, &SEVEN).await.unwrap();
            writer.write_frame(&Frame::Raft(Blob(vec![1; LONGEST_GREETING]))).await
        };
        let (served, _) = tokio::join!(serve, ask);
        assert!(matches!(served, Err(Closed::Garbled)), "{served:?}");
    }
}
