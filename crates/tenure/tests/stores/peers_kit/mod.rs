//! What the tests of the peers store share: a group in this process, on loopback ports of its own.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod links;
pub mod processes;
pub mod wire;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use links::Links;
use tempfile::TempDir;
use tenure::store::Outcome;
use tenure::store::{Epoch, Key, Kind, Name, Peers, Query, Store, Value, Version, Write};
use tenure_torture::servers::free_port;

pub const SECRET: &str = "9f86d081884c7d659a2feaa0c55ad0159f86d081884c7d659a2feaa0c55ad015";
/// What must come sooner or later comes within this, on the slowest machine.
pub const EVENTUALLY: Duration = Duration::from_secs(180);

/// A file for this user alone.
pub fn write_secret(file: &std::path::Path, secret: &str) {
    std::fs::write(file, secret).unwrap();
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// A group whose members live in this process.
pub struct Town {
    dir: TempDir,
    addresses: Vec<String>,
    members: Mutex<Vec<Option<Arc<Peers>>>>,
    extra: &'static str,
    /// Which of them is voting-only.
    voting_only: Option<usize>,
    links: Option<Links>,
}

impl Town {
    /// Starts so many members.
    pub fn of(count: usize) -> Self {
        Self::with(count, "")
    }

    /// Starts so many members with these parameters, such as `&timeout=1s`.
    pub fn with(count: usize, extra: &'static str) -> Self {
        Self::new(count, extra).begun()
    }

    /// The last of so many members is voting-only.
    pub fn with_voting_only(count: usize, extra: &'static str) -> Self {
        Self { voting_only: Some(count - 1), ..Self::new(count, extra) }.begun()
    }

    /// Members with a proxy on each way between two of them.
    pub fn linked(count: usize, extra: &'static str) -> Self {
        let town = Self::new(count, extra);
        let links = Some(Links::between(&town.addresses));
        Self { links, ..town }.begun()
    }

    fn new(count: usize, extra: &'static str) -> Self {
        let dir = TempDir::new().unwrap();
        write_secret(&dir.path().join("secret"), SECRET);
        let addresses = (0..count).map(|_| free_address()).collect();
        let members = Mutex::new(vec![None; count]);
        Self { dir, addresses, members, extra, voting_only: None, links: None }
    }

    fn begun(self) -> Self {
        (0..self.size()).for_each(|nth| self.start(nth));
        self
    }

    pub fn links(&self) -> &Links {
        self.links.as_ref().expect("the town is linked")
    }

    pub fn size(&self) -> usize {
        self.addresses.len()
    }

    pub fn address(&self, nth: usize) -> &str {
        &self.addresses[nth]
    }

    pub fn dir(&self, nth: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("member-{nth}"))
    }

    /// The URL of a client.
    pub fn url(&self) -> String {
        let secret = self.dir.path().join("secret");
        format!("peers://{}?secret-file={}{}", self.addresses.join(","), secret.display(), self.extra)
    }

    pub fn member_url(&self, nth: usize) -> String {
        let voting_only = self.voting_only == Some(nth);
        let dir = self.dir(nth);
        format!("{}&me={}&dir={}&voting-only={voting_only}", self.url(), self.addresses[nth], dir.display())
    }

    pub fn client(&self) -> Arc<Peers> {
        Arc::new(Peers::open(&self.url()).unwrap())
    }

    /// A client that knows one member only.
    pub fn client_of(&self, nth: usize) -> Arc<Peers> {
        let only = self.url().replace(&self.addresses.join(","), &self.addresses[nth]);
        Arc::new(Peers::open(&only).unwrap())
    }

    /// That member's handle; opened again if it was closed.
    pub fn member(&self, nth: usize) -> Arc<Peers> {
        let mut members = self.members.lock().unwrap();
        if let Some(member) = &members[nth]
            && !member.is_closed()
        {
            return member.clone();
        }
        let member = Arc::new(eventually(|| Peers::open(&self.member_url(nth)).ok()));
        let routes = self.links.as_ref().map(|links| links.routes(nth)).unwrap_or_default();
        routes.iter().for_each(|(address, through)| member.route(address, through));
        members[nth] = Some(member.clone());
        member
    }

    pub fn start(&self, nth: usize) {
        drop(self.member(nth));
    }

    /// Closes a member cleanly.
    pub async fn close(&self, nth: usize) {
        let member = self.members.lock().unwrap()[nth].take();
        if let Some(member) = member {
            member.close().await;
        }
    }

    /// Ends all members at once, and starts them again on what they had written.
    pub async fn power_loss(&self) {
        let members: Vec<_> = self.members.lock().unwrap().iter_mut().map(Option::take).collect();
        futures_util::future::join_all(members.iter().flatten().map(|member| member.close())).await;
        (0..self.size()).for_each(|nth| self.start(nth));
    }

    /// Waits until that member takes part.
    pub async fn settled(&self, nth: usize) {
        let started = Instant::now();
        while let Err(error) = version(&*self.member(nth), "settled").await {
            assert!(started.elapsed() < EVENTUALLY, "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until every member takes part.
    pub async fn all_settled(&self) {
        for nth in 0..self.size() {
            self.settled(nth).await;
        }
    }

    /// Which member leads the Raft group, as soon as that one says so itself.
    pub async fn raft_leader(&self) -> usize {
        let started = Instant::now();
        loop {
            for nth in 0..self.size() {
                let member = self.members.lock().unwrap()[nth].clone();
                let Some(member) = member else { continue };
                if let Ok(group) = member.group().await
                    && group
                        .members
                        .iter()
                        .any(|member| member.leads && member.address == self.addresses[nth])
                {
                    return nth;
                }
            }
            assert!(started.elapsed() < EVENTUALLY, "no member leads the Raft group");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Waits until a handle says this of itself.
pub async fn complains(store: &Peers, part: &str) -> tenure::store::StoreError {
    let started = Instant::now();
    loop {
        match version(store, "x").await {
            Err(error) if error.to_string().contains(part) => return error,
            other => assert!(started.elapsed() < EVENTUALLY, "{part:?} is not said, but {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Another address, which is kept for this test while no member listens there.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// Waits for what must come.
pub fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < EVENTUALLY, "it never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn space() -> Name {
    Name::new("test").unwrap()
}

pub fn key(name: &str) -> Key {
    Key::Named(Epoch::new(1), Kind::Node, Name::new(name).unwrap())
}

pub fn put(name: &str, expect: Option<u128>, version: u128) -> Write {
    let put = Some((Version::new(version), Value::of(&format!("v{version}"), None)));
    Write { key: key(name), expect: expect.map(Version::new), put, notify: true, requires_lock: false }
}

/// The version of a register; an error is that it could not be read.
pub async fn version(store: &dyn Store, name: &str) -> Result<Option<u128>, tenure::store::StoreError> {
    let found = store.read(&space(), &Query { keys: vec![key(name)], kinds: Vec::new() }).await?;
    Ok(found.first().map(|entry| entry.version.get()))
}

/// Writes until it is seen to be done, asking any member, however often.
pub async fn must_write(store: &dyn Store, write: Write) {
    let started = Instant::now();
    let version = write.put.as_ref().map(|(version, _)| *version);
    loop {
        match store.write(&space(), std::slice::from_ref(&write)).await.map(|mut outcomes| outcomes.remove(0))
        {
            Ok(Outcome::Applied) => return,
            Ok(Outcome::Conflict(Some(found))) if Some(found.version) == version => return,
            Ok(Outcome::Conflict(found)) => panic!("another client wrote: {found:?}"),
            Ok(Outcome::Failed(error)) | Err(error) => {
                assert!(started.elapsed() < EVENTUALLY, "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}
