//! The store under test: a private server that is attacked too, or a user's own store that is left alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::judge::{DataLoss, FaultScope, InjectedFault};
use tenure::store::{Class, Description, Retry, SharedStore, StoreError};

use crate::Error;
use crate::attacked::{FaultResult, PrivateServer};
use crate::fault::{FaultGroup, FaultKind, NOT_DONE};
use crate::links;
use tenure_process::clock::lease_now;

/// A server that can be attacked. One that does not come back is a panic that says what.
pub(crate) trait AttackedServer: Send {
    /// Where nodes find it.
    fn url(&self) -> String;
    /// One for each way in, if there are several: nodes take them in turn.
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }
    /// What can be done to it.
    fn able(&self) -> &'static [FaultKind];
    /// Whether its data is on a disk that can be full.
    fn has_disk(&self) -> bool {
        false
    }
    /// Does it; or as much of it as can be done, and says why it was not all. What lasts by itself takes as long as
    /// `lasts`.
    fn inject(&mut self, kind: FaultKind, lasts: Duration) -> FaultResult;
    /// Undoes it, however much of it was done. May be asked again if it could not.
    fn heal(&mut self, kind: FaultKind) -> FaultResult;
    /// What cannot be expected while this is done, and after.
    fn scope(&self, _: FaultKind) -> FaultScope {
        FaultScope::Store
    }
    /// What was just done may have lost this of what was acknowledged.
    fn loses(&self, kind: FaultKind) -> DataLoss {
        match kind.group() {
            FaultGroup::Destroy => DataLoss::Everything,
            _ if kind == FaultKind::Failover => DataLoss::Newest,
            _ => DataLoss::None,
        }
    }
    /// Whether a read may show what was so a moment ago.
    fn reads_lag(&self) -> bool {
        false
    }
    /// Whether it has come to rest: what it acknowledges now it does not forget by itself.
    fn is_settled(&self) -> bool {
        true
    }
    /// What it has used so far, if it can tell.
    fn usage(&self) -> Option<ServerUse> {
        None
    }
    /// When its servers were seen to have failed over, on the lease clock.
    fn failovers(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// What a private server has used so far: its time on a core by the kernel's word, the rest by its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct ServerUse {
    pub cpu: Duration,
    /// The connections that it has now.
    pub connections: u64,
    /// Commands, transactions or statements, as it counts them.
    pub requests: u64,
    /// The bytes that it received and sent, if it counts them.
    pub bytes: Option<(u64, u64)>,
}

/// What became of an attack.
#[derive(Debug)]
pub(crate) struct AttackOutcome {
    pub(crate) injected: InjectedFault,
    /// When the servers had come to rest, if they may have lost something until then.
    pub(crate) settled: Option<u64>,
    /// Whether it was the store that was attacked.
    pub(crate) of_store: bool,
    /// What it was to be and why it could not be, if it could not.
    pub(crate) failed: Option<(FaultKind, String)>,
}

/// For how long a healing that failed is tried again.
const PATIENCE: Duration = Duration::from_secs(180);

/// So many connections are enough for the nodes of a torture and all that attack them.
const CONNECTIONS: u32 = 200;

/// See the [module](self).
#[expect(missing_debug_implementations, reason = "servers have none")]
pub struct TargetStore {
    /// Where nodes find it.
    pub url: String,
    /// The same for each way in.
    pub(crate) urls: Vec<String>,
    /// How the store describes itself.
    pub about: String,
    /// What the store can promise.
    pub class: Class,
    private: Option<&'static PrivateServer>,
    server: Option<Arc<Mutex<Box<dyn AttackedServer>>>>,
    able: &'static [FaultKind],
    has_disk: bool,
    pub(crate) reads_lag: bool,
}

impl TargetStore {
    /// Starts a private server, or describes the store of that URL.
    ///
    /// # Errors
    /// If the server does not start, or the store cannot be used.
    pub async fn open(
        private: Option<&'static PrivateServer>,
        url: &str,
        kinds: &[FaultKind],
    ) -> Result<Self, Error> {
        Self::open_for(private, url, kinds, CONNECTIONS).await
    }

    /// The same for so many connections, on a server that has to be told.
    ///
    /// # Errors
    /// If the server does not start, or the store cannot be used.
    pub async fn open_for(
        private: Option<&'static PrivateServer>,
        url: &str,
        kinds: &[FaultKind],
        connections: u32,
    ) -> Result<Self, Error> {
        let small_disk = kinds.contains(&FaultKind::DiskFull);
        let server = match private {
            Some(private) => Some(in_background(move || private.start(small_disk, connections)).await?),
            None => None,
        };
        let (url, able) = server
            .as_ref()
            .map_or((url.to_owned(), &[] as &[FaultKind]), |server| (server.url(), server.able()));
        if url.starts_with("memory:") {
            let why = "cannot use memory: for a torture, because its nodes are several processes; name another store";
            return Err(Error::Usage(why.to_owned()));
        }
        let store = tenure::store::open(&url)?;
        let description = described(&store).await?;
        store.close().await;
        let has_disk = server.as_ref().is_some_and(|server| server.has_disk());
        let reads_lag = server.as_ref().is_some_and(|server| server.reads_lag());
        let urls = server.as_ref().map_or_else(|| vec![url.clone()], |server| server.urls());
        let server = server.map(|server| Arc::new(Mutex::new(server)));
        let (about, class) = (description.about, description.class);
        Ok(Self { url, urls, about, class, private, server, able, has_disk, reads_lag })
    }

    /// What of this can be done here, and what cannot, with the reason.
    pub(crate) fn able(&self, kinds: &[FaultKind]) -> (Vec<FaultKind>, Vec<(FaultKind, &'static str)>) {
        let (mut able, mut unable) = (Vec::new(), Vec::new());
        for kind in kinds {
            match self.why_not(*kind) {
                None => able.push(*kind),
                Some(why) => unable.push((*kind, why)),
            }
        }
        (able, unable)
    }

    fn why_not(&self, kind: FaultKind) -> Option<&'static str> {
        match kind.group() {
            FaultGroup::Link if kind != FaultKind::DropHints && !links::can_be_led(&self.url) => {
                Some("no proxy fits between: a file, TLS, or several servers")
            }
            FaultGroup::Store | FaultGroup::Destroy | FaultGroup::Neighbour if self.server.is_none() => {
                Some("the store is yours, and is left alone")
            }
            FaultGroup::Store | FaultGroup::Destroy if !self.able.contains(&kind) => {
                Some("this store has no such fault")
            }
            FaultGroup::Neighbour if !self.able.contains(&kind) => Some("no other login has access there"),
            FaultGroup::Store if kind == FaultKind::DiskFull && !self.has_disk => {
                Some("no disk of its own could be mounted for the store: that is for root")
            }
            _ => None,
        }
    }

    /// Attacks the server, for so long; tells when that was. What could not be done has troubled the store all the same.
    pub(crate) async fn attack(
        server: Arc<Mutex<Box<dyn AttackedServer>>>,
        kind: FaultKind,
        lasts: Duration,
    ) -> Result<AttackOutcome, Error> {
        in_background(move || {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let from = lease_now();
            let struck = server.inject(kind, lasts);
            if struck.is_ok() && !kind.lasts_by_itself() {
                std::thread::sleep(lasts);
            }
            heal(&mut **server, kind);
            let (on, loses) = (server.scope(kind), server.loses(kind));
            let (name, what) = match &struck {
                Ok(()) => (kind.name(), format!("{} of the store", kind.name())),
                Err(_) => (NOT_DONE, format!("{} of the store, which could not be done", kind.name())),
            };
            let injected = InjectedFault { kind: name.into(), what, from, to: lease_now(), on, loses };
            AttackOutcome {
                injected,
                settled: None,
                of_store: true,
                failed: struck.err().map(|why| (kind, why)),
            }
        })
        .await
    }

    /// Whether it has come to rest after an attack.
    pub(crate) async fn is_settled(server: Arc<Mutex<Box<dyn AttackedServer>>>) -> Result<bool, Error> {
        in_background(move || server.lock().unwrap_or_else(PoisonError::into_inner).is_settled()).await
    }

    /// What a private server has used so far, if it can tell.
    pub async fn usage(&self) -> Option<ServerUse> {
        let server = self.server()?;
        in_background(move || server.lock().unwrap_or_else(PoisonError::into_inner).usage()).await.ok()?
    }

    /// When its servers were seen to have failed over.
    pub(crate) fn failovers(&self) -> Vec<u64> {
        let server = self.server.as_ref().map(|server| server.lock().unwrap_or_else(PoisonError::into_inner));
        server.map(|server| server.failovers()).unwrap_or_default()
    }

    /// Whether it may forget what it acknowledged without being told to.
    pub(crate) fn can_forget(&self) -> bool {
        let own = self.server.is_none() && self.class == Class::C;
        (own || self.able.contains(&FaultKind::Failover)) && !self.reads_lag
    }

    pub(crate) fn server(&self) -> Option<Arc<Mutex<Box<dyn AttackedServer>>>> {
        self.server.clone()
    }

    /// How `docs/evidence.md` calls it.
    pub(crate) fn name(&self) -> &'static str {
        self.private.map_or("own store", |private| private.label)
    }
}

/// Heals until it is healed.
fn heal(server: &mut dyn AttackedServer, kind: FaultKind) {
    let began = Instant::now();
    while let Err(why) = server.heal(kind) {
        assert!(began.elapsed() < PATIENCE, "{} could not be undone: {why}", kind.name());
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Runs what blocks; its panic becomes an error that says the same.
async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let panic = error.into_panic();
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Error::Failed(text.unwrap_or_else(|| "a private server failed".to_owned()))
    })
}

/// What a store is. One that has just been started, on a busy machine, may take a while to answer.
async fn described(store: &SharedStore) -> Result<Description, StoreError> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match store.describe().await {
            Err(error) if error.retry() == Retry::Soon && Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            described => return described,
        }
    }
}
