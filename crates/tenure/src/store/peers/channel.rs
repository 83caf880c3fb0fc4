//! A secure channel: TCP, then Noise with a secret that both sides know (NNpsk0), then frames.
//!
//! ```text
//!   connects                                   listens
//!   "TENURE-P" version, oldest   ────▶          picks the highest that both know
//!                                ◀────          verdict, version
//!   e, proven by the secret      ────▶          refuses whoever does not know it
//!                                ◀────          verdict, e, proven by the secret
//!   frames: chunks of (length, ciphertext); the first begins with the length of the whole
//! ```
//!
//! The plain words before the handshake are part of what is proven in it, so that nobody can change them unnoticed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::codec::Wire;
use super::frame::{Frame, PROTOCOL};

const MAGIC: &[u8; 8] = b"TENURE-P";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Until so much time has passed, a stranger has proven who he is, or is cut off.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The longest frame: a snapshot of everything.
const LONGEST: usize = 256 << 20;
/// Noise carries no more in one message; 16 bytes of it are the proof.
const CHUNK: usize = 65_535 - 16;

const ACCEPTED: u8 = 0;
const OTHER_VERSION: u8 = 1;
const OTHER_SECRET: u8 = 2;

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
    #[error("it speaks protocols {1} to {0}, and this one {2} to {3}: upgrade the older of the two")]
    Version(u8, u8, u8, u8),
    #[error("it sent what cannot be read")]
    Garbled,
}

impl Closed {
    /// Whether a person has to do something first.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::Secret | Self::Version(..) | Self::Stranger)
    }
}

/// The half that sends.
#[derive(Debug)]
pub(super) struct Mouth {
    to: BufWriter<OwnedWriteHalf>,
    state: Arc<StatelessTransportState>,
    nonce: u64,
}

/// The half that receives.
#[derive(Debug)]
pub(super) struct Ear {
    from: BufReader<OwnedReadHalf>,
    state: Arc<StatelessTransportState>,
    nonce: u64,
}

/// Connects to a member.
pub(super) async fn connect(address: &str, secret: &[u8; 32]) -> Result<(Mouth, Ear), Closed> {
    connect_as(address, secret, PROTOCOL).await
}

/// Connects as something that speaks these versions would.
async fn connect_as(
    address: &str,
    secret: &[u8; 32],
    (newest, oldest): (u8, u8),
) -> Result<(Mouth, Ear), Closed> {
    let greet = async {
        let mut stream = TcpStream::connect(address).await?;
        prepare(&stream);
        let greeting = [&MAGIC[..], &[newest, oldest]].concat();
        stream.write_all(&greeting).await?;
        let mut verdict = [0; 3];
        stream.read_exact(&mut verdict).await?;
        match verdict {
            [ACCEPTED, ..] => {}
            [OTHER_VERSION, its_newest, its_oldest] => {
                return Err(Closed::Version(its_newest, its_oldest, oldest, newest));
            }
            _ => return Err(Closed::Stranger),
        }
        let mut noise =
            builder(secret, &[greeting, verdict.to_vec()].concat())?.build_initiator().map_err(broken)?;
        say(&mut stream, &mut noise).await?;
        match stream.read_u8().await? {
            ACCEPTED => {}
            OTHER_SECRET => return Err(Closed::Secret),
            _ => return Err(Closed::Stranger),
        }
        hear(&mut stream, &mut noise).await?;
        open(stream, noise)
    };
    timeout(PATIENCE, greet).await.unwrap_or(Err(Closed::Silent))
}

/// Answers whoever connects.
pub(super) async fn accept(mut stream: TcpStream, secret: &[u8; 32]) -> Result<(Mouth, Ear), Closed> {
    let greet = async {
        prepare(&stream);
        let mut greeting = [0; 10];
        stream.read_exact(&mut greeting).await?;
        let [newest, oldest] = [greeting[8], greeting[9]];
        if &greeting[..8] != MAGIC {
            return Err(Closed::Stranger);
        }
        let common = newest.min(PROTOCOL.0);
        if common < oldest.max(PROTOCOL.1) {
            stream.write_all(&[OTHER_VERSION, PROTOCOL.0, PROTOCOL.1]).await?;
            return Err(Closed::Version(newest, oldest, PROTOCOL.1, PROTOCOL.0));
        }
        let verdict = [ACCEPTED, common, 0];
        stream.write_all(&verdict).await?;
        let mut noise =
            builder(secret, &[&greeting[..], &verdict].concat())?.build_responder().map_err(broken)?;
        if let Err(error) = hear(&mut stream, &mut noise).await {
            stream.write_u8(OTHER_SECRET).await?;
            return Err(error);
        }
        stream.write_u8(ACCEPTED).await?;
        say(&mut stream, &mut noise).await?;
        open(stream, noise)
    };
    timeout(PATIENCE, greet).await.unwrap_or(Err(Closed::Silent))
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

async fn say(stream: &mut TcpStream, noise: &mut HandshakeState) -> Result<(), Closed> {
    let mut word = [0; WORD];
    let length = noise.write_message(&[], &mut word).map_err(broken)?;
    Ok(stream.write_all(&word[..length]).await?)
}

async fn hear(stream: &mut TcpStream, noise: &mut HandshakeState) -> Result<(), Closed> {
    let mut word = [0; WORD];
    stream.read_exact(&mut word).await?;
    noise.read_message(&word, &mut []).map(drop).map_err(|_| Closed::Secret)
}

fn open(stream: TcpStream, noise: HandshakeState) -> Result<(Mouth, Ear), Closed> {
    let state = Arc::new(noise.into_stateless_transport_mode().map_err(broken)?);
    let (from, to) = stream.into_split();
    let mouth = Mouth { to: BufWriter::new(to), state: state.clone(), nonce: 0 };
    Ok((mouth, Ear { from: BufReader::new(from), state, nonce: 0 }))
}

fn broken(_: snow::Error) -> Closed {
    Closed::Garbled
}

impl Mouth {
    /// Sends one frame; nothing may be left in a buffer when the caller goes to wait.
    pub(super) async fn say(&mut self, frame: &Frame) -> Result<(), Closed> {
        self.put(&frame.to_bytes()).await?;
        self.flush().await
    }

    /// Puts one frame in the buffer.
    pub(super) async fn put(&mut self, frame: &[u8]) -> Result<(), Closed> {
        let length = u32::try_from(frame.len()).ok().filter(|length| *length as usize <= LONGEST);
        let whole = [&length.ok_or(Closed::Garbled)?.to_le_bytes(), frame].concat();
        let mut sealed = vec![0; whole.len().min(CHUNK) + 16];
        for chunk in whole.chunks(CHUNK) {
            let length = self.state.write_message(self.nonce, chunk, &mut sealed).map_err(broken)?;
            self.nonce += 1;
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

impl Ear {
    /// The next frame. Not to be abandoned half way, except with the channel.
    pub(super) async fn hear(&mut self) -> Result<Frame, Closed> {
        let first = self.chunk().await?;
        let (length, rest) = first.split_at_checked(4).ok_or(Closed::Garbled)?;
        let length = u32::from_le_bytes(length.try_into().map_err(|_| Closed::Garbled)?) as usize;
        if length > LONGEST {
            return Err(Closed::Garbled);
        }
        let mut whole = rest.to_vec();
        while whole.len() < length {
            whole.extend_from_slice(&self.chunk().await?);
        }
        Frame::from_bytes(&whole).map_err(|_| Closed::Garbled)
    }

    async fn chunk(&mut self) -> Result<Vec<u8>, Closed> {
        let length = self.from.read_u16_le().await?;
        let mut sealed = vec![0; length.into()];
        self.from.read_exact(&mut sealed).await?;
        let mut plain = vec![0; sealed.len()];
        let length = self.state.read_message(self.nonce, &sealed, &mut plain).map_err(broken)?;
        self.nonce += 1;
        plain.truncate(length);
        if plain.is_empty() { Err(Closed::Garbled) } else { Ok(plain) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::store::peers::codec::Blob;

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
            let (mut mouth, mut ear) = accept(stream, &[7; 32]).await.unwrap();
            for _ in 0..3 {
                let Frame::Raft(blob) = ear.hear().await.unwrap() else { panic!("another frame") };
                mouth.say(&Frame::Raft(blob)).await.unwrap();
            }
        };
        let ask = async {
            let (mut mouth, mut ear) = connect(&address, &[7; 32]).await.unwrap();
            for size in [0, 65_500, 3_000_000] {
                mouth.say(&Frame::Raft(Blob(vec![1; size]))).await.unwrap();
                let Frame::Raft(Blob(back)) = ear.hear().await.unwrap() else { panic!("another frame") };
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
            assert!(matches!(accept(stream, &[7; 32]).await, Err(Closed::Secret)));
        };
        let (_, asked) = tokio::join!(serve, connect(&address, &[8; 32]));
        assert!(matches!(asked, Err(Closed::Secret)), "{asked:?}");
    }

    #[tokio::test]
    async fn other_protocols_are_refused_with_both_versions() {
        for (theirs, works) in [((9, 1), true), ((0, 0), false), ((9, 2), false)] {
            let (listener, address) = listener().await;
            let serve = async {
                let (stream, _) = listener.accept().await.unwrap();
                accept(stream, &[7; 32]).await.is_ok()
            };
            let (served, asked) = tokio::join!(serve, connect_as(&address, &[7; 32], theirs));
            assert_eq!((served, asked.is_ok()), (works, works), "{theirs:?}");
            if let Err(error) = asked {
                assert!(error.is_permanent() && error.to_string().contains("upgrade"), "{error}");
            }
        }
    }
}
