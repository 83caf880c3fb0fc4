//! What a connecting peer has to prove: that it knows the secret of the group, or that it has a certificate of its
//! authority. Both sides prove it to each other.
//!
//! Clients need not know as much as members: what they are given follows from the secret of the group, and the secret
//! does not follow from it. Who proves no more may read and write registers, and neither be a member nor change who is.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use tenure_core::Entropy;

use super::certificates::Certificates;
use super::settings::{hash, refuse};
use tenure_store::StoreError;
use tenure_store::entropy::KernelEntropy;

/// The least of a secret in each of its forms: 128 bits as hexadecimal digits, 192 as base64.
const SHORTEST_HEX: usize = 32;
const SHORTEST_BASE64: usize = 32;
/// So many different characters 24 random bytes have in base64, however unlucky; words of a language have fewer.
const LEAST_DIFFERENT: usize = 12;

const NOTHING: &str = "the members of a group prove to each other who they are: make a secret with `(umask 077; tenure \
                       peers secret > FILE)` and name it with secret-file=PATH (clients: client-secret-file=PATH); or name \
                       certificates, with ca=PATH, cert=PATH and key=PATH";

/// What has to be proven.
#[derive(Clone)]
pub(super) enum Trust {
    /// That one knows the secret of the group, or that of its clients.
    Secret(Keys),
    /// That one has a certificate of this authority.
    Certificates(Arc<Certificates>),
}

/// What follows from a secret.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// Of members and operators; none in a client that knows no more than it needs.
    pub(super) group: Option<[u8; 32]>,
    pub(super) clients: [u8; 32],
}

impl Keys {
    pub(super) fn of_group(group: [u8; 32]) -> Self {
        Self { group: Some(group), clients: hash(&[b"tenure peers 1 client", &group]) }
    }
}

impl Trust {
    /// What these parameters of a URL name: the secret of the group or of its clients, or certificates.
    pub(super) fn of(secrets: [Option<String>; 2], files: [Option<String>; 3]) -> Result<Self, StoreError> {
        match (secrets, files) {
            ([Some(file), None], [None, None, None]) => read_secret(Path::new(&file)).map(Self::Secret),
            ([None, Some(file)], [None, None, None]) => {
                read_client_secret(Path::new(&file)).map(Self::Secret)
            }
            ([None, None], [Some(ca), Some(cert), Some(key)]) => {
                let files = [ca.into(), cert.into(), key.into()];
                Ok(Self::Certificates(Arc::new(Certificates::load(files)?)))
            }
            ([None, None], [None, None, None]) => Err(refuse(NOTHING)),
            ([None, None], _) => {
                Err(refuse("certificates are three files: name all of ca=PATH, cert=PATH and key=PATH"))
            }
            _ => Err(refuse(
                "secret-file, client-secret-file and certificates exclude each other: leave all but one out",
            )),
        }
    }

    /// Whether it is enough for a member.
    pub(super) fn makes_members(&self) -> bool {
        !matches!(self, Self::Secret(Keys { group: None, .. }))
    }
}

/// A new secret for a group.
pub(super) fn new_secret() -> String {
    hex(&[KernelEntropy.nonce().to_be_bytes(), KernelEntropy.nonce().to_be_bytes()].concat())
}

/// What clients of the group with that secret are given.
pub(super) fn client_secret(file: &Path) -> Result<String, StoreError> {
    read_secret(file).map(|keys| hex(&keys.clients))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_secret(file: &Path) -> Result<Keys, StoreError> {
    let text = tenure_store::trust::read_secret(file).map_err(|why| refuse(&why))?;
    let secret = text.trim_ascii();
    if !is_random(secret) {
        return Err(refuse(&format!(
            "the secret in {} could be guessed from one recorded greeting: words and short secrets are not accepted; make \
             one with `tenure peers secret`, for all members",
            file.display()
        )));
    }
    Ok(Keys::of_group(hash(&[b"tenure peers 1 secret", secret])))
}

fn read_client_secret(file: &Path) -> Result<Keys, StoreError> {
    let text = tenure_store::trust::read_secret(file).map_err(|why| refuse(&why))?;
    let text = String::from_utf8_lossy(&text);
    let digits = text.trim().as_bytes().chunks(2).map(|pair| {
        std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    });
    let bytes = digits.collect::<Option<Vec<u8>>>().and_then(|bytes| bytes.try_into().ok());
    let clients = bytes.ok_or_else(|| {
        refuse(&format!(
            "{} does not hold the secret of clients: `tenure peers client-secret FILE` tells it, from the group's",
            file.display()
        ))
    })?;
    Ok(Keys { group: None, clients })
}

/// Whether a secret looks as if it had been drawn and not thought of: hexadecimal digits, or base64 of at least 24 bytes.
fn is_random(secret: &[u8]) -> bool {
    let mut different = secret.to_vec();
    different.sort_unstable();
    different.dedup();
    let has = |what: fn(&u8) -> bool| secret.iter().any(what);
    if secret.iter().all(u8::is_ascii_hexdigit) {
        return secret.len() >= SHORTEST_HEX && different.len() >= LEAST_DIFFERENT / 2;
    }
    let base64 = secret.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte));
    base64
        && secret.len() >= SHORTEST_BASE64
        && different.len() >= LEAST_DIFFERENT
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(|byte| !byte.is_ascii_alphabetic() && *byte != b'=')
}

/// The host of `HOST:PORT`, as certificates name it.
pub(super) fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether that host is a number and not a name.
pub(super) fn is_number(address: &str) -> bool {
    host_of(address).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_is_a_secret_and_what_was_thought_of_is_none() {
        for secret in [
            &new_secret(),
            "9f86d081884c7d659a2feaa0c55ad015",
            "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQ",
            "pK8mB2vT9xQ4wE7rY1uI6oP3aS5dF0gHjKlZxCvBnM0=",
        ] {
            assert!(is_random(secret.as_bytes()), "{secret}");
        }
        for secret in [
            "",
            "correct horse battery staple",
            "correct-horse-battery-staple",
            "CorrectHorseBatteryStaple1",
            "the-quick-brown-fox-jumps-over-the-lazy-dog",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "00000000000000000000000000000000",
            "9f86d081884c7d65",
        ] {
            assert!(!is_random(secret.as_bytes()), "{secret}");
        }
        assert_ne!(new_secret(), new_secret());
    }
}
