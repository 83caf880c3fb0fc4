//! A node: one process that takes part.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_core::io::Candidacy;
use tenure_core::timing::TimingSettings;
use tokio::sync::{mpsc, oneshot, watch};

use crate::candidate::{Candidate, CandidateShared, Observer};
use crate::clock::{Clock, LeaseClock};
use crate::driver::{self, CandidateGuard, Command, DriverConfig, RoleSlot, StoreContact};
use crate::event::{Event, EventKind};
use crate::guard::SharedGuardLock;
use crate::lead::{Lead, WorkOutcome, WorkResult};
use crate::origin::with_origin;
use crate::publisher::{EventStream, ListenerGuard, Publisher};
use crate::store::{self, SharedStore, StoreError};
use crate::{Error, Name, Takeover, Timing};

/// One process that takes part in elections. Cheap to clone; when the last handle, candidate and tenure is gone, it
/// gives everything up in the background. [`Node::stop`] waits for that.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let node = tenure::Node::builder("memory:doc-node").name("web-1").start().await?;
/// let work = node.lead("scheduler", async |lead| {
///     while lead.check() {
///         println!("leading under token {}", lead.token());
///         tokio::time::sleep(std::time::Duration::from_millis(10)).await;
///     }
/// });
/// # let stop = async { tokio::time::sleep(std::time::Duration::from_millis(50)).await; node.stop().await; Ok(()) };
/// # tokio::try_join!(work, stop)?;
/// # Ok::<(), tenure::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Node {
    inner: Arc<NodeShared>,
}

struct NodeShared {
    name: Name,
    namespace: Name,
    store: SharedStore,
    timing: Timing,
    drain: Duration,
    labels: BTreeMap<String, String>,
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    commands: mpsc::UnboundedSender<Command>,
    roles: Mutex<BTreeMap<Name, LocalRole>>,
    last_turn: Arc<AtomicU64>,
    contact: watch::Receiver<StoreContact>,
}

struct LocalRole {
    slot: Arc<RoleSlot>,
    shared: Weak<CandidateShared>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NodeShared { name, namespace, store, .. } = &*self.inner;
        f.debug_struct("Node")
            .field("name", name)
            .field("namespace", namespace)
            .field("store", store)
            .finish()
    }
}

impl Node {
    /// Configures a node on the store at `url`: `sqlite:` (the embedded store), `sqlite:path/to/file.db`, `memory:name`.
    /// [`NodeBuilder::start`] opens the store.
    pub fn builder(url: impl Into<String>) -> NodeBuilder {
        NodeBuilder::new(StoreSource::Url(url.into()))
    }

    /// Configures a node on a store that the program already has.
    pub fn builder_with_store(store: SharedStore) -> NodeBuilder {
        NodeBuilder::new(StoreSource::Store(store))
    }

    /// The whole of it: campaign, work while leading, give up cleanly, campaign again, until the node is stopped.
    ///
    /// See [`crate::Tenure::hold`] for how the work is stopped. After work that returned by itself this node does not claim
    /// the role for a ttl, so that another node gets a turn. Work that returns an `Err` is published as
    /// [`EventKind::WorkFailed`], logged, and recorded as `work-failed`.
    pub async fn lead<W, T>(&self, role: &str, mut work: W) -> Result<(), Error>
    where
        W: AsyncFnMut(Lead) -> T,
        T: WorkResult,
    {
        let candidate = self.candidate(role).await?;
        while let Some(tenure) = candidate.elected().await {
            let (lead, work) = (tenure.lead(), &mut work);
            let WorkOutcome::Completed(failure) = tenure.hold_work(move |lead| work(lead)).await else {
                continue;
            };
            if let Some(why) = failure {
                let (role, token, worker) = (lead.role().clone(), lead.token(), "work".to_owned());
                lead.lost().await;
                self.publish_in_order(EventKind::WorkFailed { role, token, worker, why });
            }
            candidate.set_eligible(false);
            tokio::select! {
                () = tokio::time::sleep(self.inner.timing.ttl) => {}
                None = candidate.elected() => {}
            }
            candidate.set_eligible(true);
        }
        Ok(())
    }

    /// Makes this node a candidate for a role. Await the builder to begin, with or without options:
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let node = tenure::testing::node("web-1").await;
    /// let candidate = node.candidate("scheduler").await?;
    /// let preferred = node.candidate("reports").priority(10).preempt(true).await?;
    /// # Ok::<(), tenure::Error>(()) }).unwrap();
    /// ```
    pub fn candidate(&self, role: &str) -> CandidateBuilder {
        CandidateBuilder {
            node: self.clone(),
            role: role.to_owned(),
            candidacy: default_candidacy(&self.inner.timing),
            drain: self.inner.drain,
            requires: Vec::new(),
            guard: None,
        }
    }

    /// Watches a role without being a candidate for it.
    pub async fn observer(&self, role: &str) -> Result<Observer, Error> {
        let role = Name::new(role)?;
        Ok(Observer::new(self.slot(&role), self.inner.commands.clone()))
    }

    /// Gives everything up: work is told to stop, roles are resigned, the session is closed. Returns when that is
    /// done, or when the store has not answered for as long as the session could last.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        let _ = self.inner.commands.send(Command::Stop { done });
        let limit = self.inner.drain + 2 * self.inner.timing.ttl;
        let _ = tokio::time::timeout(limit, stopped).await;
    }

    /// From now on SIGTERM and SIGINT (Ctrl-C) stop this node, as [`Node::stop`] does: its work winds down, others take its
    /// roles over at once, and [`Node::lead`] returns. A node that ends without it costs its successors a lease.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[cfg(unix)]
    pub fn stop_on_signal(&self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(Error::Signals);
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let node = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if let Some(inner) = node.upgrade() {
                Self { inner }.stop().await;
            }
        });
        Ok(())
    }

    /// Returns when the store has answered for the first time; until then the node retries.
    ///
    /// # Errors
    /// If the store refuses this node: a wrong password, missing rights. Waiting would not help.
    pub async fn wait_for_store(&self) -> Result<(), Error> {
        match self.store_contact(|contact| !matches!(contact, StoreContact::Waiting(_))).await {
            Some(StoreContact::Refused(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns if the store refuses this node before it could ever write there, and never otherwise.
    pub async fn store_refused(&self) -> Error {
        match self.store_contact(|contact| matches!(contact, StoreContact::Refused(_))).await {
            Some(StoreContact::Refused(error)) => error.into(),
            _ => std::future::pending().await,
        }
    }

    /// The last error of the store, as long as it has never answered.
    #[must_use]
    pub fn store_problem(&self) -> Option<String> {
        match &*self.inner.contact.borrow() {
            StoreContact::Waiting(error) => Some(
                error
                    .as_ref()
                    .map_or_else(|| "the store has not answered yet".to_owned(), ToString::to_string),
            ),
            _ => None,
        }
    }

    /// None if the loop ended first.
    async fn store_contact(&self, wanted: impl Fn(&StoreContact) -> bool) -> Option<StoreContact> {
        let mut contact = self.inner.contact.clone();
        contact.wait_for(|contact| wanted(contact)).await.ok().map(|contact| contact.clone())
    }

    /// The events of this node from now on.
    pub fn events(&self) -> EventStream {
        self.inner.publisher.events()
    }

    /// Calls `callback` for each event, in order, on a thread of its own. A slow or panicking callback harms neither the node nor other listeners.
    pub fn listen(&self, callback: impl FnMut(&Event) + Send + 'static) -> ListenerGuard {
        self.inner.publisher.listen(callback)
    }

    /// Changes the labels and the address of this node.
    pub fn set_description(&self, labels: BTreeMap<String, String>, address: Option<String>) {
        let labels = with_origin(labels);
        let _ = self.inner.commands.send(Command::Describe { labels, address });
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.inner.name
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &Name {
        &self.inner.namespace
    }

    /// Its timing.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.inner.timing
    }

    /// How long ago the election loop last turned. It turns with every beat: much longer means that it hangs.
    #[must_use]
    pub fn since_loop_turn(&self) -> Duration {
        let turned = crate::Time::from_nanos(self.inner.last_turn.load(Ordering::Acquire));
        self.inner.clock.now().since(turned)
    }

    /// Its store.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.inner.store
    }

    /// Its clocks.
    #[cfg(feature = "schedule")]
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Publishes an event.
    pub(crate) fn publish(&self, kind: EventKind) {
        self.inner.publisher.publish(kind);
    }

    /// Publishes an event after everything that earlier commands cause: the end of a tenure's work is heard after the loss of
    /// that tenure.
    pub(crate) fn publish_in_order(&self, kind: EventKind) {
        if let Err(unsent) = self.inner.commands.send(Command::Publish(kind))
            && let Command::Publish(kind) = unsent.0
        {
            // The loop has ended, and has published all it had to publish.
            self.publish(kind);
        }
    }

    pub(crate) fn command(&self, command: Command) {
        let _ = self.inner.commands.send(command);
    }

    fn slot(&self, role: &Name) -> Arc<RoleSlot> {
        let mut roles = self.inner.roles.lock().unwrap_or_else(PoisonError::into_inner);
        let local = roles
            .entry(role.clone())
            .or_insert_with(|| LocalRole { slot: RoleSlot::new(role.clone()), shared: Weak::new() });
        local.slot.clone()
    }

    fn shared(
        &self,
        role: &Name,
        candidacy: Candidacy,
        drain: Duration,
        guard: Option<CandidateGuard>,
    ) -> Arc<CandidateShared> {
        let slot = self.slot(role);
        let mut roles = self.inner.roles.lock().unwrap_or_else(PoisonError::into_inner);
        let local = roles
            .entry(role.clone())
            .or_insert_with(|| LocalRole { slot: slot.clone(), shared: Weak::new() });
        if let Some(shared) = local.shared.upgrade() {
            if guard.is_some() {
                slot.set_guard(guard);
            }
            shared.change(|current| *current = candidacy);
            return shared;
        }
        slot.set_guard(guard);
        let (commands, slack) = (self.inner.commands.clone(), self.inner.timing.kill_slack);
        let shared = CandidateShared::new(slot, commands, candidacy, drain, slack);
        local.shared = Arc::downgrade(&shared);
        shared
    }
}

fn default_candidacy(timing: &Timing) -> Candidacy {
    Candidacy { cool_down: timing.ttl, ..Candidacy::default() }
}

/// The options of a candidacy.
#[derive(Debug, Clone)]
#[must_use = "a candidacy begins when its builder is awaited"]
pub struct CandidateBuilder {
    node: Node,
    role: String,
    candidacy: Candidacy,
    drain: Duration,
    requires: Vec<(String, String)>,
    guard: Option<SharedGuardLock>,
}

impl CandidateBuilder {
    /// Higher claims first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.candidacy.priority = priority;
        self
    }

    /// Asks a leader of lower priority to hand over. Off by default: a returning node stays on standby.
    pub fn preempt(mut self, preempt: bool) -> Self {
        self.candidacy.preempt = preempt;
        self
    }

    /// Waits this long before claiming a vacant role.
    pub fn takeover_delay(mut self, delay: Duration) -> Self {
        self.candidacy.takeover_delay = delay;
        self
    }

    /// A tenure younger than this is not handed over for the sake of priority.
    pub fn min_tenure(mut self, min_tenure: Duration) -> Self {
        self.candidacy.min_tenure = min_tenure;
        self
    }

    /// How long not to claim the role after its work failed.
    pub fn cool_down(mut self, cool_down: Duration) -> Self {
        self.candidacy.cool_down = cool_down;
        self
    }

    /// How long the work may take to wind down when it is not the lease that runs out.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Starts out as a follower that does not claim.
    pub fn eligible(mut self, eligible: bool) -> Self {
        self.candidacy.eligible = eligible;
        self
    }

    /// Claims the role only if the node has this label.
    pub fn require_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.requires.push((key.into(), value.into()));
        self
    }

    /// Only this node may lead the role: for installations of one node, and on the way to elections. The others follow. The
    /// leader still has a session and a token, so that you can drop this option later.
    pub fn static_leader(mut self, leader: &Name) -> Self {
        self.candidacy.eligible &= leader == self.node.name();
        self
    }

    /// Takes this lock of another system too: before the node is told that it is elected, for as long as its work runs. For the
    /// time in which programs that elect by that lock run beside this one; [`guard::open`](crate::guard::open) opens one by its URL. Every
    /// node that is a candidate for the role needs it. A second candidate of this node for the role keeps the lock of the first
    /// unless it names one, which counts from the next election on.
    pub fn guard(mut self, lock: SharedGuardLock) -> Self {
        self.guard = Some(lock);
        self
    }

    pub(crate) fn is_eligible(&self) -> bool {
        self.candidacy.eligible
    }

    /// The node of the candidate.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    fn start(mut self) -> Result<Candidate, Error> {
        let role = Name::new(&self.role)?;
        let labels = &self.node.inner.labels;
        self.candidacy.eligible &= self.requires.iter().all(|(key, value)| labels.get(key) == Some(value));
        let guard = self.guard.map(|lock| CandidateGuard::new(lock, self.node.timing())).transpose()?;
        Ok(Candidate::new(self.node.shared(&role, self.candidacy, self.drain, guard)))
    }
}

/// Awaiting the builder begins the candidacy. It fails if the name of the role is invalid, or the guard lock too short.
impl IntoFuture for CandidateBuilder {
    type Output = Result<Candidate, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.start() })
    }
}

enum StoreSource {
    Url(String),
    Store(SharedStore),
}

type EventCallback = Box<dyn FnMut(&Event) + Send>;

/// The settings of a node.
#[must_use = "a node begins with `start()`"]
pub struct NodeBuilder {
    source: StoreSource,
    name: Option<String>,
    namespace: String,
    settings: TimingSettings,
    drain: Duration,
    labels: BTreeMap<String, String>,
    address: Option<String>,
    clock: Option<Arc<dyn Clock>>,
    listeners: Vec<EventCallback>,
    store_timeout: Duration,
    abort_if_stuck: bool,
    election_checks: bool,
    #[cfg(feature = "mutants")]
    mutant: Option<tenure_core::Mutant>,
    fault: Option<crate::fault_injection::DriverFault>,
}

impl std::fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, namespace, settings, .. } = self;
        f.debug_struct("NodeBuilder")
            .field("name", name)
            .field("namespace", namespace)
            .field("settings", settings)
            .finish_non_exhaustive()
    }
}

impl NodeBuilder {
    /// How long the work may take to wind down when it is not the lease that runs out.
    pub const DEFAULT_DRAIN: Duration = Duration::from_secs(10);
    /// How long [`NodeBuilder::start`] waits for a store that does not answer.
    pub const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_secs(30);

    fn new(source: StoreSource) -> Self {
        Self {
            source,
            name: None,
            namespace: crate::DEFAULT_NAMESPACE.to_owned(),
            settings: TimingSettings::default(),
            drain: Self::DEFAULT_DRAIN,
            labels: BTreeMap::new(),
            address: None,
            clock: None,
            listeners: Vec::new(),
            store_timeout: Self::DEFAULT_STORE_TIMEOUT,
            abort_if_stuck: false,
            election_checks: false,
            #[cfg(feature = "mutants")]
            mutant: None,
            fault: None,
        }
    }

    /// The node's name, of which there is one live process at a time. `<host>-<pid>` by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The namespace: clusters in different namespaces of one store never touch. `default` by default.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Lease duration: a leader that stops renewing is replaced after this time. 5 s by default (object storage: 20 s); the
    /// other times follow from it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = Some(ttl);
        self
    }

    /// What a dropped store connection means for this node's roles. With [`Takeover::OnDisconnect`], on a store that can tell,
    /// its roles are free a [`grace`](Self::grace) later, and it stops by itself when it has not reached the store for that
    /// long. On another store such a node is strict, and says so
    /// ([`EventKind::NoLivenessLock`](crate::event::EventKind::NoLivenessLock)).
    pub fn takeover(mut self, takeover: Takeover) -> Self {
        self.settings.takeover = takeover;
        self
    }

    /// How long a dropped connection is forgiven, on disconnect. Half of the ttl by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = Some(grace);
        self
    }

    /// All times at once. The node checks them as a whole when it starts.
    pub fn timing(mut self, settings: TimingSettings) -> Self {
        self.settings = settings;
        self
    }

    /// How long the work may take to wind down when it is not the lease that runs out. 10 s by default.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// How long [`start`](Self::start) waits for a store that is not up yet. 30 s by default.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Adds a label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The address at which others reach the node; observers of its roles see it.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Calls `callback` for each event, from the very first.
    pub fn listen(mut self, callback: impl FnMut(&Event) + Send + 'static) -> Self {
        self.listeners.push(Box::new(callback));
        self
    }

    /// Aborts the process if work does not stop before its lease ends. For programs whose work may block.
    pub fn abort_if_stuck(mut self, abort: bool) -> Self {
        self.abort_if_stuck = abort;
        self
    }

    /// Publishes an [`crate::event::EventKind::ElectionCheck`] for every role with every beat.
    pub fn election_checks(mut self, checks: bool) -> Self {
        self.election_checks = checks;
        self
    }

    /// Injects a fault into the engine, to show that the checks catch it.
    #[cfg(feature = "mutants")]
    pub fn mutant(mut self, mutant: tenure_core::Mutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Injects a fault into the driver, to show that the checks catch it.
    #[cfg(feature = "mutants")]
    pub fn inject_fault(mut self, fault: crate::fault_injection::DriverFault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the store, waits until it answers, and begins to take part.
    ///
    /// # Errors
    /// If the store refuses this node (a wrong password, missing rights), or has not answered within
    /// [`store_timeout`](Self::store_timeout).
    pub async fn start(self) -> Result<Node, Error> {
        let timeout = self.store_timeout;
        let node = self.start_without_waiting()?;
        if let Ok(reached) = tokio::time::timeout(timeout, node.wait_for_store()).await {
            return reached.map(|()| node);
        }
        let error = match &*node.inner.contact.borrow() {
            StoreContact::Waiting(Some(error)) => error.clone(),
            _ => StoreError::not_applied("store", format!("no answer within {timeout:?}")),
        };
        Err(error.into())
    }

    /// Begins to take part without waiting for the store: the node asks until the store answers, for ever if need be,
    /// and campaigns from then on. [`Node::wait_for_store`] returns when it has.
    ///
    /// # Errors
    /// If a name, the times or the URL of the store are invalid.
    pub fn start_without_waiting(self) -> Result<Node, Error> {
        let name = Name::new(self.name.unwrap_or_else(default_node_name))?;
        let namespace = Name::new(&self.namespace)?;
        let mut settings = self.settings;
        if let StoreSource::Url(url) = &self.source {
            settings.ttl.get_or_insert_with(|| store::default_ttl(url));
        }
        let timing = Timing::new(&settings)?;
        let store = match self.source {
            StoreSource::Url(url) => store::open(&url)?,
            StoreSource::Store(store) => store,
        };
        let clock = self.clock.unwrap_or_else(|| Arc::new(LeaseClock::new()));
        let publisher = Publisher::new(name.clone(), clock.clone());
        for callback in self.listeners {
            publisher.listen(callback).detach();
        }
        let (commands, receiver) = mpsc::unbounded_channel();
        let last_turn = Arc::new(AtomicU64::new(clock.now().as_nanos()));
        let (contact, receiver_of_contact) = watch::channel(StoreContact::Waiting(None));
        let config = DriverConfig {
            node: name.clone(),
            namespace: namespace.clone(),
            timing,
            store: store.clone(),
            clock: clock.clone(),
            publisher: publisher.clone(),
            commands: receiver,
            labels: with_origin(self.labels.clone()),
            address: self.address,
            abort_if_stuck: self.abort_if_stuck,
            election_checks: self.election_checks,
            last_turn: last_turn.clone(),
            contact,
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
            fault: self.fault,
        };
        driver::spawn(config).map_err(Error::Thread)?;
        let (drain, labels, roles) = (self.drain, self.labels, Mutex::default());
        Ok(Node {
            inner: Arc::new(NodeShared {
                name,
                namespace,
                store,
                timing,
                drain,
                labels,
                publisher,
                clock,
                commands,
                roles,
                last_turn,
                contact: receiver_of_contact,
            }),
        })
    }
}

/// `<host>-<pid>`, with what a name cannot have replaced.
#[must_use]
pub fn default_node_name() -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' };
    let host: String = crate::origin::host().chars().map(allowed).collect();
    let host = host.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let host = if host.is_empty() { "node" } else { host };
    format!("{host}-{}", std::process::id())
}
