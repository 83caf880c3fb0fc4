//! The protocol of members as `docs/stores/peers.md` and ADR 17 tell it, by a client that shares no code with them: it says what
//! no handle would ever say.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};

use super::{EVENTUALLY, SECRET};

/// What a client that connects says first: the protocol, by a secret, and the versions that it speaks.
pub const GREETING: &[u8; 10] = b"TENURE-P\x01\x01";

pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(EVENTUALLY)).unwrap();
    stream
}

/// Says no more, and waits until the other side says no more either: then it has heard everything.
pub fn part(mut stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    let silent = |kind| matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
    assert!(!ended.is_err_and(|error| silent(error.kind())), "a member keeps a connection that was ended");
}

/// A client that knows the secret.
pub struct Insider {
    pub stream: TcpStream,
    noise: snow::TransportState,
}

impl Insider {
    /// Proves to that member that it knows the secret.
    pub fn at(address: &str) -> Self {
        let mut stream = connect(address);
        stream.write_all(GREETING).unwrap();
        let mut verdict = [0; 3];
        stream.read_exact(&mut verdict).unwrap();
        let plain = [&GREETING[..], &verdict].concat();
        let secret = hash(&[b"tenure peers 1 secret", SECRET.as_bytes()]);
        let builder = snow::Builder::new("Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s".parse().unwrap());
        let builder = builder.psk(0, &secret).and_then(|builder| builder.prologue(&plain)).unwrap();
        let mut noise = builder.build_initiator().unwrap();
        let (mut word, mut accepted) = ([0; 48], [0]);
        assert_eq!(noise.write_message(&[], &mut word).unwrap(), word.len());
        stream.write_all(&word).unwrap();
        stream.read_exact(&mut accepted).unwrap();
        assert_eq!(accepted, [0], "the secret is the right one");
        stream.read_exact(&mut word).unwrap();
        noise.read_message(&word, &mut []).unwrap();
        Self { stream, noise: noise.into_transport_mode().unwrap() }
    }

    /// Says a frame, after its length.
    pub fn say(&mut self, frame: &[u8]) {
        self.seal(&[&u32::try_from(frame.len()).unwrap().to_le_bytes(), frame].concat());
    }

    /// Says that as one sealed chunk, whatever it is. Whether the member listens still is not asked.
    pub fn seal(&mut self, plain: &[u8]) {
        let mut sealed = vec![0; plain.len() + 16];
        let length = self.noise.write_message(plain, &mut sealed).unwrap();
        let length = u16::try_from(length).unwrap().to_le_bytes();
        let _ = self.stream.write_all(&[&length[..], &sealed].concat());
    }

    /// What the next sealed chunk says; nothing if there is none.
    pub fn hear(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length).ok()?;
        let mut sealed = vec![0; u16::from_le_bytes(length).into()];
        self.stream.read_exact(&mut sealed).ok()?;
        let mut plain = vec![0; sealed.len()];
        let length = self.noise.read_message(&sealed, &mut plain).ok()?;
        plain.truncate(length);
        Some(plain)
    }
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s).unwrap();
    for part in parts {
        hash.input(&(part.len() as u64).to_le_bytes());
        hash.input(part);
    }
    let mut found = [0; 32];
    hash.result(&mut found);
    found
}

fn text(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

fn key(name: &str) -> Vec<u8> {
    [1_u64.to_le_bytes().to_vec(), text("node"), text(name)].concat()
}

/// The first word of a client.
pub fn hello() -> Vec<u8> {
    [vec![0], text("tenure"), vec![0, 0]].concat()
}

/// The first word of a client that claims to be a member.
pub fn hello_of_a_member(id: u64, disk: u128, wanted: u64) -> Vec<u8> {
    let papers = [&id.to_le_bytes()[..], &disk.to_le_bytes(), &text("127.0.0.1:1"), &[0]].concat();
    [vec![0], text("tenure"), vec![1], papers, vec![1], wanted.to_le_bytes().to_vec()].concat()
}

pub fn ping() -> Vec<u8> {
    vec![8]
}

fn ask(number: u64, content: &[u8]) -> Vec<u8> {
    [&[4], &number.to_le_bytes()[..], &500_u64.to_le_bytes(), content].concat()
}

pub fn ask_for_group(number: u64) -> Vec<u8> {
    ask(number, &[2])
}

/// Asks for that register of a namespace that no other client uses.
pub fn read(number: u64, name: &str) -> Vec<u8> {
    let none = 0_u32.to_le_bytes();
    ask(number, &[&[0], &text("fuzz")[..], &1_u32.to_le_bytes(), &key(name), &none].concat())
}

/// Makes that register. The same number is the same request; the log was there before it was first sent.
pub fn write(number: u64, since: u64, name: &str) -> Vec<u8> {
    let request = u128::from(number) << 64 | 7;
    let put = [vec![0, 1], 9_u128.to_le_bytes().to_vec(), vec![0], text("{}"), vec![0, 0]].concat();
    let one = 1_u32.to_le_bytes();
    let request = [request.to_le_bytes().to_vec(), since.to_le_bytes().to_vec()].concat();
    ask(number, &[&[1], &request[..], &text("fuzz"), &one, &key(name), &put].concat())
}
