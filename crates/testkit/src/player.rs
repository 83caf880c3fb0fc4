//! A node that works and writes down all that the [judge](crate::judge) wants to know.
//!
//! It stands for some roles. Its work acts every few milliseconds for as long as it is let: it notes whether `check()`
//! held, and now and then writes to the fence *without* asking, as a process would that was frozen right after it had
//! asked. Half of the roles have work that winds down by itself; that of the others is dropped.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tenure::clock::lease_nanos;
use tenure::event::{Event, What as Said};
use tenure::{Held, Lead, Node, NodeBuilder, SharedStore};

use crate::judge::{Pen, What};
use crate::recorder::Recorder;

/// How often the work acts, and how many acts there are for each fenced write.
const PACE: Duration = Duration::from_millis(10);
const ACTS_PER_WRITE: u32 = 5;

/// How long work that winds down by itself takes.
const WIND_DOWN: Duration = Duration::from_millis(120);

/// Where fenced writes go: role, token. Whether one was taken is noted there, by whoever decides.
pub type Fence = Arc<dyn Fn(String, u64) -> BoxFuture<'static, ()> + Send + Sync>;

/// A store whose role registers are watched, and that is deaf as long as there is a file of that name.
#[must_use]
pub fn recorded(store: SharedStore, pen: &Pen, deaf: Option<PathBuf>) -> SharedStore {
    Arc::new(Recorder::new(store, pen.clone(), deaf))
}

/// Starts a node that notes what it tells. Its store should be [`recorded`].
///
/// # Errors
/// If it does not start.
pub async fn start(builder: NodeBuilder, pen: &Pen) -> Result<Node, tenure::Error> {
    let own = pen.clone();
    let node = builder.listen(move |event| note_event(&own, event)).start().await?;
    pen.note(What::Joined { ttl: u64::try_from(node.timing().ttl.as_millis()).unwrap_or(u64::MAX) });
    Ok(node)
}

fn note_event(pen: &Pen, event: &Event) {
    let (token, more) = match &event.what {
        Said::Elected { token, .. } => (Some(*token), String::new()),
        Said::Draining { token, reason, .. } | Said::Lost { token, reason, .. } => {
            (Some(*token), reason.to_string())
        }
        Said::Stuck { token, .. } => (Some(*token), String::new()),
        Said::Quarantined { millis } => (None, format!("for {millis} ms")),
        Said::StoreFailed { error } | Said::LoopFailed { error } => (None, error.clone()),
        _ => (None, String::new()),
    };
    let name = serde_json::to_value(&event.what).ok();
    let name = name.and_then(|value| Some(value.get("event")?.as_str()?.to_owned())).unwrap_or_default();
    let (role, token) = (event.what.role().map(ToString::to_string), token.map(|token| token.0));
    pen.note(What::Told { sequence: event.sequence, event: name, role, token, more });
}

/// Stands for a role, works while it leads, and stands again, until the node is stopped. `winds_down`: the work ends by
/// itself when it is told to; otherwise it is dropped.
///
/// # Errors
/// If it cannot stand.
pub async fn career(
    node: Node,
    role: String,
    pen: Pen,
    fence: Fence,
    winds_down: bool,
) -> Result<(), tenure::Error> {
    let candidate = node.candidate(&role).await?;
    while let Some(tenure) = candidate.elected().await {
        let (pen, fence) = (pen.clone(), fence.clone());
        let work = move |lead: Lead| work(Working::begin(lead, pen), fence, winds_down);
        match tenure.hold(work).await {
            Held::Returned(()) | Held::Lost(_) => {}
        }
    }
    Ok(())
}

async fn work(working: Working, fence: Fence, winds_down: bool) {
    let acts = acts(&working, &fence);
    if !winds_down {
        return acts.await;
    }
    tokio::select! {
        () = acts => {}
        () = working.lead.draining() => {}
    }
    // Not at once, and not to be dropped either: whoever takes over must wait for it.
    working.wind_down();
}

async fn acts(working: &Working, fence: &Fence) {
    let mut tick = tokio::time::interval(PACE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut act = 0_u32;
    loop {
        let leads = working.act();
        act += 1;
        // A process that was frozen after it had asked writes when it wakes: so does this one.
        if !leads || act.is_multiple_of(ACTS_PER_WRITE) {
            fence(working.lead.role().to_string(), working.lead.token().0).await;
        }
        tick.tick().await;
    }
}

/// Notes when work begins and when it ends, whatever ends it.
struct Working {
    lead: Lead,
    pen: Pen,
}

impl Working {
    fn begin(lead: Lead, pen: Pen) -> Self {
        let working = Self { lead, pen };
        working.note(true);
        working
    }

    fn note(&self, on: bool) {
        self.pen.note(What::Work { role: self.lead.role().to_string(), token: self.lead.token().0, on });
    }

    /// The clock is read before leadership is asked, and the deadline after.
    fn act(&self) -> bool {
        let t = lease_nanos();
        let leads = self.lead.check();
        let until = self.lead.deadline().0;
        let (role, token) = (self.lead.role().to_string(), self.lead.token().0);
        self.pen.note_at(t, What::Act { role, token, leads, until });
        leads
    }
}

impl Working {
    fn wind_down(&self) {
        let began = Instant::now();
        while began.elapsed() < WIND_DOWN {
            self.act();
            std::thread::sleep(PACE);
        }
    }
}

impl Drop for Working {
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
