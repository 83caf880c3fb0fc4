//! The play: starts the members, lets the nemesis loose, shows what happens, and ends with the verdict.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::store::Sqlite;
use tenure::{Bounds, Name, Operator};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::board::{self, View};
use super::cast::{self, Cast, News};
use super::keys::{self, Wish};
use super::nemesis::{Act, Nemesis};
use super::verdict::Verdict;
use super::witness::{Reading, Witness};
use super::world::{Happening, Health, World};
use super::{SCHEDULER, roles, timing};
use crate::exit::Exit;
use crate::output::screen::Screen;
use crate::process::clock::lease_now;

/// How often the board is drawn, and chores are looked at.
const TICK: Duration = Duration::from_millis(100);

/// How many ticks between two looks at the witness files.
const WITNESS_TICKS: u64 = 5;

/// How long after the last one joined all have seen each other's beats move, and roles that fall free spread.
const ACQUAINTED: Duration = Duration::from_millis(800);

/// How long a dead member stays away.
const AWAY: Duration = Duration::from_millis(1_500);

/// How long the nemesis rests when somebody watches, and when somebody waits.
const PAUSE: Duration = Duration::from_millis(2_500);
const SHORT_PAUSE: Duration = Duration::from_millis(1_000);

/// A demo that is shorter than this must hurry.
const SHORT: Duration = Duration::from_secs(20);

/// Plays until the time is over, the viewer leaves or a signal comes.
pub(super) async fn play(nodes: u8, lasts: Option<Duration>, board: bool) -> Result<Exit, Exit> {
    let mut stage = Stage::build(nodes, lasts)?;
    let screen = if board { Some(take_screen()?) } else { None };
    let ended = stage.run(screen).await;
    stage.cast.dismiss().await;
    stage.listen_out();
    stage.read_witnesses()?;
    stage.operator.store().close().await;
    if ended.is_ok() {
        say(&stage.verdict.text());
    }
    ended.map(|whole| stage.verdict.exit(whole))
}

fn take_screen() -> Result<Screen<Wish>, Exit> {
    Screen::take(keys::meaning)
        .map_err(|error| Exit::Failed(format!("no board on this terminal: {error}; try --no-tty")))
}

/// What is to be done later.
#[derive(Debug, Clone)]
enum Chore {
    Restart(Name),
    Wake(Name),
    Spread,
}

struct Stage {
    dir: TempDir,
    world: World,
    cast: Cast,
    news: UnboundedReceiver<News>,
    tell: UnboundedSender<News>,
    nemesis: Nemesis,
    chores: Vec<(u64, Chore)>,
    witness: Witness,
    readings: Vec<Reading>,
    operator: Operator,
    bounds: Bounds,
    verdict: Verdict,
    ends: u64,
    /// Whether the first leader was asked to leave roles to others.
    spread: bool,
    /// Who held what at the last tick, and whether it was told; none where a board shows it.
    plain: Option<(String, bool)>,
}

impl Stage {
    fn build(nodes: u8, lasts: Option<Duration>) -> Result<Self, Exit> {
        let dir = tempfile::Builder::new().prefix("tenure-demo-").tempdir();
        let dir =
            dir.map_err(|error| Exit::Failed(format!("no temporary directory: {error}; set TMPDIR")))?;
        let store = Arc::new(Sqlite::open(cast::store_file(dir.path()))?);
        let names: Vec<Name> =
            (1..=nodes).map(|number| format!("node-{number}").parse().expect("a name")).collect();
        let (tell, news) = unbounded_channel();
        let began = lease_now();
        let main = Name::new(SCHEDULER).expect("a name");
        let namespace = Name::new(tenure::DEFAULT_NAMESPACE).expect("a name");
        let hurry = lasts.is_some_and(|lasts| lasts < SHORT);
        Ok(Self {
            world: World::new(began, &names, main),
            cast: Cast::new(dir.path().to_owned(), tell.clone()),
            dir,
            news,
            tell,
            nemesis: Nemesis::new(if hurry { SHORT_PAUSE } else { PAUSE }),
            chores: Vec::new(),
            witness: Witness::default(),
            readings: Vec::new(),
            operator: Operator::new(store, namespace, "demo"),
            verdict: Verdict::new(&[], &Witness::default(), &timing().bounds()),
            bounds: timing().bounds(),
            ends: lasts.map_or(u64::MAX, |lasts| later(began, lasts)),
            spread: false,
            plain: None,
        })
    }

    /// True if it was not cut short.
    async fn run(&mut self, mut screen: Option<Screen<Wish>>) -> Result<bool, Exit> {
        self.plain = screen.is_none().then(|| (String::new(), true));
        for node in self.world.players.iter().map(|player| player.name.clone()).collect::<Vec<_>>() {
            self.start(&node)?;
        }
        let mut signals = Signals::listen()?;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn = 0_u64;
        while lease_now() < self.ends {
            match self.next(&mut ticks, &mut signals, screen.as_mut()).await {
                Next::News(news) => self.hear(news)?,
                Next::Wish(Wish::Quit) | Next::Signal => return Ok(false),
                Next::Wish(wish) => self.grant(wish),
                Next::Tick => {
                    turn += 1;
                    self.tick(turn)?;
                    self.draw(screen.as_mut())?;
                }
            }
        }
        Ok(self.ends > 0)
    }

    async fn next(
        &mut self,
        ticks: &mut Interval,
        signals: &mut Signals,
        screen: Option<&mut Screen<Wish>>,
    ) -> Next {
        let wish = async {
            match screen {
                Some(screen) => screen.wishes.recv().await.unwrap_or(Wish::Quit),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signals.any() => Next::Signal,
            Some(news) = self.news.recv() => Next::News(news),
            wish = wish => Next::Wish(wish),
            _ = ticks.tick() => Next::Tick,
        }
    }

    fn tick(&mut self, turn: u64) -> Result<(), Exit> {
        let now = lease_now();
        self.do_chores(now)?;
        if turn.is_multiple_of(WITNESS_TICKS) {
            self.read_witnesses()?;
        }
        self.tell_spread();
        let (live, frozen) = (self.world.count(Health::Live), self.world.count(Health::Frozen));
        let calm = self.spread && self.world.leader().is_some() && live > 1 && frozen == 0;
        let left = Duration::from_nanos(self.ends.saturating_sub(now));
        if let Some(act) = self.nemesis.next(now, calm, left) {
            self.act(act);
        }
        Ok(())
    }

    fn do_chores(&mut self, now: u64) -> Result<(), Exit> {
        let (due, later): (Vec<_>, Vec<_>) = self.chores.drain(..).partition(|(at, _)| *at <= now);
        self.chores = later;
        for (_, chore) in due {
            match chore {
                Chore::Restart(node) => self.start(&node)?,
                Chore::Wake(node) => {
                    let at = self.cast.wake(&node);
                    self.happen(at, Happening::Woken { node });
                }
                Chore::Spread => self.spread(),
            }
        }
        Ok(())
    }

    fn start(&mut self, node: &Name) -> Result<(), Exit> {
        let pid = self.cast.start(node)?;
        self.readings.push(Reading::new(self.dir.path(), node, pid));
        self.happen(lease_now(), Happening::Started { node: node.clone(), pid });
        Ok(())
    }

    fn grant(&mut self, wish: Wish) {
        match wish {
            Wish::See(act) => {
                self.nemesis.rest(lease_now());
                self.act(act);
            }
            Wish::Rest => self.nemesis.resting = !self.nemesis.resting,
            Wish::Quit => {}
        }
    }

    /// Does something to the leader, if there is one and somebody else could lead.
    fn act(&mut self, act: Act) {
        let Some(node) = self.world.leader().map(|term| term.node.clone()) else {
            let why = "nobody leads at this moment; wait until somebody does".to_owned();
            return self.happen(lease_now(), Happening::Refused { why });
        };
        match act {
            Act::Kill => {
                let at = self.cast.kill(&node);
                self.happen(at, Happening::Killed { node });
            }
            Act::Freeze => {
                let at = self.cast.freeze(&node);
                let wake = later(at, self.bounds.crash + Duration::from_millis(700));
                self.chores.push((wake, Chore::Wake(node.clone())));
                self.happen(at, Happening::Frozen { node });
            }
            Act::HandOver => self.hand_over(node),
        }
    }

    /// The first that came took every role. It is asked to step down from all but one, as `tenure step-down` does it:
    /// then they spread over the others.
    fn spread(&mut self) {
        self.spread = true;
        let Some(from) = self.world.leader().map(|term| term.node.clone()) else { return };
        for role in roles().into_iter().skip(1) {
            let operator = self.operator.clone();
            // A role that somebody else holds already has spread.
            tokio::spawn(async move { operator.step_down(&role, "spread", Duration::from_secs(4)).await });
        }
        self.happen(lease_now(), Happening::Spread { from });
    }

    /// As `tenure transfer` does it.
    fn hand_over(&mut self, from: Name) {
        let able = |name: &&Name| **name != from;
        let live = self.world.players.iter().filter(|player| player.health() == Health::Live);
        let Some(to) = live.map(|player| &player.name).filter(able).min_by_key(|name| self.last_led(name))
        else {
            return;
        };
        let (to, role) = (to.clone(), self.world.main_role().clone());
        let (operator, tell, target) = (self.operator.clone(), self.tell.clone(), to.clone());
        let (patience, limit) = (Duration::from_secs(2), Duration::from_secs(4));
        tokio::spawn(async move {
            if let Err(error) = operator.transfer(&role, &target, "demo", patience, limit).await {
                let _ =
                    tell.send((lease_now(), Happening::Refused { why: format!("no hand-over: {error}") }));
            }
        });
        self.happen(lease_now(), Happening::Asked { from, to });
    }

    /// So that everybody gets a turn.
    fn last_led(&self, node: &Name) -> u64 {
        self.world.terms().filter(|term| term.node == *node).map(|term| term.began).max().unwrap_or(0)
    }

    fn hear(&mut self, (at, happening): News) -> Result<(), Exit> {
        if let Happening::Gone { node } = &happening {
            if self.world.player(node).is_some_and(|player| player.health() == Health::Joining) {
                let words = self.cast.last_words(node);
                return Err(Exit::Failed(format!("{node} could not take part: {words}")));
            }
            self.chores.push((later(at, AWAY), Chore::Restart(node.clone())));
        }
        let waiting = !self.spread && self.world.count(Health::Live) < self.world.players.len();
        self.happen(at, happening);
        if waiting && self.world.count(Health::Live) == self.world.players.len() {
            self.chores.push((later(at, ACQUAINTED), Chore::Spread));
        }
        Ok(())
    }

    /// What was still under way when the members were dismissed.
    fn listen_out(&mut self) {
        while let Ok((at, happening)) = self.news.try_recv() {
            if matches!(happening, Happening::Reported { .. }) {
                self.world.apply(at, happening);
            }
        }
    }

    fn happen(&mut self, at: u64, happening: Happening) {
        let said = self.world.apply(at, happening);
        if let Some(text) = said.filter(|_| self.plain.is_some()) {
            self.line(at, &text);
        }
    }

    /// Tells who holds what, once it has not changed for a tick: roles move together, and that is one happening.
    fn tell_spread(&mut self) {
        let Some((before, told)) = self.plain.take() else { return };
        let spread = self.world.spread();
        let settled = before == spread;
        if settled && !told {
            self.line(lease_now(), &spread);
        }
        self.plain = Some((spread, settled));
    }

    /// Prints a line with its time. If nobody reads, the play is over.
    fn line(&mut self, at: u64, text: &str) {
        let seconds = Duration::from_nanos(at.saturating_sub(self.world.began)).as_secs_f64();
        if !say(&format!("{seconds:8.3} s  {text}")) {
            self.ends = 0;
        }
    }

    /// Takes in all traces, and judges. What a dead process wrote was read by its successor's time, and is done with.
    fn read_witnesses(&mut self) -> Result<(), Exit> {
        for reading in &mut self.readings {
            let read = reading.read_on(&mut self.witness);
            read.map_err(|error| Exit::Failed(format!("a witness file could not be read: {error}")))?;
        }
        let players = &self.world.players;
        self.readings.retain(|reading| players.iter().any(|player| player.pid == reading.pid));
        self.verdict = Verdict::new(&self.world.fail_overs(), &self.witness, &self.bounds);
        Ok(())
    }

    fn draw(&self, screen: Option<&mut Screen<Wish>>) -> Result<(), Exit> {
        let Some(screen) = screen else { return Ok(()) };
        let view = View {
            world: &self.world,
            verdict: &self.verdict,
            now: lease_now(),
            resting: self.nemesis.resting,
            colour: crate::output::paint::colour_wanted(),
        };
        let drawn = screen.terminal.draw(|frame| board::draw(frame, &view));
        drawn.map(|_| ()).map_err(|error| Exit::Failed(format!("the board could not be drawn: {error}")))
    }
}

/// What the stage waited for.
enum Next {
    News(News),
    Wish(Wish),
    Tick,
    Signal,
}

/// The signals that end the play in good order.
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> Result<Self, Exit> {
        let on = |kind| signal(kind).map_err(|error| Exit::Failed(format!("no signal handler: {error}")));
        Ok(Self([on(SignalKind::interrupt())?, on(SignalKind::terminate())?, on(SignalKind::hangup())?]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Prints a line; false if nobody reads any more.
fn say(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

fn later(at: u64, span: Duration) -> u64 {
    at.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
