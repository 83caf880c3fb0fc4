//! The nemesis: carries the plan out, and keeps the record of what it did and of what it saw.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tenure::store::{Class, Key, Query};
use tenure::{Name, Operator, SharedStore, Timing};
use tenure_testkit::judge::{self, Case, Injected, Meter, Note, On, Pen, Pile, Tail, Terms, Verdict, What};
use tokio::task::{JoinHandle, JoinSet};

use super::board::Board;
use super::crew::Crew;
use super::fault::{Group, Kind};
use super::ground::{Attack, Attacked, Ground};
use super::links::Links;
use super::member::{self, Member};
use super::plan::{Strike, Target};
use super::{ROLES, Settings, Stop, fence, member::name};
use crate::exit::Exit;
use crate::process::clock::lease_now;

/// How often chores are looked at, and after how many looks notes are read.
const TICK: Duration = Duration::from_millis(20);
const READ_TICKS: u64 = 10;

/// How long the first leaders, and the last, may take on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(90);

/// Everything that a torture leaves behind.
pub(super) struct Record {
    pub(super) settings: Settings,
    pub(super) store: &'static str,
    pub(super) about: String,
    pub(super) class: Class,
    pub(super) unable: Vec<(Kind, &'static str)>,
    /// What was tried and could not be done, each time.
    pub(super) failed: Vec<(Kind, String)>,
    pub(super) notes: Vec<Note>,
    pub(super) acts: u64,
    pub(super) injected: Vec<Injected>,
    /// When leaders were expected.
    pub(super) expected: (u64, u64),
    /// Processes that ended by themselves, with their last words.
    pub(super) fallen: Vec<(String, String)>,
    /// Where the notes are.
    pub(super) dir: TempDir,
    /// Whether somebody ended it before its time.
    pub(super) cut_short: bool,
}

impl Record {
    /// Who leads no more is replaced within this.
    pub(super) fn bound(&self) -> Duration {
        let settings =
            tenure::Settings { ttl: Some(self.settings.longest_ttl()), ..tenure::Settings::default() };
        Timing::new(&settings).map_or(Duration::ZERO, |timing| timing.bounds().crash)
    }

    /// What it proves.
    pub(super) fn judge(&self) -> Verdict {
        let terms = Terms {
            bound: self.bound(),
            allowance: self.settings.allowance,
            recovery: self.settings.recovery(),
            wind_down: Duration::from_secs(5) + self.settings.allowance,
            expected: self.expected,
        };
        judge::judge(&Case { notes: self.notes.clone(), injected: self.injected.clone(), terms })
    }
}

/// Tortures.
pub(super) async fn torture(
    settings: &Settings,
    ground: Ground,
    able: &[Kind],
    unable: &[(Kind, &'static str)],
    plan: Vec<Strike>,
    stop: Stop,
) -> Result<Record, Exit> {
    let mut nemesis = Nemesis::begin(settings, ground, able, plan, stop)?;
    let ended = nemesis.run().await;
    nemesis.crew.dismiss().await;
    // An attack that still goes on has the servers in its hands, and whoever leaves now leaves them behind.
    while nemesis.tasks.join_next().await.is_some() {}
    nemesis.probe.abort();
    nemesis.operator.store().close().await;
    nemesis.read()?;
    let cut_short = ended?;
    Ok(nemesis.record(unable, cut_short))
}

/// What is to be done later, to end a fault.
#[derive(Debug, Clone, Copy)]
enum Chore {
    Start(usize),
    Thaw(usize),
    HealLink(usize),
    EndTwin(usize),
    Hear(usize),
    Rest(usize),
}

struct Nemesis {
    settings: Settings,
    dir: TempDir,
    ground: Ground,
    crew: Crew,
    links: Links,
    conditions: Vec<Kind>,
    namespace: Name,
    operator: Operator,
    plan: VecDeque<Strike>,
    injected: Vec<Injected>,
    /// When a fault ends, how, and which one it is.
    chores: Vec<(u64, Chore, usize)>,
    /// Attacks on the store, and what operators do.
    tasks: JoinSet<Result<Attack, Exit>>,
    failed: Vec<(Kind, String)>,
    stop: Stop,
    store_busy: bool,
    occupied: BTreeSet<usize>,
    /// How many processes there were.
    starts: u32,
    tail: Tail,
    pile: Pile,
    /// Who was last seen to lead a role, and when.
    leaders: BTreeMap<String, (String, u64)>,
    fallen: Vec<(String, String)>,
    expected: (u64, u64),
    board: Board,
    probe: JoinHandle<()>,
    /// Stall measurements, for as long as the torture lasts.
    _meter: Meter,
}

impl Nemesis {
    fn begin(
        settings: &Settings,
        ground: Ground,
        able: &[Kind],
        plan: Vec<Strike>,
        stop: Stop,
    ) -> Result<Self, Exit> {
        let failed = |error: std::io::Error| Exit::Failed(format!("no temporary files: {error}; set TMPDIR"));
        let dir = tempfile::Builder::new().prefix("tenure-torture-").tempdir().map_err(failed)?;
        let namespace = Name::new(format!("torture-{}", settings.seed)).expect("a name");
        let store = tenure::store::open(&ground.url)?;
        let pen = Pen::in_dir(dir.path(), "nemesis", 0).map_err(failed)?;
        let disk = std::fs::File::create(dir.path().join("disk")).map_err(failed)?;
        let meter = Meter::start(&pen, Some(disk));
        let probe = tokio::spawn(probe(store.clone(), namespace.clone(), pen));
        fence::serve(dir.path()).map_err(failed)?;
        Ok(Self {
            settings: settings.clone(),
            crew: Crew::new(dir.path()),
            links: Links::to(&ground.url, settings.nodes),
            tail: Tail::of(dir.path()),
            operator: Operator::new(store, namespace.clone(), "torture"),
            board: Board::new(settings, &ground),
            dir,
            ground,
            conditions: able.iter().copied().filter(|kind| kind.is_condition()).collect(),
            namespace,
            plan: plan.into(),
            injected: Vec::new(),
            chores: Vec::new(),
            tasks: JoinSet::new(),
            failed: Vec::new(),
            stop,
            store_busy: false,
            occupied: BTreeSet::new(),
            starts: 0,
            pile: Pile::default(),
            leaders: BTreeMap::new(),
            fallen: Vec::new(),
            expected: (0, 0),
            probe,
            _meter: meter,
        })
    }

    /// True if it was cut short.
    async fn run(&mut self) -> Result<bool, Exit> {
        for node in 0..self.settings.nodes {
            self.start(node)?;
        }
        self.until_led(lease_now()).await?;
        self.expected.0 = lease_now();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (ends, mut turn) = (later(self.expected.0, self.settings.lasts), 0_u64);
        while lease_now() < ends && !self.stop.is_asked() {
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

    async fn tick(&mut self, turn: u64) -> Result<(), Exit> {
        self.end_faults(lease_now()).await?;
        while let Some(done) = self.tasks.try_join_next() {
            self.finished(done.map_err(|error| Exit::Failed(error.to_string()))??);
        }
        let since = Duration::from_nanos(lease_now().saturating_sub(self.expected.0));
        while self.plan.front().is_some_and(|strike| strike.at <= since) {
            let strike = self.plan.pop_front().expect("it was just seen");
            self.strike(strike).await?;
        }
        if turn.is_multiple_of(READ_TICKS) {
            self.read()?;
            self.raise_the_fallen()?;
            self.board.show(since, &self.leaders, &self.injected);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Exit> {
        let notes = self.tail.read_on().map_err(|error| Exit::Failed(format!("the notes: {error}")))?;
        for note in &notes {
            if let What::Act { role, leads: true, .. } = &note.what {
                self.leaders.insert(role.clone(), (note.node.clone(), note.t));
            }
        }
        self.pile.take(notes);
        Ok(())
    }

    /// Processes never end by themselves. One that did is told at the end, and started again.
    fn raise_the_fallen(&mut self) -> Result<(), Exit> {
        for (key, words) in self.crew.fallen() {
            self.crew.forget(&key);
            self.fallen.push((key.clone(), words));
            if let Some(node) = (0..self.settings.nodes).find(|node| name(*node) == key) {
                self.start(node)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, node: usize) -> Result<(), Exit> {
        let member = self.member(node);
        self.crew.start(&name(node), &member)
    }

    /// How a node takes part this time: another start may have other settings and another wrong clock.
    fn member(&mut self, node: usize) -> Member {
        self.starts += 1;
        let mut random =
            fastrand::Rng::with_seed(self.settings.seed.wrapping_mul(31).wrapping_add(self.starts.into()));
        let mixed = self.conditions.contains(&Kind::Mixed);
        let ttl = match random.u8(0..3) {
            0 if mixed => member::SHORTER.apply(self.settings.ttl),
            1 if mixed => member::LONGER.apply(self.settings.ttl),
            _ => self.settings.ttl,
        };
        let hour = random.i64(-3_600..=3_600);
        Member {
            name: name(node),
            life: self.starts,
            dir: self.dir.path().to_owned(),
            store: self.links.url(node),
            namespace: self.namespace.to_string(),
            ttl,
            on_disconnect: mixed && random.u8(0..3) == 0,
            wall: if self.conditions.contains(&Kind::Clocks) { hour } else { 0 },
        }
    }

    async fn strike(&mut self, strike: Strike) -> Result<(), Exit> {
        match strike.kind.group() {
            Group::Store | Group::Destroy => self.strike_store(strike),
            Group::Operator if strike.kind != Kind::Twin => self.ask(strike),
            _ => return self.strike_node(strike).await,
        }
        Ok(())
    }

    /// The store is attacked in one way at a time; what comes too soon waits.
    fn strike_store(&mut self, strike: Strike) {
        let Some(server) = self.ground.server() else { return };
        if self.store_busy {
            let at = strike.at + self.settings.ttl;
            if at + strike.lasts < self.settings.lasts {
                let place = self.plan.partition_point(|other| other.at <= at);
                self.plan.insert(place, Strike { at, ..strike });
            }
            return;
        }
        self.store_busy = true;
        self.board.tell(&format!("{} of the store", strike.kind.name()));
        let operator = self.operator.clone();
        self.tasks.spawn(async move {
            let attack = Ground::attack(server.clone(), strike.kind, strike.lasts).await?;
            if attack.injected.destroys {
                settle(server, &operator).await?;
            }
            Ok(attack)
        });
    }

    async fn strike_node(&mut self, strike: Strike) -> Result<(), Exit> {
        let Some(node) = self.target(strike) else { return Ok(()) };
        let (key, kind, lasts) = (name(node), strike.kind, strike.lasts);
        let from = lease_now();
        let chore = match kind {
            Kind::Kill => {
                self.crew.kill(&key).await;
                Chore::Start(node)
            }
            Kind::FreezeShort | Kind::FreezeLong => {
                self.crew.freeze(&key);
                Chore::Thaw(node)
            }
            Kind::Starve => {
                self.crew.starve(&key, lasts);
                Chore::Rest(node)
            }
            Kind::Twin => {
                let twin = self.member(node);
                self.crew.start(&format!("{key}-twin"), &twin)?;
                Chore::EndTwin(node)
            }
            Kind::DropHints => {
                let _ = std::fs::File::create(member::deaf(self.dir.path(), &key));
                Chore::Hear(node)
            }
            _ => {
                self.links.strike(node, kind, self.settings.ttl);
                Chore::HealLink(node)
            }
        };
        self.occupied.insert(node);
        self.chores.push((later(from, lasts), chore, self.injected.len()));
        let what = format!("{} of {key}", kind.name());
        self.board.tell(&what);
        // Without hints everything takes one beat longer, which the bound has in it.
        let on = if kind == Kind::DropHints { On::Nothing } else { On::Node(key) };
        self.injected.push(Injected {
            kind: kind.name().into(),
            what,
            from,
            to: u64::MAX,
            on,
            destroys: false,
        });
        Ok(())
    }

    /// Whom a fault hits: the one that was meant, or the next to whom nothing is being done.
    fn target(&self, strike: Strike) -> Option<usize> {
        let leader = |role: usize| {
            let (node, _) = self.leaders.get(&member::role(role))?;
            (0..self.settings.nodes).find(|index| name(*index) == *node)
        };
        let first = match strike.target {
            Target::Leader(role) => leader(role).unwrap_or(role % self.settings.nodes),
            Target::Node(node) => node,
        };
        (0..self.settings.nodes)
            .map(|step| (first + step) % self.settings.nodes)
            .find(|node| !self.occupied.contains(node))
    }

    async fn end_faults(&mut self, now: u64) -> Result<(), Exit> {
        let (due, later): (Vec<_>, Vec<_>) = self.chores.drain(..).partition(|(at, ..)| *at <= now);
        self.chores = later;
        for (_, chore, index) in due {
            let node = match chore {
                Chore::Start(node) => {
                    self.start(node)?;
                    node
                }
                Chore::Thaw(node) => {
                    self.crew.thaw(&name(node));
                    node
                }
                Chore::HealLink(node) => {
                    self.links.heal(node);
                    node
                }
                Chore::EndTwin(node) => {
                    self.crew.kill(&format!("{}-twin", name(node))).await;
                    node
                }
                Chore::Hear(node) => {
                    let _ = std::fs::remove_file(member::deaf(self.dir.path(), &name(node)));
                    node
                }
                Chore::Rest(node) => node,
            };
            self.occupied.remove(&node);
            self.injected[index].to = lease_now();
        }
        Ok(())
    }

    fn finished(&mut self, Attack { injected, failed }: Attack) {
        self.store_busy &= injected.on != On::Store;
        self.failed.extend(failed);
        self.injected.push(injected);
    }

    /// An operator does something, on a connection that nobody troubles.
    fn ask(&mut self, strike: Strike) {
        let node = self.target(strike).map_or_else(|| name(0), name);
        self.board.tell(&format!("{} ({})", strike.kind.name(), member::role(strike.role)));
        let operator = self.operator.clone();
        self.tasks.spawn(async move {
            let injected = operate(operator, strike, node).await;
            Ok(Attack { injected, failed: None })
        });
    }

    /// Ends every fault, and waits until it has ended.
    async fn heal(&mut self) -> Result<(), Exit> {
        self.end_faults(u64::MAX).await?;
        while let Some(done) = self.tasks.join_next().await {
            self.finished(done.map_err(|error| Exit::Failed(error.to_string()))??);
        }
        Ok(())
    }

    /// Waits until every role was led after `since`; at the end of patience the judge will say that it was not.
    async fn until_led(&mut self, since: u64) -> Result<(), Exit> {
        let limit = later(since, PATIENCE);
        while lease_now() < limit && !(self.expected.0 == 0 && self.stop.is_asked()) {
            self.read()?;
            self.raise_the_fallen()?;
            if self.leaders.len() == ROLES && self.leaders.values().all(|(_, at)| *at > since) {
                return Ok(());
            }
            tokio::time::sleep(TICK).await;
        }
        if self.expected.0 == 0 {
            if self.stop.is_asked() {
                return Err(Exit::Failed("ended before anybody was elected".to_owned()));
            }
            let words =
                self.fallen.first().map(|(key, words)| format!("; {key}: {words}")).unwrap_or_default();
            return Err(Exit::Failed(format!("nobody was elected in {PATIENCE:?}{words}")));
        }
        Ok(())
    }

    fn record(self, unable: &[(Kind, &'static str)], cut_short: bool) -> Record {
        let mut injected = self.injected;
        injected.iter_mut().filter(|fault| fault.to == u64::MAX).for_each(|fault| fault.to = self.expected.1);
        if self.ground.class == Class::C {
            // Its servers may fail over, and forget, whenever they think that they should.
            injected.push(Injected {
                kind: "class-c".into(),
                what: "a store that can forget".into(),
                from: 0,
                to: u64::MAX,
                on: On::Nothing,
                destroys: true,
            });
        }
        injected.sort_by_key(|fault| fault.from);
        Record {
            settings: self.settings,
            store: self.ground.name(),
            about: self.ground.about,
            class: self.ground.class,
            unable: unable.to_vec(),
            failed: self.failed,
            acts: self.pile.acts(),
            notes: self.pile.into_notes(),
            injected,
            expected: self.expected,
            fallen: self.fallen,
            dir: self.dir,
            cut_short,
        }
    }
}

fn later(at: u64, span: Duration) -> u64 {
    at.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// What an operator does. What was paused or drained is put right again, however often that has to be tried.
async fn operate(operator: Operator, strike: Strike, node: String) -> Injected {
    let (role, node) =
        (Name::new(member::role(strike.role)).expect("a name"), Name::new(node).expect("a name"));
    let (from, limit, kind) = (lease_now(), 3 * strike.lasts + Duration::from_secs(2), strike.kind);
    let on = match kind {
        Kind::Transfer => {
            let _ = operator.transfer(&role, &node, "torture", limit / 2, limit).await;
            On::Nothing
        }
        Kind::StepDown => {
            let _ = operator.step_down(&role, "torture", limit).await;
            On::Nothing
        }
        Kind::Pause => {
            let _ = operator.pause(&role, "torture", strike.lasts).await;
            tokio::time::sleep(strike.lasts).await;
            insist(|| operator.resume(&role, "torture")).await;
            On::Role(role.to_string())
        }
        _ => {
            let _ = operator.drain(&node, true, "torture").await;
            tokio::time::sleep(strike.lasts).await;
            insist(|| operator.drain(&node, false, "torture")).await;
            On::Node(node.to_string())
        }
    };
    let what = match kind {
        Kind::Drain => format!("drain of {node}"),
        Kind::Transfer => format!("transfer of {role} to {node}"),
        _ => format!("{} of {role}", kind.name()),
    };
    Injected { kind: kind.name().into(), what, from, to: lease_now(), on, destroys: false }
}

/// Sets right what a store may have forgotten, until it has come to rest.
async fn settle(server: Arc<Mutex<Box<dyn Attacked>>>, operator: &Operator) -> Result<(), Exit> {
    loop {
        let settled = Ground::is_settled(server.clone()).await?;
        if set_right(operator).await && settled {
            return Ok(());
        }
        tokio::time::sleep(5 * TICK).await;
    }
}

/// What a store forgot may be that a pause or a drain was taken back; whoever did so looks, and does it again. Tells whether
/// it could look.
async fn set_right(operator: &Operator) -> bool {
    let Ok(found) = operator.snapshot().await else { return false };
    for report in found.roles.iter().filter(|report| report.paused.is_some()) {
        insist(|| operator.resume(&report.role, "torture")).await;
    }
    for report in found.nodes.iter().filter(|report| report.drained.is_some()) {
        insist(|| operator.drain(&report.node, false, "torture")).await;
    }
    true
}

/// Asks until the store has answered.
async fn insist<T, A: Future<Output = Result<T, tenure::Error>>>(ask: impl Fn() -> A) {
    while matches!(ask().await, Err(tenure::Error::Store(_) | tenure::Error::Contended(_))) {
        tokio::time::sleep(TICK).await;
    }
}

/// Asks the store over and over, on a connection that nobody troubles: when it is slow to answer, so it is to nodes.
async fn probe(store: SharedStore, namespace: Name, pen: Pen) {
    const SLOW: u64 = 50_000_000;
    let query = Query { keys: vec![Key::Cluster], kinds: Vec::new() };
    loop {
        let from = lease_now();
        let answer = tokio::time::timeout(Duration::from_secs(2), store.read(&namespace, &query)).await;
        if lease_now() - from > SLOW || !matches!(answer, Ok(Ok(_))) {
            pen.note(What::Stalled { from });
        }
        tokio::time::sleep(TICK).await;
    }
}
