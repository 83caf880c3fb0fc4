//! A node: one process that takes part.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::BoxStream;
use tenure_core::io::Standing;
use tenure_core::timing::Settings;
use tokio::sync::{mpsc, oneshot};

use crate::candidate::{Candidate, Observer, Standee};
use crate::clock::{Clock, LeaseClock};
use crate::driver::{self, Command, Seat, Setup};
use crate::event::{Event, What};
use crate::lead::{Held, Lead};
use crate::publisher::{Publisher, Registration};
use crate::store::{self, SharedStore};
use crate::{Error, Name, Takeover, Timing};

/// One process that takes part in elections. Cheap to clone; when the last handle, candidate and tenure is gone, it
/// gives everything up in the background. [`Node::stop`] waits for that.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    name: Name,
    namespace: Name,
    store: SharedStore,
    timing: Timing,
    drain: Duration,
    labels: BTreeMap<String, String>,
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    commands: mpsc::UnboundedSender<Command>,
    seats: Mutex<BTreeMap<Name, Place>>,
    pulse: Arc<AtomicU64>,
}

struct Place {
    seat: Arc<Seat>,
    standee: Weak<Standee>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { name, namespace, store, .. } = &*self.inner;
        f.debug_struct("Node")
            .field("name", name)
            .field("namespace", namespace)
            .field("store", store)
            .finish()
    }
}

impl Node {
    /// Begins a node on the store at `url`: `sqlite:` (the embedded store), `sqlite:path/to/file.db`, `memory:name`.
    pub fn connect(url: impl Into<String>) -> NodeBuilder {
        NodeBuilder::new(Source::Url(url.into()))
    }

    /// Begins a node on a store that the program already has.
    pub fn with_store(store: SharedStore) -> NodeBuilder {
        NodeBuilder::new(Source::Store(store))
    }

    /// The whole of it: campaign, work while leading, give up cleanly, campaign again, until the node is stopped.
    ///
    /// See [`crate::Tenure::hold`] for how the work is stopped. After work that returned by itself this node stands back
    /// for its cool-down, so that another gets a turn.
    pub async fn lead<F, Fut>(&self, role: &str, mut work: F) -> Result<(), Error>
    where
        F: FnMut(Lead) -> Fut,
        Fut: Future,
    {
        let candidate = self.candidate(role).await?;
        while let Some(tenure) = candidate.elected().await {
            if let Held::Returned(_) = tenure.hold(&mut work).await {
                candidate.set_eligible(false);
                tokio::time::sleep(self.inner.timing.ttl).await;
                candidate.set_eligible(true);
            }
        }
        Ok(())
    }

    /// Stands for a role with the default settings.
    pub async fn candidate(&self, role: &str) -> Result<Candidate, Error> {
        self.stand(role).start().await
    }

    /// Stands for a role with settings of your own.
    pub fn stand(&self, role: &str) -> CandidateBuilder {
        CandidateBuilder {
            node: self.clone(),
            role: role.to_owned(),
            standing: default_standing(&self.inner.timing),
            drain: self.inner.drain,
            requires: Vec::new(),
        }
    }

    /// Watches a role without standing for it.
    pub async fn observer(&self, role: &str) -> Result<Observer, Error> {
        let role = Name::new(role)?;
        Ok(Observer::new(self.seat(&role), self.inner.commands.clone()))
    }

    /// Gives everything up: work is told to stop, roles are resigned, the session is closed. Returns when nothing is
    /// left, or when the store has not answered for as long as the session could last.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        let _ = self.inner.commands.send(Command::Stop { done });
        let limit = self.inner.drain + 2 * self.inner.timing.ttl;
        let _ = tokio::time::timeout(limit, stopped).await;
    }

    /// The events of this node from now on.
    #[must_use]
    pub fn events(&self) -> BoxStream<'static, Event> {
        self.inner.publisher.events()
    }

    /// Calls `heard` for each event, in order, on a thread of its own. Being slow or panicking harms nobody else.
    pub fn listen(&self, heard: impl FnMut(&Event) + Send + 'static) -> Registration {
        self.inner.publisher.listen(heard)
    }

    /// Changes what people are told about this node.
    pub fn describe(&self, labels: BTreeMap<String, String>, address: Option<String>) {
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

    /// The times it runs on.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.inner.timing
    }

    /// How long ago the election loop last turned. It turns with every beat: much longer means that it hangs.
    #[must_use]
    pub fn loop_turned(&self) -> Duration {
        let turned = crate::Time(self.inner.pulse.load(Ordering::Acquire));
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

    /// Tells those who listen.
    pub(crate) fn tell(&self, what: What) {
        self.inner.publisher.tell(what);
    }

    /// Tells those who listen, after everything that the loop was told before: what became of the work of a tenure is
    /// heard after the loss of that tenure.
    pub(crate) fn tell_in_turn(&self, what: What) {
        if let Err(unsent) = self.inner.commands.send(Command::Tell(what))
            && let Command::Tell(what) = unsent.0
        {
            // The loop has ended, and has told all it had to tell.
            self.tell(what);
        }
    }

    pub(crate) fn command(&self, command: Command) {
        let _ = self.inner.commands.send(command);
    }

    fn seat(&self, role: &Name) -> Arc<Seat> {
        let mut seats = self.inner.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let place = seats
            .entry(role.clone())
            .or_insert_with(|| Place { seat: Seat::new(role.clone()), standee: Weak::new() });
        place.seat.clone()
    }

    fn standee(&self, role: &Name, standing: Standing, drain: Duration) -> Arc<Standee> {
        let seat = self.seat(role);
        let mut seats = self.inner.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let place =
            seats.entry(role.clone()).or_insert_with(|| Place { seat: seat.clone(), standee: Weak::new() });
        if let Some(standee) = place.standee.upgrade() {
            standee.change(|current| *current = standing);
            return standee;
        }
        let (commands, slack) = (self.inner.commands.clone(), self.inner.timing.kill_slack);
        let standee = Standee::new(seat, commands, standing, drain, slack);
        place.standee = Arc::downgrade(&standee);
        standee
    }
}

fn default_standing(timing: &Timing) -> Standing {
    Standing { cool_down: timing.ttl, ..Standing::default() }
}

/// How a node stands for a role.
#[derive(Debug, Clone)]
#[must_use = "a candidacy begins with `start()`"]
pub struct CandidateBuilder {
    node: Node,
    role: String,
    standing: Standing,
    drain: Duration,
    requires: Vec<(String, String)>,
}

impl CandidateBuilder {
    /// Higher claims first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.standing.priority = priority;
        self
    }

    /// Asks a leader of lower priority to hand over. Off by default: a returning node stays on standby.
    pub fn preempt(mut self, preempt: bool) -> Self {
        self.standing.preempt = preempt;
        self
    }

    /// Leaves a free role to others for so long.
    pub fn takeover_delay(mut self, delay: Duration) -> Self {
        self.standing.takeover_delay = delay;
        self
    }

    /// A tenure younger than this is not handed over for the sake of priority.
    pub fn min_tenure(mut self, min_tenure: Duration) -> Self {
        self.standing.min_tenure = min_tenure;
        self
    }

    /// How long to stand back after the work failed.
    pub fn cool_down(mut self, cool_down: Duration) -> Self {
        self.standing.cool_down = cool_down;
        self
    }

    /// How long the work may take to wind down when it is not the lease that runs out.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Starts out as a follower that does not claim.
    pub fn eligible(mut self, eligible: bool) -> Self {
        self.standing.eligible = eligible;
        self
    }

    /// Eligible only on nodes with this label.
    pub fn require_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.requires.push((key.into(), value.into()));
        self
    }

    /// The role has a leader by decree, and no other: for installations of one node, and on the way to an election. The
    /// others only follow. It still leads under a session and a token, so that it can be let go of later.
    pub fn static_leader(mut self, leader: &Name) -> Self {
        self.standing.eligible &= leader == self.node.name();
        self
    }

    pub(crate) fn is_eligible(&self) -> bool {
        self.standing.eligible
    }

    /// The node that stands.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Begins to stand.
    pub async fn start(mut self) -> Result<Candidate, Error> {
        let role = Name::new(&self.role)?;
        let labels = &self.node.inner.labels;
        self.standing.eligible &= self.requires.iter().all(|(key, value)| labels.get(key) == Some(value));
        Ok(Candidate::new(self.node.standee(&role, self.standing, self.drain)))
    }
}

enum Source {
    Url(String),
    Store(SharedStore),
}

type Heard = Box<dyn FnMut(&Event) + Send>;

/// How a node is made.
#[must_use = "a node begins with `start()`"]
pub struct NodeBuilder {
    source: Source,
    name: Option<String>,
    namespace: String,
    settings: Settings,
    drain: Duration,
    labels: BTreeMap<String, String>,
    address: Option<String>,
    clock: Option<Arc<dyn Clock>>,
    listeners: Vec<Heard>,
    abort_if_stuck: bool,
    election_checks: bool,
    mutant: Option<tenure_core::Mutant>,
    slip: Option<crate::slip::Slip>,
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

    fn new(source: Source) -> Self {
        Self {
            source,
            name: None,
            namespace: crate::DEFAULT_NAMESPACE.to_owned(),
            settings: Settings::default(),
            drain: Self::DEFAULT_DRAIN,
            labels: BTreeMap::new(),
            address: None,
            clock: None,
            listeners: Vec::new(),
            abort_if_stuck: false,
            election_checks: false,
            mutant: None,
            slip: None,
        }
    }

    /// The node's name, of which there is one live process at a time. `<host>-<pid>` by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Which cluster: two namespaces in one store never touch. `default` by default.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// How long a leader that falls silent keeps its roles. 5 s by default; everything else follows from it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = Some(ttl);
        self
    }

    /// What it means that this node's connection to the store drops. With [`Takeover::OnDisconnect`], on a store that can
    /// tell, its roles are free a [`grace`](Self::grace) later, and it stops by itself when it has not reached the
    /// store for so long. On another store such a node is a strict one, and says so
    /// ([`What::NoWitness`](crate::event::What::NoWitness)).
    pub fn takeover(mut self, takeover: Takeover) -> Self {
        self.settings.takeover = takeover;
        self
    }

    /// How long a dropped connection is forgiven, on disconnect. Half of the ttl by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = Some(grace);
        self
    }

    /// Every time at once. They are checked as a whole when the node starts.
    pub fn timing(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How long the work may take to wind down when it is not the lease that runs out. 10 s by default.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Says something about the node.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Where others reach the node; observers of the roles it leads are told.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Calls `heard` for each event, from the very first.
    pub fn listen(mut self, heard: impl FnMut(&Event) + Send + 'static) -> Self {
        self.listeners.push(Box::new(heard));
        self
    }

    /// Aborts the process if work does not stop before its lease ends. For programs whose work may block.
    pub fn abort_if_stuck(mut self, abort: bool) -> Self {
        self.abort_if_stuck = abort;
        self
    }

    /// Tells an [`crate::event::What::ElectionCheck`] for every role with every beat.
    pub fn election_checks(mut self, checks: bool) -> Self {
        self.election_checks = checks;
        self
    }

    /// Makes a mistake in the engine, so that it can be shown that it would be caught.
    #[cfg(feature = "mutants")]
    pub fn mutant(mut self, mutant: tenure_core::Mutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Makes a mistake in the driver, so that it can be shown that it would be caught.
    #[cfg(feature = "mutants")]
    pub fn slip(mut self, slip: crate::slip::Slip) -> Self {
        self.slip = Some(slip);
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the store and begins to take part.
    pub async fn start(self) -> Result<Node, Error> {
        let name = Name::new(self.name.unwrap_or_else(default_name))?;
        let namespace = Name::new(&self.namespace)?;
        let timing = Timing::new(&self.settings)?;
        let store = match self.source {
            Source::Url(url) => store::open(&url)?,
            Source::Store(store) => store,
        };
        let class = store.describe().await?.class;
        let clock = self.clock.unwrap_or_else(|| Arc::new(LeaseClock::new()));
        let publisher = Publisher::new(name.clone(), clock.clone());
        for heard in self.listeners {
            publisher.listen(heard).forever();
        }
        let (commands, receiver) = mpsc::unbounded_channel();
        let pulse = Arc::new(AtomicU64::new(clock.now().0));
        let setup = Setup {
            node: name.clone(),
            namespace: namespace.clone(),
            timing,
            class,
            store: store.clone(),
            clock: clock.clone(),
            publisher: publisher.clone(),
            commands: receiver,
            labels: self.labels.clone(),
            address: self.address,
            abort_if_stuck: self.abort_if_stuck,
            election_checks: self.election_checks,
            pulse: pulse.clone(),
            mutant: self.mutant,
            slip: self.slip,
        };
        driver::spawn(setup).map_err(Error::Thread)?;
        let (drain, labels, seats) = (self.drain, self.labels, Mutex::default());
        Ok(Node {
            inner: Arc::new(Inner {
                name,
                namespace,
                store,
                timing,
                drain,
                labels,
                publisher,
                clock,
                commands,
                seats,
                pulse,
            }),
        })
    }
}

/// `<host>-<pid>`, with what a name cannot have replaced.
#[must_use]
pub fn default_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' };
    let host: String = host.chars().map(allowed).take(80).collect();
    let host = host.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let host = if host.is_empty() { "node" } else { host };
    format!("{host}-{}", std::process::id())
}
