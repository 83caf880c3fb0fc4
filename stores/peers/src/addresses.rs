//! Where the members are: a list of addresses, or one name that stands for all of them.
//!
//! What a name stands for may change, and may be incomplete while machines come up; so it is looked up whenever it is
//! needed, and a group begins only when it stands for as many members as were said to be.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::STORE;
use super::settings::refuse;
use super::trust::is_number;
use tenure_store::StoreError;

/// How many members a name stands for by default.
const SIZE: usize = 3;

/// Where the members are.
#[derive(Debug, Clone)]
pub(super) enum MemberAddresses {
    /// At each of these, as `HOST:PORT`, sorted.
    List(Vec<String>),
    /// At each address of this host, as `NAME:PORT`: so many when the group begins.
    Name(String, usize),
}

impl MemberAddresses {
    /// What a URL says. One name alone is that of the only member if that is who we are, and stands for all otherwise.
    pub(super) fn of(
        mut list: Vec<String>,
        me: Option<&str>,
        size: Option<usize>,
    ) -> Result<Self, StoreError> {
        list.sort();
        list.dedup();
        match (&list[..], size) {
            ([only], _) if !is_number(only) && me != Some(only) => {
                Ok(Self::Name(only.clone(), size.unwrap_or(SIZE)))
            }
            (_, Some(size)) if size != list.len() => Err(refuse(&format!(
                "size={size}, but {} members are named: size= is for one name that stands for all",
                list.len()
            ))),
            _ => Ok(Self::List(list)),
        }
    }

    /// Every address that is known now, sorted.
    pub(super) async fn look_up(&self) -> Result<Vec<String>, StoreError> {
        let (name, _) = match self {
            Self::List(list) => return Ok(list.clone()),
            Self::Name(name, size) => (name, size),
        };
        let found = resolve(name).await.map_err(|error| {
            let message = format!("{name} stands for no address now: {error}; look at the name service");
            StoreError::not_applied(STORE, message).caused_by(error)
        })?;
        let mut found: Vec<String> = found.iter().map(ToString::to_string).collect();
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Whether a group may begin with that list: two halves that each see only themselves must not.
    pub(super) fn may_begin_with(&self, list: &[String]) -> Result<(), StoreError> {
        match self {
            Self::Name(name, size) if list.len() != *size => Err(StoreError::not_applied(
                STORE,
                format!(
                    "{name} stands for {} addresses, and the group is to begin with {size}: start the others, or say \
                     how many there are, with size=N",
                    list.len()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// How a certificate names the member at that address.
    pub(super) fn known_as<'a>(&'a self, address: &'a str) -> &'a str {
        match self {
            Self::Name(name, _) => name,
            Self::List(_) => address,
        }
    }
}

impl fmt::Display for MemberAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) => write!(f, "peers://{}", list.join(",")),
            Self::Name(name, _) => write!(f, "peers://{name}"),
        }
    }
}

/// Asks the system's name service.
async fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    #[cfg(test)]
    if let Some(found) = tests::registered(name) {
        return Ok(found);
    }
    Ok(tokio::net::lookup_host(name).await?.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Peers;
    use tenure_store::{Name, Query, Store};

    /// The names of these tests.
    static NAMES: Mutex<Option<HashMap<String, Vec<SocketAddr>>>> = Mutex::new(None);

    pub(super) fn registered(name: &str) -> Option<Vec<SocketAddr>> {
        NAMES.lock().unwrap().as_ref()?.get(name).cloned()
    }

    fn register(name: &str, addresses: &[String]) {
        let found = addresses.iter().map(|address| address.parse().unwrap()).collect();
        NAMES.lock().unwrap().get_or_insert_default().insert(name.to_owned(), found);
    }

    fn of(list: &[&str], me: Option<&str>, size: Option<usize>) -> Result<MemberAddresses, StoreError> {
        MemberAddresses::of(list.iter().map(ToString::to_string).collect(), me, size)
    }

    #[test]
    fn one_name_stands_for_all_unless_it_is_ours() {
        assert!(matches!(of(&["db:1"], None, None), Ok(MemberAddresses::Name(_, 3))));
        assert!(matches!(of(&["db:1"], Some("10.0.0.1:1"), Some(5)), Ok(MemberAddresses::Name(_, 5))));
        assert!(matches!(of(&["db:1"], Some("db:1"), None), Ok(MemberAddresses::List(_))));
        assert!(matches!(of(&["10.0.0.1:1"], None, None), Ok(MemberAddresses::List(_))));
        assert!(matches!(of(&["[::1]:1"], None, None), Ok(MemberAddresses::List(_))));
        assert!(matches!(of(&["a:1", "b:1"], None, None), Ok(MemberAddresses::List(_))));
        assert!(of(&["a:1", "b:1"], None, Some(3)).unwrap_err().to_string().contains("2 members are named"));
    }

    /// Three members and a client that know one name; while it is incomplete, no group begins.
    #[tokio::test]
    async fn a_group_begins_when_its_name_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, super::super::trust::new_secret()).unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let addresses = free_addresses();
        let port = addresses[0].rsplit_once(':').unwrap().1;
        let name = format!("members.test:{port}");
        register(&name, &addresses[..2]);
        let url = format!("peers://{name}?timeout=30s&secret-file={}", secret.display());
        let open = |nth: usize| {
            let place = dir.path().join(nth.to_string());
            Peers::open(&format!("{url}&me={}&dir={}", addresses[nth], place.display())).unwrap()
        };
        let (one, two) = (open(0), open(1));
        says(&one, "stands for 2 addresses").await;
        says(&two, "stands for 2 addresses").await;
        register(&name, &addresses);
        let three = open(2);
        let client = Peers::open(&url).unwrap();
        for store in [&one, &two, &three, &client] {
            says(store, "").await;
        }
        assert_eq!(client.group().await.unwrap().members.len(), 3);
        futures_util::future::join_all([one.close(), two.close(), three.close(), client.close()]).await;
    }

    /// The same port on three addresses of this host.
    fn free_addresses() -> Vec<String> {
        loop {
            let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = first.local_addr().unwrap().port();
            let rest = (2..4).map(|nth| std::net::TcpListener::bind(format!("127.0.0.{nth}:{port}")));
            if rest.collect::<Result<Vec<_>, _>>().is_ok() {
                return (1..4).map(|nth| format!("127.0.0.{nth}:{port}")).collect();
            }
        }
    }

    /// Waits until a read says this; nothing: until it works.
    async fn says(store: &Peers, part: &str) {
        let query =
            Query { keys: Vec::new(), kinds: vec![(tenure_store::Epoch::new(1), tenure_store::Kind::Node)] };
        let started = Instant::now();
        loop {
            match store.read(&Name::new("a").unwrap(), &query).await {
                Ok(_) if part.is_empty() => return,
                Err(error) if !part.is_empty() && error.to_string().contains(part) => return,
                other => assert!(started.elapsed() < Duration::from_secs(60), "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
