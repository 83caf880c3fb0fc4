//! What whoever connects has to prove: that he knows the secret of the group, or that he has a certificate of its
//! authority. Both sides prove it to each other.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use super::super::StoreError;
use super::certificates::Certificates;
use super::settings::{hash, refuse};

/// A secret shorter than this can be guessed from one recorded greeting.
const SHORTEST_SECRET: usize = 16;

const NOTHING: &str = "the members of a group prove to each other who they are: put a secret in a file, as `head -c 32 \
                       /dev/urandom | base64` makes one, and name it with secret-file=PATH; or name certificates, with \
                       ca=PATH, cert=PATH and key=PATH";

/// What has to be proven.
#[derive(Clone)]
pub(super) enum Trust {
    /// That one knows this hash of the secret.
    Secret([u8; 32]),
    /// That one has a certificate of this authority.
    Certificates(Arc<Certificates>),
}

impl Trust {
    /// What these parameters of a URL name.
    pub(super) fn of(secret_file: Option<String>, files: [Option<String>; 3]) -> Result<Self, StoreError> {
        match (secret_file, files) {
            (Some(file), [None, None, None]) => read_secret(Path::new(&file)).map(Self::Secret),
            (None, [Some(ca), Some(cert), Some(key)]) => {
                let files = [ca.into(), cert.into(), key.into()];
                Ok(Self::Certificates(Arc::new(Certificates::load(files)?)))
            }
            (None, [None, None, None]) => Err(refuse(NOTHING)),
            (Some(_), _) => {
                Err(refuse("secret-file and certificates exclude each other: leave one of them out"))
            }
            (None, _) => {
                Err(refuse("certificates are three files: name all of ca=PATH, cert=PATH and key=PATH"))
            }
        }
    }
}

fn read_secret(file: &Path) -> Result<[u8; 32], StoreError> {
    let shown = file.display();
    let text = std::fs::read(file).map_err(|error| {
        refuse(&format!("the secret in {shown} cannot be read: {error}")).caused_by(error)
    })?;
    let secret = text.trim_ascii();
    if secret.len() < SHORTEST_SECRET {
        return Err(refuse(&format!(
            "the secret in {shown} has {} bytes, and at least {SHORTEST_SECRET} are needed: make one with \
             `head -c 32 /dev/urandom | base64`",
            secret.len()
        )));
    }
    Ok(hash(&[b"tenure peers 1 secret", secret]))
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
