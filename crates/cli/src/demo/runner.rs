//! The demo: starts the nodes, injects faults by a script, shows what happens, and ends with the summary.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::store::Sqlite;
use tenure::{Bounds, Name, Operator};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::board::{self, BoardView};
use super::cluster::{DemoCluster, DemoEvent, Health};
use super::keys::{self, KeyCommand};
use super::nodes::{self, DemoNodes, TimedEvent};
use super::script::{DemoFault, FaultScript};
use super::summary::DemoSummary;
use super::{SCHEDULER, TOUR, roles, timing};
use crate::exit::Exit;
use crate::output::screen::Screen;
use crate::stop_signals::StopSignals;
use tenure_process::clock::lease_now;
use tenure_torture::judge::{NoteBuffer, NoteReader, WitnessVerdict};

/// How often the board is drawn, and scheduled steps are run.
const TICK: Duration = Duration::from_millis(100);

/// How many ticks between two reads of the notes.
const NOTES_TICKS: u64 = 5;

/// How long after the last one joined all have seen each other's beats move, and roles that fall free spread.
const ACQUAINTED: Duration = Duration::from_millis(800);

/// How long a dead member stays away.
const AWAY: Duration = Duration::from_millis(1_500);

/// How long the script pauses between faults: on a board, and in a short run.
const PAUSE: Duration = Duration::from_millis(2_500);
const SHORT_PAUSE: Duration = Duration::from_millis(1_000);

/// Commands to try after the demo.
const NEXT: &str = "
Try next:
  tenure demo                                  in a terminal: a live board, on which you kill and freeze leaders
  tenure run --role job -- sleep 1000          in two terminals: one of them runs it; end that one and look
  tenure status                                who leads
  tenure torture --private sqlite --minutes 1  attack it, and read the verdict";

/// Runs until the time is over, the viewer quits or a signal comes.
pub(super) async fn run_demo(nodes: u8, lasts: Option<Duration>, board: bool) -> Result<Exit, Exit> {
    // Before there is anything to clean up, so that a signal never leaves any of it behind.
    let mut signals = StopSignals::listen()?;
    let mut runner = DemoRunner::build(nodes, lasts)?;
    let screen = if board { Some(take_screen()?) } else { None };
    let ended = runner.run(&mut signals, screen).await;
    runner.processes.kill_all().await;
    runner.drain_events();
    runner.read_notes()?;
    runner.operator.store().close().await;
    if ended.is_ok() {
        print_line(&runner.summary.text());
        if !board && runner.summary.is_good() {
            print_line(NEXT);
        }
    }
    ended.map(|whole| runner.summary.exit(whole))
}

fn take_screen() -> Result<Screen<KeyCommand>, Exit> {
    Screen::take(keys::meaning)
        .map_err(|error| Exit::Failed(format!("cannot draw on this terminal: {error}; try --no-tty")))
}

/// What is to be done later.
#[derive(Debug, Clone)]
enum ScheduledStep {
    Restart(Name),
    Wake(Name),
    Spread,
}

struct DemoRunner {
    _dir: TempDir,
    cluster: DemoCluster,
    processes: DemoNodes,
    events: UnboundedReceiver<TimedEvent>,
    send_event: UnboundedSender<TimedEvent>,
    script: FaultScript,
    scheduled: Vec<(u64, ScheduledStep)>,
    reader: NoteReader,
    notes: NoteBuffer,
    operator: Operator,
    bounds: Bounds,
    summary: DemoSummary,
    ends: u64,
    /// Whether the first leader was asked to leave roles to others.
    spread: bool,
    /// Who held what at the last tick, and whether it was told; none where a board shows it.
    plain: Option<(String, bool)>,
}

impl DemoRunner {
    fn build(nodes: u8, lasts: Option<Duration>) -> Result<Self, Exit> {
        let dir = tempfile::Builder::new().prefix("tenure-demo-").tempdir();
        let dir = dir.map_err(|error| {
            Exit::Failed(format!("cannot make a temporary directory: {error}; set TMPDIR"))
        })?;
        let store = Arc::new(Sqlite::open(nodes::store_file(dir.path()))?);
        let names: Vec<Name> =
            (1..=nodes).map(|number| format!("node-{number}").parse().expect("a name")).collect();
        let (send_event, events) = unbounded_channel();
        let began = lease_now();
        let main = Name::new(SCHEDULER).expect("a name");
        let namespace = Name::new(tenure::DEFAULT_NAMESPACE).expect("a name");
        let hurry = lasts.is_some_and(|lasts| lasts <= TOUR);
        Ok(Self {
            cluster: DemoCluster::new(began, &names, main),
            processes: DemoNodes::new(dir.path().to_owned(), send_event.clone()),
            reader: NoteReader::reclaiming(dir.path()),
            notes: NoteBuffer::default(),
            _dir: dir,
            events,
            send_event,
            script: FaultScript::new(if hurry { SHORT_PAUSE } else { PAUSE }),
            scheduled: Vec::new(),
            operator: Operator::new(store, namespace, "demo"),
            summary: DemoSummary::new(&[], &WitnessVerdict::default(), 0, &timing().bounds()),
            bounds: timing().bounds(),
            ends: lasts.map_or(u64::MAX, |lasts| later(began, lasts)),
            spread: false,
            plain: None,
        })
    }

    /// True if it was not cut short.
    async fn run(
        &mut self,
        signals: &mut StopSignals,
        mut screen: Option<Screen<KeyCommand>>,
    ) -> Result<bool, Exit> {
        self.plain = screen.is_none().then(|| (String::new(), true));
        for node in self.cluster.nodes.iter().map(|node_state| node_state.name.clone()).collect::<Vec<_>>() {
            self.start(&node)?;
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn = 0_u64;
        while lease_now() < self.ends {
            match self.next(&mut ticks, signals, screen.as_mut()).await {
                Next::TimedEvent(events) => self.handle_event(events)?,
                Next::KeyCommand(KeyCommand::Quit) | Next::Signal => return Ok(false),
                Next::KeyCommand(command) => self.obey_key(command),
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
        signals: &mut StopSignals,
        screen: Option<&mut Screen<KeyCommand>>,
    ) -> Next {
        let command = async {
            match screen {
                Some(screen) => screen.commands.recv().await.unwrap_or(KeyCommand::Quit),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = signals.any() => Next::Signal,
            Some(events) = self.events.recv() => Next::TimedEvent(events),
            command = command => Next::KeyCommand(command),
            _ = ticks.tick() => Next::Tick,
        }
    }

    fn tick(&mut self, turn: u64) -> Result<(), Exit> {
        let now = lease_now();
        self.run_scheduled(now)?;
        if turn.is_multiple_of(NOTES_TICKS) {
            self.read_notes()?;
        }
        self.print_roles();
        let (live, frozen) = (self.cluster.count(Health::Live), self.cluster.count(Health::Frozen));
        let calm = self.spread && self.cluster.leader().is_some() && live > 1 && frozen == 0;
        let left = Duration::from_nanos(self.ends.saturating_sub(now));
        if let Some(act) = self.script.next(now, calm, left) {
            self.inject(act);
        }
        Ok(())
    }

    fn run_scheduled(&mut self, now: u64) -> Result<(), Exit> {
        let (due, later): (Vec<_>, Vec<_>) = self.scheduled.drain(..).partition(|(at, _)| *at <= now);
        self.scheduled = later;
        for (_, chore) in due {
            match chore {
                ScheduledStep::Restart(node) => self.start(&node)?,
                ScheduledStep::Wake(node) => {
                    let at = self.processes.wake(&node);
                    self.apply(at, DemoEvent::Woken { node });
                }
                ScheduledStep::Spread => self.spread(),
            }
        }
        Ok(())
    }

    fn start(&mut self, node: &Name) -> Result<(), Exit> {
        let pid = self.processes.start(node)?;
        self.apply(lease_now(), DemoEvent::Started { node: node.clone(), pid });
        Ok(())
    }

    fn obey_key(&mut self, command: KeyCommand) {
        match command {
            KeyCommand::See(act) => {
                self.script.rest(lease_now());
                self.inject(act);
            }
            KeyCommand::Rest => self.script.resting = !self.script.resting,
            KeyCommand::Quit => {}
        }
    }

    /// Does something to the leader, if there is one and another node could lead.
    fn inject(&mut self, act: DemoFault) {
        let Some(node) = self.cluster.leader().map(|tenure| tenure.node.clone()) else {
            let why = "there is no leader at this moment; wait for the next election".to_owned();
            return self.apply(lease_now(), DemoEvent::Refused { why });
        };
        match act {
            DemoFault::Kill => {
                let at = self.processes.kill(&node);
                self.apply(at, DemoEvent::Killed { node });
            }
            DemoFault::Freeze => {
                let at = self.processes.freeze(&node);
                let wake = later(at, self.bounds.crash + Duration::from_millis(700));
                self.scheduled.push((wake, ScheduledStep::Wake(node.clone())));
                self.apply(at, DemoEvent::Frozen { node });
            }
            DemoFault::HandOver => self.hand_over(node),
        }
    }

    /// The first that came took every role. It is asked to step down from all but one, as `tenure step-down` does it:
    /// then they spread over the others.
    fn spread(&mut self) {
        self.spread = true;
        let Some(from) = self.cluster.leader().map(|tenure| tenure.node.clone()) else { return };
        for role in roles().into_iter().skip(1) {
            let operator = self.operator.clone();
            // A role that another node holds has spread already.
            tokio::spawn(async move { operator.step_down(&role, "spread", Duration::from_secs(4)).await });
        }
        self.apply(lease_now(), DemoEvent::Spread { from });
    }

    /// As `tenure transfer` does it.
    fn hand_over(&mut self, from: Name) {
        let able = |name: &&Name| **name != from;
        let live = self.cluster.nodes.iter().filter(|node_state| node_state.health() == Health::Live);
        let Some(to) =
            live.map(|node_state| &node_state.name).filter(able).min_by_key(|name| self.last_led(name))
        else {
            return;
        };
        let (to, role) = (to.clone(), self.cluster.main_role().clone());
        let (operator, send_event, target) = (self.operator.clone(), self.send_event.clone(), to.clone());
        let (patience, limit) = (Duration::from_secs(2), Duration::from_secs(4));
        tokio::spawn(async move {
            if let Err(error) = operator.transfer(&role, &target, "demo", patience, limit).await {
                let _ = send_event
                    .send((lease_now(), DemoEvent::Refused { why: format!("no hand-over: {error}") }));
            }
        });
        self.apply(lease_now(), DemoEvent::Asked { from, to });
    }

    /// So that every node gets a turn.
    fn last_led(&self, node: &Name) -> u64 {
        self.cluster
            .tenures()
            .filter(|tenure| tenure.node == *node)
            .map(|tenure| tenure.began)
            .max()
            .unwrap_or(0)
    }

    fn handle_event(&mut self, (at, event): TimedEvent) -> Result<(), Exit> {
        if let DemoEvent::Gone { node } = &event {
            if self.cluster.node_state(node).is_some_and(|node_state| node_state.health() == Health::Joining)
            {
                let words = self.processes.last_line(node);
                return Err(Exit::Failed(format!("{node} cannot take part: {words}")));
            }
            self.scheduled.push((later(at, AWAY), ScheduledStep::Restart(node.clone())));
        }
        let waiting = !self.spread && self.cluster.count(Health::Live) < self.cluster.nodes.len();
        self.apply(at, event);
        if waiting && self.cluster.count(Health::Live) == self.cluster.nodes.len() {
            self.scheduled.push((later(at, ACQUAINTED), ScheduledStep::Spread));
        }
        Ok(())
    }

    /// What was still under way when the members were dismissed.
    fn drain_events(&mut self) {
        while let Ok((at, event)) = self.events.try_recv() {
            if matches!(event, DemoEvent::Reported { .. }) {
                self.cluster.apply(at, event);
            }
        }
    }

    fn apply(&mut self, at: u64, event: DemoEvent) {
        let said = self.cluster.apply(at, event);
        if let Some(text) = said.filter(|_| self.plain.is_some()) {
            self.line(at, &text);
        }
    }

    /// Tells who holds what, once it has not changed for a tick: roles move together, and that is one happening.
    fn print_roles(&mut self) {
        let Some((before, told)) = self.plain.take() else { return };
        let spread = self.cluster.spread();
        let settled = before == spread;
        if settled && !told {
            self.line(lease_now(), &spread);
        }
        self.plain = Some((spread, settled));
    }

    /// Prints a line with its time. If the output is closed, the demo is over.
    fn line(&mut self, at: u64, text: &str) {
        let seconds = Duration::from_nanos(at.saturating_sub(self.cluster.began)).as_secs_f64();
        if !print_line(&format!("{seconds:8.3} s  {text}")) {
            self.ends = 0;
        }
    }

    /// Reads what the nodes wrote down since the last time, and judges all of it.
    fn read_notes(&mut self) -> Result<(), Exit> {
        let notes = self.reader.read_on();
        self.notes.take(notes.map_err(|error| Exit::Failed(format!("cannot read the notes: {error}")))?);
        let verdict = WitnessVerdict::of(self.notes.notes());
        let fail_overs = self.cluster.fail_overs();
        self.summary = DemoSummary::new(&fail_overs, &verdict, self.notes.acts(), &self.bounds);
        Ok(())
    }

    fn draw(&self, screen: Option<&mut Screen<KeyCommand>>) -> Result<(), Exit> {
        let Some(screen) = screen else { return Ok(()) };
        let view = BoardView {
            cluster: &self.cluster,
            summary: &self.summary,
            now: lease_now(),
            resting: self.script.resting,
            colour: crate::output::paint::colour_wanted(),
        };
        let drawn = screen.terminal.draw(|frame| board::draw(frame, &view));
        drawn.map(|_| ()).map_err(|error| Exit::Failed(format!("cannot draw the board: {error}")))
    }
}

/// What the stage waited for.
enum Next {
    TimedEvent(TimedEvent),
    KeyCommand(KeyCommand),
    Tick,
    Signal,
}

/// Prints a line; false if the output is closed.
fn print_line(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

fn later(at: u64, span: Duration) -> u64 {
    at.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
