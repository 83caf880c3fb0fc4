//! Some nodes on one store, a worker on each, and a witness that looks at all of them all the time.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use tenure::clock::{Clock, LeaseClock, SuspendTimer};
use tenure::event::{Event, EventKind};
use tenure::store::{self, Entry, Epoch, Key, Kind, Name, Query, Retry, SessionId, SharedStore};
use tenure::{Candidate, Error, Lead, Node, NodeBuilder, Time, Timestamp, TimingSettings, Token};
use tenure_core::record::{self, SessionState};
use tenure_torture::judge::WitnessVerdict;
use tenure_torture::proxy::{Direction, Flow, Proxy};
use tenure_torture::witness::{self, Beat};

use crate::rig::Rig;
use crate::tap::{Tap, Tapped};

/// Long enough for anything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
pub(crate) const ROLE: &str = "scheduler";
/// How often the sampler looks.
const PERIOD: Duration = Duration::from_millis(2);

/// It happens, sooner or later.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("it did not happen in time: {what}"))
}

/// It becomes true, sooner or later.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(what, waiting).await;
}

/// Starts a node, and tries again where a program would: a server to which fifty connect at once may not answer all in time.
pub(crate) async fn started(builder: impl Fn() -> NodeBuilder) -> Node {
    let starting = async {
        loop {
            match builder().start().await {
                Ok(node) => break node,
                Err(Error::Store(error)) if error.retry() == Retry::Soon => {}
                Err(error) => panic!("it does not start: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a node starts", starting).await
}

/// Nodes, their store, and the sampler.
pub(crate) struct World<R> {
    pub(crate) members: Vec<Member>,
    namespace: Name,
    settings: TimingSettings,
    clock: Arc<Clocks>,
    sampler: Sampler,
    pub(crate) rig: Arc<R>,
}

/// Who leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Led {
    pub(crate) nth: usize,
    pub(crate) token: Token,
    pub(crate) session: SessionId,
}

/// One node with its link and its worker.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) candidate: Candidate,
    pub(crate) tap: Arc<Tap>,
    pub(crate) proxy: Option<Proxy>,
    events: Arc<Mutex<Vec<EventKind>>>,
    _worker: tokio::task::JoinSet<()>,
}

impl Member {
    /// Whether it has told so, at any time.
    pub(crate) fn told(&self, wanted: impl Fn(&EventKind) -> bool) -> bool {
        self.count(wanted) > 0
    }

    /// How often it has told so.
    pub(crate) fn count(&self, wanted: impl Fn(&EventKind) -> bool) -> usize {
        self.events.lock().expect("no panic with it").iter().filter(|what| wanted(what)).count()
    }
}

/// A lease clock as it is, and a wall clock that people set.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    lease: LeaseClock,
    ahead: AtomicI64,
}

impl Clocks {
    /// Sets the wall clock, in seconds since 1970.
    pub(crate) fn set(&self, seconds: u64) {
        let now = self.lease.wall().as_micros() / 1_000_000;
        self.ahead.store(seconds.cast_signed() - now.cast_signed(), Ordering::SeqCst);
    }
}

impl Clock for Clocks {
    fn now(&self) -> Time {
        self.lease.now()
    }

    fn wall(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::SeqCst) * 1_000_000;
        Timestamp::from_micros(self.lease.wall().as_micros().saturating_add_signed(ahead))
    }

    fn fault(&self) -> bool {
        self.lease.fault()
    }

    fn alarm(&self) -> Option<Box<dyn SuspendTimer>> {
        self.lease.alarm()
    }
}

impl<R: Rig> World<R> {
    /// So many nodes on a store of their own, all standing for the role.
    pub(crate) async fn of(count: usize) -> Self {
        Self::on(Arc::new(R::start().await), "default", count).await
    }

    /// The same on a store that is there already.
    pub(crate) async fn on(rig: Arc<R>, namespace: &str, count: usize) -> Self {
        let settings = TimingSettings { ttl: Some(R::TTL), ..TimingSettings::default() };
        let mut world = Self::empty(rig, namespace, settings);
        for nth in 0..count {
            world.join(&format!("node-{nth}"), true).await;
        }
        world
    }

    /// No node yet, with times of its own.
    pub(crate) fn empty(rig: Arc<R>, namespace: &str, settings: TimingSettings) -> Self {
        let namespace = Name::new(namespace).expect("a name");
        let sampler = Sampler::start();
        Self { members: Vec::new(), namespace, settings, clock: Arc::default(), sampler, rig }
    }

    /// One more node, behind a link of its own. Gives its place.
    pub(crate) async fn join(&mut self, name: &str, eligible: bool) -> usize {
        let proxy = self.rig.server().map(Proxy::to);
        self.join_through(proxy, name, eligible).await
    }

    /// One more node, without a link that could be cut: cheaper, for many.
    pub(crate) async fn join_directly(&mut self, name: &str) -> usize {
        self.join_through(None, name, true).await
    }

    async fn join_through(&mut self, proxy: Option<Proxy>, name: &str, eligible: bool) -> usize {
        let store = self.open(proxy.as_ref()).await;
        let tap = Arc::new(Tap::on(store));
        let events = Arc::<Mutex<Vec<EventKind>>>::default();
        let heard = events.clone();
        let node = started(|| {
            let heard = heard.clone();
            let hear = move |event: &Event| heard.lock().expect("no panic with it").push(event.kind.clone());
            self.builder(Arc::new(Tapped(tap.clone()))).name(name).listen(hear)
        })
        .await;
        let candidate = node.candidate(ROLE).eligible(eligible).await.expect("it stands");
        let mut worker = tokio::task::JoinSet::new();
        let work = candidate.clone();
        worker.spawn(async move {
            while let Some(tenure) = work.elected().await {
                tenure.hold(|_| std::future::pending::<()>()).await;
            }
        });
        self.sampler.look_at(node.name().to_string(), candidate.clone());
        self.members.push(Member { node, candidate, tap, proxy, events, _worker: worker });
        self.members.len() - 1
    }

    /// A handle on the store, directly or through a link.
    async fn open(&self, proxy: Option<&Proxy>) -> SharedStore {
        let url = self.rig.url(proxy.map(Proxy::address));
        let opening = async {
            loop {
                match store::open(&url) {
                    Ok(store) => break store,
                    Err(error) if error.retry() == Retry::Soon => {
                        tokio::time::sleep(Duration::from_millis(20)).await
                    }
                    Err(error) => panic!("it does not open: {error}"),
                }
            }
        };
        soon("the store opens", opening).await
    }

    fn builder(&self, store: SharedStore) -> NodeBuilder {
        Node::builder_with_store(store)
            .namespace(self.namespace.as_str())
            .timing(self.settings.clone())
            .drain(Duration::ZERO)
            .clock(self.clock.clone())
    }

    pub(crate) fn clock(&self) -> &Clocks {
        &self.clock
    }

    pub(crate) fn namespace(&self) -> &Name {
        &self.namespace
    }

    /// Who leads at this moment.
    pub(crate) fn leading(&self) -> Vec<Led> {
        let led = |(nth, member): (usize, &Member)| {
            let lead = member.candidate.lead().filter(Lead::check)?;
            Some(Led { nth, token: lead.token(), session: lead.session() })
        };
        self.members.iter().enumerate().filter_map(led).collect()
    }

    /// Waits for any node to lead, with a higher token than that.
    pub(crate) async fn leader_after(&self, token: Token) -> Led {
        self.leader_who(|led| led.token > token).await
    }

    /// Waits for another node to lead than one that can no longer. (On a busy machine that one may have lost its lease and been
    /// elected again just before.)
    pub(crate) async fn another_leader(&self, former: Led) -> Led {
        self.leader_who(|led| led.nth != former.nth && led.token > former.token).await
    }

    async fn leader_who(&self, is_meant: impl Fn(&Led) -> bool) -> Led {
        let led = async {
            loop {
                match self.leading()[..] {
                    [led] if is_meant(&led) => break led,
                    [_, _, ..] => _ = self.judge(),
                    _ => {}
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("a node leads", led).await
    }

    pub(crate) async fn leader(&self) -> Led {
        self.leader_after(Token::new(0)).await
    }

    /// Waits until these know of that tenure, or of a later one.
    pub(crate) async fn known_to(&self, members: &[usize], token: Token) {
        let knows =
            |nth: &usize| self.members[*nth].candidate.leader().is_some_and(|leader| leader.token >= token);
        until("others know of it", || members.iter().all(knows)).await;
    }

    /// Every node knows of that tenure, or of a later one.
    pub(crate) async fn known_to_all(&self, token: Token) {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.known_to(&all, token).await;
    }

    /// Bytes wait, or vanish, on one way of the link of a node.
    pub(crate) fn set_link(&self, nth: usize, way: Direction, flow: Flow) {
        let member = &self.members[nth];
        match (&member.proxy, flow) {
            (None, flow) => member.tap.set(way, flow),
            (Some(proxy), Flow::Pass) => proxy.pass(way),
            (Some(proxy), Flow::Hold) => proxy.hold(way),
            (Some(proxy), Flow::Lose) => proxy.lose(way),
        }
    }

    /// Whether something waits on that way of the link of a node.
    pub(crate) fn is_waiting(&self, nth: usize, way: Direction) -> bool {
        let member = &self.members[nth];
        member.proxy.as_ref().map_or_else(|| member.tap.waiting(way), |proxy| proxy.held(way)) > 0
    }

    /// As good as dead: it never hears or says anything again.
    pub(crate) fn abandon(&self, nth: usize) {
        self.set_link(nth, Direction::Up, Flow::Lose);
        self.set_link(nth, Direction::Down, Flow::Lose);
    }

    pub(crate) fn heal(&self, nth: usize) {
        self.set_link(nth, Direction::Up, Flow::Pass);
        self.set_link(nth, Direction::Down, Flow::Pass);
    }

    /// All registers of a kind, as the store has them now.
    pub(crate) async fn registers(&self, kind: Kind) -> Vec<Entry> {
        let store = self.open(None).await;
        let read = |query: Query| {
            let store = &store;
            async move {
                loop {
                    match store.read(&self.namespace, &query).await {
                        Ok(found) => return found,
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
            }
        };
        let cluster = soon("a read", read(Query { keys: vec![Key::Cluster], kinds: Vec::new() })).await;
        let Some(cluster) = cluster.first() else { return Vec::new() };
        let epoch: Epoch = cluster.value.parse::<record::Cluster>().expect("a cluster").epoch;
        let found = soon("a read", read(Query { keys: Vec::new(), kinds: vec![(epoch, kind)] })).await;
        store.close().await;
        found
    }

    /// The one register of the role.
    pub(crate) async fn role(&self) -> (Key, record::Role) {
        let found = self.registers(Kind::Role).await;
        let role = found.into_iter().find(|entry| entry.key.name() == ROLE).expect("the role was led");
        let value = role.value.parse().expect("a role");
        (role.key, value)
    }

    pub(crate) async fn session_register(&self, id: SessionId) -> Option<(Entry, SessionState)> {
        let found = self.registers(Kind::Session).await;
        let entry =
            found.into_iter().find(|entry| matches!(entry.key, Key::Session(_, found) if found == id))?;
        let state = entry.value.parse::<record::Session>().expect("a session").state;
        Some((entry, state))
    }

    /// # Panics
    /// If two ever led at once, or a token did not rise.
    pub(crate) fn judge(&self) -> WitnessVerdict {
        let verdict = WitnessVerdict::of_beats(&self.sampler.beats());
        verdict.assert_sound();
        verdict
    }

    /// Every node gives up cleanly.
    pub(crate) async fn stop(&self) {
        join_all(self.members.iter().map(|member| member.node.stop())).await;
    }
}

/// Looks at all nodes again and again, on a thread of its own.
struct Sampler {
    seen: Arc<Mutex<Seen>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    looked_at: Vec<(String, Candidate)>,
    beats: Vec<Beat>,
}

impl Sampler {
    fn start() -> Self {
        let (seen, ended) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (all, end) = (seen.clone(), ended.clone());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                all.lock().expect("no panic with it").sample();
                std::thread::sleep(PERIOD);
            }
        });
        Self { seen, ended, thread: Some(thread) }
    }

    fn look_at(&self, name: String, candidate: Candidate) {
        self.seen.lock().expect("no panic with it").looked_at.push((name, candidate));
    }

    fn beats(&self) -> Vec<Beat> {
        self.seen.lock().expect("no panic with it").beats.clone()
    }
}

impl Seen {
    /// A tenure that is good after an instant was good at that instant.
    fn sample(&mut self) {
        for (nth, (name, candidate)) in self.looked_at.iter().enumerate() {
            let t = witness::now();
            if let Some(lead) = candidate.lead().filter(Lead::check) {
                let (role, node, token) = (ROLE.to_owned(), name.clone(), lead.token().get());
                self.beats.push(Beat { t, role, node, token, pid: u32::try_from(nth).expect("few nodes") });
            }
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
