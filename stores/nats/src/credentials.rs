//! Keys of NATS: seeds in base 32, signatures of what a server asks to be signed, files of credentials.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// Which a seed begins with: the prefix of a seed in five bits, then that of a user.
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

/// A key that signs. Never shown.
pub(super) struct Signer {
    pair: Ed25519KeyPair,
    /// The public half, as the server knows it.
    pub(super) public: String,
}

impl Signer {
    /// Reads the seed of a user, `SU…`; why not, without showing it.
    pub(super) fn from_seed(seed: &str) -> Result<Self, &'static str> {
        let bytes = base32(seed.trim()).ok_or("it is not in base 32")?;
        let Some((body, check)) = bytes.split_last_chunk::<2>() else { return Err("it is too short") };
        if crc16(body) != u16::from_le_bytes(*check) {
            return Err("its checksum is wrong");
        }
        let [first, second, secret @ ..] = body else { return Err("it is too short") };
        let kind = (first & 7) << 5 | (second & 0xf8) >> 3;
        if first & 0xf8 != SEED || kind != USER {
            return Err("it is not the seed of a user, which begins with SU");
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(secret).map_err(|_| "its length is wrong")?;
        let mut public = vec![USER];
        public.extend_from_slice(pair.public_key().as_ref());
        public.extend_from_slice(&crc16(&public).to_le_bytes());
        Ok(Self { pair, public: to_base32(&public) })
    }

    /// The signature of what the server asks to be signed.
    pub(super) fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()))
    }
}

/// A file of credentials: the token of a user, and the seed of its key, each between lines of dashes.
pub(super) fn read_creds(text: &str) -> Result<(String, Signer), &'static str> {
    let part = |title: &str| {
        let begin = format!("-----BEGIN {title}-----");
        let after = text.split_once(begin.as_str())?.1;
        Some(after.lines().find(|line| !line.trim().is_empty())?.trim().to_owned())
    };
    let jwt = part("NATS USER JWT").ok_or("it has no NATS USER JWT")?;
    let seed = part("USER NKEY SEED").ok_or("it has no USER NKEY SEED")?;
    Ok((jwt, Signer::from_seed(&seed)?))
}

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for letter in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        held = held << 5 | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

fn to_base32(bytes: &[u8]) -> String {
    let (mut text, mut held, mut bits) = (String::new(), 0u32, 0);
    let letter = |value: u32| char::from(ALPHABET[(value & 31) as usize]);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(letter(held >> bits));
        }
    }
    if bits > 0 {
        text.push(letter(held << (5 - bits)));
    }
    text
}

/// CRC-16/XMODEM, which keys of NATS end with.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc: u16, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed for tests alone, made from 32 bytes of 7.
    fn seed() -> String {
        let mut bytes = vec![SEED | USER >> 5, (USER & 31) << 3];
        bytes.extend_from_slice(&[7; 32]);
        bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
        to_base32(&bytes)
    }

    #[test]
    fn seeds_are_read_and_wrong_ones_told() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(base32(&to_base32(b"any bytes")).unwrap(), b"any bytes");
        let seed = seed();
        assert!(seed.starts_with("SU"), "{seed}");
        let signer = Signer::from_seed(&seed).unwrap();
        assert!(signer.public.starts_with('U') && signer.public.len() == 56, "{}", signer.public);
        assert_eq!(signer.sign("nonce").len(), 86);
        for (wrong, part) in [
            ("lower", "base 32"),
            ("SU", "short"),
            (&seed.replacen("SU", "SA", 1), "checksum"),
            ("", "short"),
        ] {
            assert!(Signer::from_seed(wrong).is_err_and(|why| why.contains(part)), "{part}");
        }
    }

    #[test]
    fn files_of_credentials_are_read() {
        let text = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0\n------END NATS USER JWT------\n\n*** secret ***\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            seed()
        );
        assert_eq!(read_creds(&text).map(|(jwt, _)| jwt).ok(), Some("eyJ0".to_owned()));
        assert!(read_creds("eyJ0").is_err());
    }
}
