//! A node that works and writes down all that the [judge](crate::judge) wants to know.
//!
//! It stands for some roles. Its work acts every few milliseconds for as long as it is let: it notes whether `check()`
//! held, and now and then writes to the fence *without* asking, as a process would that was frozen right after it had
//! asked. Half of the roles have work that winds down by itself; that of the others is dropped.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tenure::clock::lease_nanos;
use tenure::event::{Event, EventKind};
use tenure::schedule::{Schedule, Task, TaskSettings};
use tenure::{Lead, Node, NodeBuilder, SharedStore, WorkOutcome};

use crate::clock::WrongClock;
use crate::judge::{NoteKind, NoteWriter};
use crate::recorder::Recorder;

/// How often the work acts, and how many acts there are for each fenced write.
const ACT_INTERVAL: Duration = Duration::from_millis(10);
const ACTS_PER_WRITE: u32 = 5;

/// How long work that winds down by itself takes.
const WIND_DOWN: Duration = Duration::from_millis(120);

/// Where fenced writes go: role, token. Whether one was taken is noted there, by the resource that decides.
pub type Fence = Arc<dyn Fn(String, u64) -> BoxFuture<'static, ()> + Send + Sync>;

/// A store whose role registers are watched, and that drops hints as long as that file exists.
#[must_use]
pub fn recorded(store: SharedStore, pen: &NoteWriter, hints_off: Option<PathBuf>) -> SharedStore {
    Arc::new(Recorder::new(store, pen.clone(), hints_off))
}

/// Starts a node that notes what it tells. Its store should be [`recorded`]. What it tells before it has started is noted when it
/// has: one that could not start, and is tried again in the same process, counts its events anew.
///
/// # Errors
/// If it does not start.
pub async fn start(builder: NodeBuilder, pen: &NoteWriter) -> Result<Node, tenure::Error> {
    let (own, early) = (pen.clone(), Arc::new(Mutex::new(Some(Vec::new()))));
    let held = early.clone();
    let listener = move |event: &Event| match &mut *held.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(early) => early.push((lease_nanos(), event.clone())),
        None => note_event(&own, lease_nanos(), event),
    };
    let node = builder.listen(listener).start().await?;
    let mut early = early.lock().unwrap_or_else(PoisonError::into_inner);
    early.take().into_iter().flatten().for_each(|(t, event)| note_event(pen, t, &event));
    drop(early);
    pen.note(NoteKind::Joined { ttl: u64::try_from(node.timing().ttl.as_millis()).unwrap_or(u64::MAX) });
    Ok(node)
}

fn note_event(pen: &NoteWriter, t: u64, event: &Event) {
    let (token, more) = match &event.kind {
        EventKind::Elected { token, .. } => (Some(*token), String::new()),
        EventKind::Draining { token, reason, .. } | EventKind::Lost { token, reason, .. } => {
            (Some(*token), reason.to_string())
        }
        EventKind::Stuck { token, .. } => (Some(*token), String::new()),
        EventKind::Quarantined { millis } => (None, format!("for {millis} ms")),
        EventKind::StoreFailed { error } | EventKind::LoopFailed { error } => (None, error.clone()),
        _ => (None, String::new()),
    };
    let name = serde_json::to_value(&event.kind).ok();
    let name = name.and_then(|value| Some(value.get("event")?.as_str()?.to_owned())).unwrap_or_default();
    let (role, token) = (event.kind.role().map(ToString::to_string), token.map(tenure::Token::get));
    pen.note_at(t, NoteKind::Told { sequence: event.sequence, event: name, role, token, more });
}

/// Stands for a role, works while it leads, and stands again, until the node is stopped. `winds_down`: the work ends by
/// itself when it is told to; otherwise it is dropped. `clock` is the node's: notes tell of deadlines on the host's.
///
/// # Errors
/// If it cannot stand.
pub async fn campaign(
    node: Node,
    role: String,
    pen: NoteWriter,
    fence: Fence,
    clock: Arc<WrongClock>,
    winds_down: bool,
) -> Result<(), tenure::Error> {
    let candidate = node.candidate(&role).await?;
    while let Some(tenure) = candidate.elected().await {
        let (pen, fence, clock) = (pen.clone(), fence.clone(), clock.clone());
        let work = move |lead: Lead| work(TenureWork::begin(lead, pen, clock), fence, winds_down);
        match tenure.hold(work).await {
            WorkOutcome::Completed(()) | WorkOutcome::Lost(_) => {}
        }
    }
    Ok(())
}

/// The task that the leader of a role of the same name runs, and how often.
pub const TICKS: &str = "ticks";
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Runs a task of which every tick is noted, until the node is stopped.
///
/// # Errors
/// If it cannot stand for the role.
pub async fn ticks(node: Node, pen: NoteWriter) -> Result<(), tenure::Error> {
    let settings = TaskSettings::every(TICKS, TICK).expect("a name and a span that can be");
    let task = Task::new(settings, move |run| {
        let (task, tick, token) = (run.task().to_string(), run.tick().as_micros(), run.token().get());
        pen.note(NoteKind::Ticked { task, tick, token });
        std::future::ready(Ok::<(), std::convert::Infallible>(()))
    });
    let schedule = Schedule::new().task(task.expect("its settings can be"));
    schedule.expect("there is one task").lead(node.candidate(TICKS)).await
}

async fn work(working: TenureWork, fence: Fence, winds_down: bool) {
    let acts = acts(&working, &fence);
    if !winds_down {
        return acts.await;
    }
    tokio::select! {
        () = acts => {}
        () = working.lead.draining() => {}
    }
    // Not at once, and not to be dropped either: the next leader must wait for it.
    working.wind_down();
}

async fn acts(working: &TenureWork, fence: &Fence) {
    let mut tick = tokio::time::interval(ACT_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut act = 0_u32;
    loop {
        let leads = working.act();
        act += 1;
        // A process that was frozen after it had asked writes when it wakes: so does this one.
        if !leads || act.is_multiple_of(ACTS_PER_WRITE) {
            fence(working.lead.role().to_string(), working.lead.token().get()).await;
        }
        tick.tick().await;
    }
}

/// Notes when work begins and when it ends, whatever ends it.
struct TenureWork {
    lead: Lead,
    pen: NoteWriter,
    clock: Arc<WrongClock>,
}

impl TenureWork {
    fn begin(lead: Lead, pen: NoteWriter, clock: Arc<WrongClock>) -> Self {
        let working = Self { lead, pen, clock };
        working.note(true);
        working
    }

    fn note(&self, on: bool) {
        self.pen.note(NoteKind::Work {
            role: self.lead.role().to_string(),
            token: self.lead.token().get(),
            on,
        });
    }

    /// The clock is read before leadership is asked, and the deadline after.
    fn act(&self) -> bool {
        let t = lease_nanos();
        let leads = self.lead.check();
        let until = self.clock.to_host(self.lead.deadline().as_nanos());
        let (role, token) = (self.lead.role().to_string(), self.lead.token().get());
        self.pen.note_at(t, NoteKind::Act { role, token, leads, until });
        leads
    }
}

impl TenureWork {
    fn wind_down(&self) {
        let began = Instant::now();
        while began.elapsed() < WIND_DOWN {
            self.act();
            std::thread::sleep(ACT_INTERVAL);
        }
    }
}

impl Drop for TenureWork {
    fn drop(&mut self) {
        self.note(false);
    }
}

/// A fence that takes nothing and notes nothing.
#[must_use]
pub fn no_fence() -> Fence {
    Arc::new(|_, _| Box::pin(std::future::ready(())) as BoxFuture<'static, ()>)
}

/// Runs a future and forgets what it gives: for fences.
pub fn ignore<T>(future: impl Future<Output = T> + Send + 'static) -> BoxFuture<'static, ()> {
    Box::pin(async move { _ = future.await })
}
