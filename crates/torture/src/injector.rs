//! The fault injector: carries the plan out, and records what it did and what it saw.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::judge::{
    self, DataLoss, FaultScope, InjectedFault, JudgeCase, JudgeTerms, Note, NoteBuffer, NoteKind, NoteReader,
    NoteWriter, StallMeter, Verdict,
};
use tempfile::TempDir;
use tenure::store::Class;
use tenure::{Name, Operator, SharedStore};
use tokio::task::{JoinHandle, JoinSet};

use crate::Error;
use crate::clock::ClockError;
use crate::fault::{FaultGroup, FaultKind};
use crate::links::Links;
use crate::member::{self, MemberOptions};
use crate::neighbour::Neighbour;
use crate::plan::{FaultTarget, Plan, PlannedFault};
use crate::pool::NodePool;
use crate::probes;
use crate::target::{AttackOutcome, AttackedServer, TargetStore};
use crate::{ROLES, StopSignal, TortureSettings, fence, member::name, programs};
use tenure_process::clock::lease_now;

/// How often chores are looked at, and after how many looks notes are read.
const TICK: Duration = Duration::from_millis(20);
const READ_TICKS: u64 = 10;
/// How long after a store is back every node is connected again.
const RECONNECT: Duration = Duration::from_secs(1);
/// A fail-over that torture did not order is seen when it is done; what was acknowledged in this time before may be lost.
const UNSEEN: Duration = Duration::from_secs(10);

/// The kind under which it is recorded that servers may still lose what they acknowledge after an attack.
const SETTLING: &str = "settling";

/// How long the first leaders, and the last, may take on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(90);

/// Everything that a torture leaves behind.
#[derive(Debug)]
pub struct TortureRecord {
    /// What it followed from.
    pub settings: TortureSettings,
    /// The store, as `docs/evidence.md` calls it.
    pub store: &'static str,
    /// The store, as it describes itself.
    pub about: String,
    /// What the store can promise.
    pub class: Class,
    /// Faults that cannot be injected here, with the reason.
    pub unable: Vec<(FaultKind, &'static str)>,
    /// Faults that could not be injected, each time.
    pub failed: Vec<(FaultKind, String)>,
    /// What the nodes, the fence and the meters wrote down.
    pub notes: Vec<Note>,
    /// At how many instants a leader noted that it leads.
    pub acts: u64,
    /// The faults.
    pub injected: Vec<InjectedFault>,
    /// Whether reads of the store may show what was so a moment ago.
    pub reads_lag: bool,
    /// When leaders were expected.
    pub expected: (u64, u64),
    /// Processes that ended by themselves, with the last line of their log.
    pub exited: Vec<(String, String)>,
    /// Where the notes are.
    pub dir: TempDir,
    /// Whether a signal ended it early.
    pub cut_short: bool,
}

impl TortureRecord {
    /// A leader that died is replaced within this.
    #[must_use]
    pub fn bound(&self) -> Duration {
        self.settings.bound()
    }

    /// What the notes prove.
    #[must_use]
    pub fn judge(&self) -> Verdict {
        let terms = JudgeTerms {
            bound: self.bound(),
            bound_of_two: self.settings.bound_of_two(),
            allowance: self.settings.allowance,
            lease: self.settings.longest_ttl(),
            recovery: self.settings.recovery(),
            reconnect: RECONNECT,
            wind_down: Duration::from_secs(5) + self.settings.allowance,
            expected: self.expected,
            roles: (0..ROLES).map(member::role).collect(),
            tokens_rise: self.class == Class::C && self.settings.tokens_rise(),
        };
        // A read that shows what was so a moment ago is as good as any, where the store says that it may.
        let counts = |note: &&Note| !(self.reads_lag && matches!(note.what, NoteKind::Read { .. }));
        let notes = self.notes.iter().filter(counts).cloned().collect();
        judge::judge(&JudgeCase { notes, injected: self.injected.clone(), terms })
    }
}

/// Sees the torture while it runs.
pub trait TortureObserver {
    /// This is done to a node, a link or the store.
    fn fault_injected(&mut self, what: &str);
    /// How it stands, several times a second: who was last seen to lead each role, and when on the lease clock.
    fn progress(
        &mut self,
        since: Duration,
        leaders: &BTreeMap<String, (String, u64)>,
        injected: &[InjectedFault],
    );
}

/// Carries the plan out.
///
/// # Errors
/// If nodes cannot be started, no leader is elected at the beginning, or a private server does not come back.
pub async fn torture(
    settings: &TortureSettings,
    target: TargetStore,
    plan: Plan,
    stop: StopSignal,
    observer: &mut dyn TortureObserver,
) -> Result<TortureRecord, Error> {
    let Plan { faults, able, unable } = plan;
    let mut injector = FaultInjector::begin(settings, target, &able, faults, stop, observer)?;
    let ended = injector.run().await;
    let left = match injector.neighbour.take() {
        Some(neighbour) => neighbour.end().await,
        None => Ok(()),
    };
    injector.pool.kill_all().await;
    // An attack that still goes on has the servers in its hands, and leaving now would leave them behind.
    while injector.tasks.join_next().await.is_some() {}
    injector.probes.iter().for_each(JoinHandle::abort);
    injector.operator.store().close().await;
    injector.read()?;
    left?;
    let cut_short = ended?;
    Ok(injector.record(unable, cut_short))
}

/// What is to be done later, to end a fault.
#[derive(Debug, Clone, Copy)]
enum FaultEnd {
    Start(usize),
    Thaw(usize),
    Resume(usize),
    HealLink(usize),
    EndTwin(usize),
    Hear(usize),
    Rest(usize),
}

struct FaultInjector<'a> {
    settings: TortureSettings,
    dir: TempDir,
    target: TargetStore,
    pool: NodePool,
    links: Links,
    conditions: Vec<FaultKind>,
    namespace: Name,
    operator: Operator,
    plan: VecDeque<PlannedFault>,
    injected: Vec<InjectedFault>,
    /// When a fault ends, how, and which one it is.
    fault_ends: Vec<(u64, FaultEnd, usize)>,
    /// Attacks on the store, and what operators do.
    tasks: JoinSet<Result<AttackOutcome, Error>>,
    failed: Vec<(FaultKind, String)>,
    stop: StopSignal,
    store_busy: bool,
    occupied: BTreeSet<usize>,
    /// How many processes there were.
    starts: u32,
    tail: NoteReader,
    pile: NoteBuffer,
    /// Who was last seen to lead a role, and when.
    leaders: BTreeMap<String, (String, u64)>,
    exited: Vec<(String, String)>,
    expected: (u64, u64),
    observer: &'a mut dyn TortureObserver,
    /// What asks the store, over and over.
    probes: Vec<JoinHandle<()>>,
    neighbour: Option<Neighbour>,
    /// Stall measurements, for as long as the torture lasts.
    _meter: StallMeter,
}

impl<'a> FaultInjector<'a> {
    fn begin(
        settings: &TortureSettings,
        target: TargetStore,
        able: &[FaultKind],
        plan: Vec<PlannedFault>,
        stop: StopSignal,
        observer: &'a mut dyn TortureObserver,
    ) -> Result<Self, Error> {
        let failed =
            |error: std::io::Error| Error::Failed(format!("no temporary files: {error}; set TMPDIR"));
        let dir = tempfile::Builder::new().prefix("tenure-torture-").tempdir().map_err(failed)?;
        let namespace = Name::new(format!("torture-{}", settings.seed)).expect("a name");
        let store = tenure::store::open(&target.url)?;
        let notes_to = NoteWriter::in_dir(dir.path(), "injector", 0).map_err(failed)?;
        let disk = std::fs::File::create(dir.path().join("disk")).map_err(failed)?;
        let meter = StallMeter::start(&notes_to, Some(disk));
        let probes = start_probes(&store, &namespace, &notes_to, target.can_forget());
        fence::serve(dir.path()).map_err(failed)?;
        Ok(Self {
            settings: settings.clone(),
            pool: NodePool::new(dir.path()),
            links: Links::to(&target.urls, settings.nodes),
            tail: NoteReader::of(dir.path()),
            operator: Operator::new(store, namespace.clone(), "torture"),
            observer,
            dir,
            target,
            conditions: able.iter().copied().filter(|kind| kind.is_condition()).collect(),
            namespace,
            plan: plan.into(),
            injected: Vec::new(),
            fault_ends: Vec::new(),
            tasks: JoinSet::new(),
            failed: Vec::new(),
            stop,
            store_busy: false,
            occupied: BTreeSet::new(),
            starts: 0,
            pile: NoteBuffer::default(),
            leaders: BTreeMap::new(),
            exited: Vec::new(),
            expected: (0, 0),
            probes,
            neighbour: None,
            _meter: meter,
        })
    }

    /// True if it was cut short.
    async fn run(&mut self) -> Result<bool, Error> {
        self.let_neighbour_in().await?;
        for node in 0..self.settings.nodes {
            self.start(node)?;
        }
        self.until_led(lease_now()).await?;
        self.expected.0 = lease_now();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (ends, mut turn) = (later(self.expected.0, self.settings.lasts), 0_u64);
        while lease_now() < ends && !self.stop.is_received() {
            ticks.tick().await;
            turn += 1;
            self.tick(turn).await?;
        }
        let cut = lease_now() < ends;
        self.heal().await?;
        self.until_led(lease_now()).await?;
        self.expected.1 = lease_now();
        Ok(cut)
    }

    /// It is there before the first node, and to the end.
    async fn let_neighbour_in(&mut self) -> Result<(), Error> {
        if !self.conditions.contains(&FaultKind::Neighbour) {
            return Ok(());
        }
        let notes_to = NoteWriter::in_dir(self.dir.path(), FaultKind::Neighbour.name(), 0)
            .map_err(|error| Error::Failed(format!("no notes: {error}; is the disk full?")))?;
        let store = self.operator.store().clone();
        self.neighbour =
            Neighbour::start(&self.target.url, store, &self.namespace, self.settings.seed, notes_to).await?;
        self.injected.push(InjectedFault {
            kind: FaultKind::Neighbour.name().into(),
            what: FaultKind::Neighbour.about().into(),
            from: lease_now(),
            to: u64::MAX,
            on: FaultScope::Nothing,
            loses: DataLoss::None,
        });
        Ok(())
    }

    async fn tick(&mut self, turn: u64) -> Result<(), Error> {
        self.end_faults(lease_now()).await?;
        while let Some(done) = self.tasks.try_join_next() {
            self.finished(done.map_err(|error| Error::Failed(error.to_string()))??);
        }
        let since = Duration::from_nanos(lease_now().saturating_sub(self.expected.0));
        while self.plan.front().is_some_and(|inject| inject.at <= since) {
            let inject = self.plan.pop_front().expect("it was just seen");
            self.inject(inject).await?;
        }
        if turn.is_multiple_of(READ_TICKS) {
            self.read()?;
            self.restart_exited()?;
            self.observer.progress(since, &self.leaders, &self.injected);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        let notes = self.tail.read_on().map_err(|error| Error::Failed(format!("the notes: {error}")))?;
        for note in &notes {
            if let NoteKind::Act { role, leads: true, .. } = &note.what
                && (0..ROLES).any(|index| member::role(index) == *role)
            {
                self.leaders.insert(role.clone(), (note.node.clone(), note.t));
            }
        }
        self.pile.take(notes);
        Ok(())
    }

    /// Nodes never end by themselves. One that did is told at the end, and started again. Programs may, where the store refuses
    /// them for good as they start, and are only started again.
    fn restart_exited(&mut self) -> Result<(), Error> {
        for (key, words) in self.pool.exited() {
            self.pool.forget(&key);
            let is_program = |node: &usize| programs::names(&name(*node)).contains(&key);
            if let Some(node) = (0..self.settings.nodes).find(is_program) {
                self.start_programs(node, Some(&key))?;
                continue;
            }
            self.exited.push((key.clone(), words));
            if let Some(node) = (0..self.settings.nodes).find(|node| name(*node) == key) {
                self.start_node(node)?;
            }
        }
        Ok(())
    }

    /// Starts a node, and what belongs to it.
    fn start(&mut self, node: usize) -> Result<(), Error> {
        self.start_node(node)?;
        self.start_programs(node, None)
    }

    fn start_node(&mut self, node: usize) -> Result<(), Error> {
        let member = self.member(node);
        self.pool.start(&name(node), member)
    }

    /// Starts the programs of a node, or one of them.
    fn start_programs(&mut self, node: usize, only: Option<&String>) -> Result<(), Error> {
        if node >= programs::NODES || !self.conditions.contains(&FaultKind::Programs) {
            return Ok(());
        }
        let member = self.member(node);
        for (key, args) in programs::of(&member)? {
            if only.is_none_or(|only| *only == key) {
                self.pool.start_program(&key, &args)?;
            }
        }
        Ok(())
    }

    /// Every process of a node.
    fn processes(&self, node: usize) -> Vec<String> {
        let node = name(node);
        programs::names(&node).into_iter().chain([node]).collect()
    }

    /// How a node takes part this time: another start may have other settings and another wrong clock.
    fn member(&mut self, node: usize) -> MemberOptions {
        self.starts += 1;
        let mut random =
            fastrand::Rng::with_seed(self.settings.seed.wrapping_mul(31).wrapping_add(self.starts.into()));
        let mixed = self.conditions.contains(&FaultKind::Mixed);
        let ttl = match random.u8(0..3) {
            0 if mixed => member::SHORTER.apply(self.settings.ttl),
            1 if mixed => member::LONGER.apply(self.settings.ttl),
            _ => self.settings.ttl,
        };
        let has = |kind: FaultKind| self.conditions.contains(&kind);
        let most = self.settings.wall_error();
        let wall = random.i64(-most..=most);
        let rate = if has(FaultKind::Rates) { draw_rate(&mut random) } else { host_clock() };
        let clock = ClockError { wall, ..rate };
        MemberOptions {
            name: name(node),
            life: self.starts,
            dir: self.dir.path().to_owned(),
            store: self.links.url(node),
            namespace: self.namespace.to_string(),
            ttl,
            on_disconnect: mixed && random.u8(0..3) == 0,
            clock,
        }
    }

    async fn inject(&mut self, inject: PlannedFault) -> Result<(), Error> {
        match inject.kind.group() {
            FaultGroup::Store | FaultGroup::Destroy => self.attack_store(inject),
            FaultGroup::Operator if inject.kind != FaultKind::Twin => self.ask(inject),
            _ => return self.attack_node(inject).await,
        }
        Ok(())
    }

    /// The store is attacked in one way at a time; what comes too soon waits.
    fn attack_store(&mut self, inject: PlannedFault) {
        let Some(server) = self.target.server() else { return };
        if self.store_busy {
            let at = inject.at + self.settings.ttl;
            if at + inject.lasts < self.settings.lasts {
                let place = self.plan.partition_point(|other| other.at <= at);
                self.plan.insert(place, PlannedFault { at, ..inject });
            }
            return;
        }
        self.store_busy = true;
        self.observer.fault_injected(&format!("{} of the store", inject.kind.name()));
        let operator = self.operator.clone();
        self.tasks.spawn(async move {
            let mut attack = TargetStore::attack(server.clone(), inject.kind, inject.lasts).await?;
            if attack.injected.loses != DataLoss::None {
                attack.injected.to = wait_until_set_right(&operator).await;
                // Servers that are still turning round may lose something more.
                wait_until_settled(server, &operator).await?;
                attack.settled = Some(lease_now());
            }
            Ok(attack)
        });
    }

    async fn attack_node(&mut self, inject: PlannedFault) -> Result<(), Error> {
        let Some(node) = self.target(inject) else { return Ok(()) };
        let (key, kind, lasts) = (name(node), inject.kind, inject.lasts);
        let from = lease_now();
        let fault_end = match kind {
            FaultKind::Kill => {
                for process in self.processes(node) {
                    self.pool.kill(&process).await;
                }
                FaultEnd::Start(node)
            }
            FaultKind::FreezeShort | FaultKind::FreezeLong => {
                self.processes(node).iter().for_each(|process| self.pool.freeze(process));
                FaultEnd::Thaw(node)
            }
            FaultKind::Suspend => {
                self.processes(node).iter().for_each(|process| self.pool.freeze(process));
                FaultEnd::Resume(node)
            }
            FaultKind::Starve => {
                self.processes(node).iter().for_each(|process| self.pool.starve(process, lasts));
                FaultEnd::Rest(node)
            }
            FaultKind::Twin => {
                let twin = self.member(node);
                self.pool.start(&format!("{key}-twin"), twin)?;
                FaultEnd::EndTwin(node)
            }
            FaultKind::DropHints => {
                let _ = std::fs::File::create(member::hints_off(self.dir.path(), &key));
                FaultEnd::Hear(node)
            }
            _ => {
                self.links.inject(node, kind, self.settings.ttl);
                FaultEnd::HealLink(node)
            }
        };
        self.occupied.insert(node);
        self.fault_ends.push((later(from, lasts), fault_end, self.injected.len()));
        let what = format!("{} of {key}", kind.name());
        self.observer.fault_injected(&what);
        // Without hints everything takes one beat longer, which the bound has in it.
        let on = if kind == FaultKind::DropHints { FaultScope::Nothing } else { FaultScope::Node(key) };
        self.injected.push(InjectedFault {
            kind: kind.name().into(),
            what,
            from,
            to: u64::MAX,
            on,
            loses: DataLoss::None,
        });
        Ok(())
    }

    /// Whom a fault hits: the one that was meant, or the next to whom nothing is being done.
    fn target(&self, inject: PlannedFault) -> Option<usize> {
        let leader = |role: usize| {
            let (node, _) = self.leaders.get(&member::role(role))?;
            (0..self.settings.nodes).find(|index| name(*index) == *node)
        };
        let first = match inject.target {
            FaultTarget::Leader(role) => leader(role).unwrap_or(role % self.settings.nodes),
            FaultTarget::Node(node) => node,
        };
        (0..self.settings.nodes)
            .map(|step| (first + step) % self.settings.nodes)
            .find(|node| !self.occupied.contains(node))
    }

    async fn end_faults(&mut self, now: u64) -> Result<(), Error> {
        let (due, later): (Vec<_>, Vec<_>) = self.fault_ends.drain(..).partition(|(at, ..)| *at <= now);
        self.fault_ends = later;
        for (_, fault_end, index) in due {
            let node = match fault_end {
                FaultEnd::Start(node) => {
                    self.start(node)?;
                    node
                }
                FaultEnd::Thaw(node) => {
                    self.thaw(node);
                    node
                }
                FaultEnd::Resume(node) => {
                    self.resume(node, self.injected[index].from);
                    node
                }
                FaultEnd::HealLink(node) => {
                    self.links.heal(node);
                    node
                }
                FaultEnd::EndTwin(node) => {
                    self.pool.kill(&format!("{}-twin", name(node))).await;
                    node
                }
                FaultEnd::Hear(node) => {
                    let _ = std::fs::remove_file(member::hints_off(self.dir.path(), &name(node)));
                    node
                }
                FaultEnd::Rest(node) => node,
            };
            self.occupied.remove(&node);
            self.injected[index].to = lease_now();
        }
        Ok(())
    }

    fn thaw(&self, node: usize) {
        self.processes(node).iter().for_each(|process| self.pool.thaw(process));
    }

    /// A machine that was suspended goes on. Its timers know nothing of the time in between.
    fn resume(&self, node: usize, since: u64) {
        let file = member::suspended(self.dir.path(), &name(node));
        let before: u64 = std::fs::read_to_string(&file).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let _ = std::fs::write(&file, (before + lease_now().saturating_sub(since)).to_string());
        self.thaw(node);
    }

    fn finished(&mut self, AttackOutcome { injected, settled, of_store, failed }: AttackOutcome) {
        self.store_busy &= !of_store;
        self.failed.extend(failed);
        let settling = settled.map(|to| InjectedFault {
            kind: SETTLING.into(),
            what: format!("{}, whose servers may turn round once more", injected.what),
            from: injected.to,
            to,
            on: FaultScope::Nothing,
            ..injected
        });
        self.injected.push(injected);
        self.injected.extend(settling);
    }

    /// An operator does something, on a connection without faults.
    fn ask(&mut self, inject: PlannedFault) {
        let node = self.target(inject).map_or_else(|| name(0), name);
        self.observer.fault_injected(&format!("{} ({})", inject.kind.name(), member::role(inject.role)));
        let operator = self.operator.clone();
        self.tasks.spawn(async move {
            let injected = operate(operator, inject, node).await;
            Ok(AttackOutcome { injected, settled: None, of_store: false, failed: None })
        });
    }

    /// Ends every fault, and waits until it has ended.
    async fn heal(&mut self) -> Result<(), Error> {
        self.end_faults(u64::MAX).await?;
        while let Some(done) = self.tasks.join_next().await {
            self.finished(done.map_err(|error| Error::Failed(error.to_string()))??);
        }
        Ok(())
    }

    /// Waits until every role was led after `since`; at the end of patience the judge will say that it was not.
    async fn until_led(&mut self, since: u64) -> Result<(), Error> {
        let limit = later(since, PATIENCE);
        while lease_now() < limit && !(self.expected.0 == 0 && self.stop.is_received()) {
            self.read()?;
            self.restart_exited()?;
            if self.leaders.len() == ROLES && self.leaders.values().all(|(_, at)| *at > since) {
                return Ok(());
            }
            tokio::time::sleep(TICK).await;
        }
        if self.expected.0 == 0 {
            if self.stop.is_received() {
                return Err(Error::Failed("ended before a node was elected".to_owned()));
            }
            let words =
                self.exited.first().map(|(key, words)| format!("; {key}: {words}")).unwrap_or_default();
            return Err(Error::Failed(format!("no node was elected in {PATIENCE:?}{words}")));
        }
        Ok(())
    }

    fn record(self, unable: Vec<(FaultKind, &'static str)>, cut_short: bool) -> TortureRecord {
        let mut injected = self.injected;
        injected.iter_mut().filter(|fault| fault.to == u64::MAX).for_each(|fault| fault.to = self.expected.1);
        if self.target.class == Class::C && self.target.server().is_none() {
            // A store of the user's own may fail over, and forget, without being attacked, and torture would not know when.
            injected.push(InjectedFault {
                kind: "class-c".into(),
                what: "a store that can forget".into(),
                from: 0,
                to: u64::MAX,
                on: FaultScope::Nothing,
                loses: DataLoss::Newest,
            });
        }
        let unordered = unordered(&injected, self.target.failovers());
        injected.extend(unordered.into_iter().map(|at| InjectedFault {
            kind: "failover".into(),
            what: "a fail-over that the torture did not cause".into(),
            from: at.saturating_sub(later(0, UNSEEN)),
            to: at,
            on: FaultScope::Store,
            loses: DataLoss::Newest,
        }));
        injected.sort_by_key(|fault| fault.from);
        TortureRecord {
            settings: self.settings,
            store: self.target.name(),
            about: self.target.about,
            class: self.target.class,
            reads_lag: self.target.reads_lag,
            unable,
            failed: self.failed,
            acts: self.pile.acts(),
            notes: self.pile.into_notes(),
            injected,
            expected: self.expected,
            exited: self.exited,
            dir: self.dir,
            cut_short,
        }
    }
}

/// Fast or slow, as much as a clock may be or less.
fn draw_rate(random: &mut fastrand::Rng) -> ClockError {
    const MOST: i32 = 9_900;
    let between = random.i32(-MOST..=MOST);
    let rate_ppm = random.choice([-MOST, MOST, between]).expect("there are three");
    ClockError { rate_ppm, origin: random.u64(1 << 30..1 << 50), wall: 0 }
}

fn host_clock() -> ClockError {
    ClockError { origin: lease_now(), ..ClockError::default() }
}

fn later(at: u64, span: Duration) -> u64 {
    at.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// What an operator does. What was paused or drained is put right again, however often that has to be tried.
async fn operate(operator: Operator, inject: PlannedFault, node: String) -> InjectedFault {
    let (role, node) =
        (Name::new(member::role(inject.role)).expect("a name"), Name::new(node).expect("a name"));
    let (from, limit, kind) = (lease_now(), 3 * inject.lasts + Duration::from_secs(2), inject.kind);
    let on = match kind {
        FaultKind::Transfer => {
            let _ = operator.transfer(&role, &node, "torture", limit / 2, limit).await;
            FaultScope::Nothing
        }
        FaultKind::StepDown => {
            let _ = operator.step_down(&role, "torture", limit).await;
            FaultScope::Nothing
        }
        FaultKind::Pause => {
            let _ = operator.pause(&role, "torture", inject.lasts).await;
            tokio::time::sleep(inject.lasts).await;
            retry(|| operator.resume(&role, "torture")).await;
            FaultScope::Role(role.to_string())
        }
        FaultKind::Drain => {
            let _ = operator.drain(&node, true, "torture").await;
            tokio::time::sleep(inject.lasts).await;
            retry(|| operator.drain(&node, false, "torture")).await;
            FaultScope::Node(node.to_string())
        }
        other => unreachable!("{} is no fault of operators", other.name()),
    };
    let what = match kind {
        FaultKind::Drain => format!("drain of {node}"),
        FaultKind::Transfer => format!("transfer of {role} to {node}"),
        _ => format!("{} of {role}", kind.name()),
    };
    InjectedFault { kind: kind.name().into(), what, from, to: lease_now(), on, loses: DataLoss::None }
}

/// What asks the store, over and over.
fn start_probes(
    store: &SharedStore,
    namespace: &Name,
    notes_to: &NoteWriter,
    can_forget: bool,
) -> Vec<JoinHandle<()>> {
    let ledgers = Operator::new(store.clone(), namespace.clone(), "torture");
    let mut started = vec![
        tokio::spawn(probes::time_answers(store.clone(), namespace.clone(), notes_to.clone())),
        tokio::spawn(probes::note_ledgers(ledgers, notes_to.clone())),
    ];
    if can_forget {
        let roles = probes::note_program_roles(store.clone(), namespace.clone(), notes_to.clone());
        started.push(tokio::spawn(roles));
    }
    started
}

/// Of the fail-overs that were seen, those that the torture did not cause: each of its own is seen once, until servers have settled.
fn unordered(injected: &[InjectedFault], mut seen: Vec<u64>) -> Vec<u64> {
    let settled = |fault: &InjectedFault| {
        let settling = injected.iter().find(|next| next.kind == SETTLING && next.from == fault.to);
        (fault.from, settling.map_or(fault.to, |settling| settling.to))
    };
    let own = injected.iter().filter(|fault| fault.loses != DataLoss::None && fault.kind != SETTLING);
    let mut own: Vec<(u64, u64)> = own.map(settled).collect();
    seen.retain(|at| {
        let place = own.iter().position(|span| span.0 <= *at && *at <= span.1);
        place.map(|place| own.remove(place)).is_none()
    });
    seen
}

/// Sets right what a store may have forgotten, as soon as it can be asked; tells when that was.
async fn wait_until_set_right(operator: &Operator) -> u64 {
    while !undo_operator_actions(operator).await {
        tokio::time::sleep(TICK).await;
    }
    lease_now()
}

/// Sets right what a store may have forgotten, until it has come to rest.
async fn wait_until_settled(
    server: Arc<Mutex<Box<dyn AttackedServer>>>,
    operator: &Operator,
) -> Result<(), Error> {
    loop {
        let settled = TargetStore::is_settled(server.clone()).await?;
        if undo_operator_actions(operator).await && settled {
            return Ok(());
        }
        tokio::time::sleep(5 * TICK).await;
    }
}

/// What a store forgot may be that a pause or a drain was taken back; the operator looks, and does it again. Tells whether
/// it could look.
async fn undo_operator_actions(operator: &Operator) -> bool {
    let Ok(found) = operator.snapshot().await else { return false };
    for report in found.roles.iter().filter(|report| report.paused.is_some()) {
        retry(|| operator.resume(&report.role, "torture")).await;
    }
    for report in found.nodes.iter().filter(|report| report.drained.is_some()) {
        retry(|| operator.drain(&report.node, false, "torture")).await;
    }
    true
}

/// Asks until the store has answered.
async fn retry<T, A: Future<Output = Result<T, tenure::Error>>>(ask: impl Fn() -> A) {
    while matches!(ask().await, Err(tenure::Error::Store(_) | tenure::Error::Contended(_))) {
        tokio::time::sleep(TICK).await;
    }
}
