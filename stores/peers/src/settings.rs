//! What a URL of peers says.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};

use super::STORE;
use super::addresses::MemberAddresses;
use super::trust::Trust;
use tenure_store::{Name, StoreError};

const EXAMPLE: &str = "peers://10.0.0.1:7600,10.0.0.2:7600,10.0.0.3:7600?secret-file=PATH";

/// What a URL of peers says.
#[derive(Clone)]
pub(super) struct PeersSettings {
    /// Where the members are.
    pub(super) members: MemberAddresses,
    /// Which of them this process is; none: a client.
    pub(super) me: Option<String>,
    /// Where this member listens, if that is not its address.
    pub(super) listen: Option<String>,
    /// What the group is called: groups of different names never talk to each other.
    pub(super) cluster: Name,
    /// Where this member keeps its log.
    pub(super) dir: Option<PathBuf>,
    /// Whether a directory that other users can change is refused.
    pub(super) checks_dir: bool,
    /// What a connecting peer has to prove.
    pub(super) trust: Trust,
    /// This member stores, and votes, and leaves the Raft leadership to others.
    pub(super) voting_only: bool,
    /// How long an operation may take before its outcome is called unknown.
    pub(super) timeout: Duration,
    /// How long a member waits for its Raft leader before it stands itself; up to twice as long, by lot.
    pub(super) election: Duration,
}

impl PeersSettings {
    /// Reads a URL, and the secret that it names.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let rest = url.strip_prefix("peers://").ok_or_else(|| bad(""))?;
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut given = parameters(query)?;
        let mut take = |name: &str| given.remove(name);
        let member = flag("member", take("member").as_deref(), true)?;
        let me = take("me").map(|me| address("me", &me)).transpose()?;
        let list = hosts.trim_end_matches('/').split(',').map(|host| address("a member", host));
        let size = take("size").map(|size| count("size", &size)).transpose()?;
        let settings = Self {
            members: MemberAddresses::of(list.collect::<Result<_, _>>()?, me.as_deref(), size)?,
            listen: take("listen").map(|listen| address("listen", &listen)).transpose()?,
            cluster: cluster(take("cluster").as_deref())?,
            dir: take("dir").map(PathBuf::from),
            checks_dir: checks_dir(take("access").as_deref())?,
            trust: Trust::of(
                [take("secret-file"), take("client-secret-file")],
                [take("ca"), take("cert"), take("key")],
            )?,
            voting_only: flag("voting-only", take("voting-only").as_deref(), false)?,
            timeout: span("timeout", take("timeout"), Duration::from_secs(3))?,
            election: span("election", take("election"), Duration::from_millis(400))?,
            me: me.filter(|_| member),
        };
        if settings.me.is_some() && !settings.trust.makes_members() {
            return Err(refuse("a member knows the secret of the group: name it with secret-file=PATH"));
        }
        if let Some(unknown) = given.keys().next() {
            return Err(bad(&format!(
                ": {unknown:?} is not a parameter; there are me, member, voting-only, size, secret-file, \
                 client-secret-file, ca, cert, key, dir, access, cluster, listen, timeout and election"
            )));
        }
        Ok(settings)
    }

    /// Where this member keeps its log: what was named, or a folder of the user's state directory.
    pub(super) fn directory(&self, me: &str) -> Result<PathBuf, StoreError> {
        if let Some(dir) = &self.dir {
            return Ok(dir.clone());
        }
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state =
            absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        let folder = format!("{}-{}", self.cluster, me.replace([':', '[', ']'], "_"));
        state.map(|state| state.join("tenure/peers").join(folder)).ok_or_else(|| {
            refuse(
                "neither XDG_STATE_HOME nor HOME names a directory: say where to keep the log, with dir=PATH",
            )
        })
    }
}

fn address(what: &str, text: &str) -> Result<String, StoreError> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(port)) if port > 0 && !text.contains(['/', '@', ' ']) => Ok(text.to_owned()),
        _ => Err(bad(&format!(": {what} is not HOST:PORT"))),
    }
}

fn parameters(query: &str) -> Result<BTreeMap<String, String>, StoreError> {
    let pair = |part: &str| part.split_once('=').map(|(name, value)| (name.to_owned(), decoded(value)));
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(pair).collect::<Option<_>>().ok_or_else(|| bad(": parameters are NAME=VALUE, joined by &"))
}

/// `%2F` and the like, as they occur in paths.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cluster(given: Option<&str>) -> Result<Name, StoreError> {
    Name::new(given.unwrap_or("tenure")).map_err(|error| bad(&format!(": cluster: {error}")))
}

fn checks_dir(access: Option<&str>) -> Result<bool, StoreError> {
    match access {
        None | Some("owner") => Ok(true),
        Some("anyone") => Ok(false),
        Some(_) => Err(bad(": access is owner or anyone")),
    }
}

fn flag(name: &str, given: Option<&str>, default: bool) -> Result<bool, StoreError> {
    match given {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(bad(&format!(": {name} is true or false"))),
    }
}

fn span(name: &str, given: Option<String>, default: Duration) -> Result<Duration, StoreError> {
    let Some(text) = given else { return Ok(default) };
    match humantime::parse_duration(&text) {
        Ok(span) if (Duration::from_millis(50)..=Duration::from_secs(60)).contains(&span) => Ok(span),
        _ => Err(bad(&format!(": {name} is a time from 50ms to 60s"))),
    }
}

fn count(name: &str, text: &str) -> Result<usize, StoreError> {
    let found = text.parse().ok().filter(|count| (1..=64).contains(count));
    found.ok_or_else(|| bad(&format!(": {name} is a number from 1 to 64")))
}

/// BLAKE2s of some parts, each with its length.
pub(super) fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s).expect("it is compiled in");
    for part in parts {
        hash.input(&(part.len() as u64).to_le_bytes());
        hash.input(part);
    }
    let mut found = [0; 32];
    hash.result(&mut found);
    found
}

fn bad(why: &str) -> StoreError {
    refuse(&format!("this is not a URL of peers, such as {EXAMPLE}{why}"))
}

pub(super) fn refuse(message: &str) -> StoreError {
    StoreError::not_applied(STORE, message).permanent()
}

impl fmt::Debug for PeersSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeersSettings")
            .field("members", &self.members)
            .field("me", &self.me)
            .field("cluster", &self.cluster)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for PeersSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.members, f)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn with_secret(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let parameter = format!("secret-file={}", file.display());
        (dir, parameter)
    }

    #[test]
    fn a_url_says_who_is_who() {
        let (_dir, secret) = with_secret("9f86d081884c7d659a2feaa0c55ad015\n");
        let url = format!("peers://b:2,a:1,b:2?{secret}&me=a:1&cluster=x&timeout=2s&dir=%2Ftmp%2Fx");
        let settings = PeersSettings::parse(&url).unwrap();
        assert_eq!(settings.me.as_deref(), Some("a:1"));
        assert_eq!(settings.timeout, Duration::from_secs(2));
        assert_eq!(settings.dir.as_deref(), Some(Path::new("/tmp/x")));
        assert!(PeersSettings::parse(&format!("{url}&member=false")).unwrap().me.is_none());
        assert_eq!(settings.to_string(), "peers://a:1,b:2");
        assert!(!format!("{settings:?}").contains("9f86"));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let (dir, secret) = with_secret("9f86d081884c7d659a2feaa0c55ad015");
        let client = format!("client-secret-file={}", dir.path().join("secret").display());
        let (exposed, known) = with_secret("9f86d081884c7d659a2feaa0c55ad015");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(exposed.path().join("secret"), mode).unwrap();
        let (_short, short) = with_secret("correct-horse-battery-staple");
        for (url, part) in [
            ("peers:a".to_owned(), "not a URL of peers"),
            ("peers://a:1".to_owned(), "secret-file"),
            (format!("peers://a:1?{short}"), "tenure peers secret"),
            (format!("peers://a:1?{known}"), "chmod 600"),
            (format!("peers://a:1?{client}"), "client-secret FILE"),
            (format!("peers://a:1?{secret}&{client}"), "exclude each other"),
            ("peers://a:1?secret-file=/nowhere/at/all".to_owned(), "cannot read"),
            (format!("peers://a?{secret}"), "HOST:PORT"),
            (format!("peers://a:1?{secret}&me=b"), "me is not HOST:PORT"),
            (format!("peers://a:1?{secret}&color=red"), "color"),
            (format!("peers://a:1?{secret}&timeout=1h"), "50ms to 60s"),
            (format!("peers://a:1?{secret}&size=0"), "size is a number"),
            (format!("peers://a:1?{secret}&access=all"), "owner or anyone"),
            (format!("peers://a:1?{secret}&ca=/a&cert=/b&key=/c"), "exclude each other"),
            ("peers://a:1?ca=/a&cert=/b".to_owned(), "all of ca=PATH"),
            ("peers://a:1?ca=/nowhere&cert=/b&key=/c".to_owned(), "cannot read /nowhere"),
        ] {
            let error = PeersSettings::parse(&url).unwrap_err();
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
