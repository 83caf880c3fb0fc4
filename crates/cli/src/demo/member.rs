//! One node of the demo, as a process of its own: it stands for every role, and its work is to leave traces.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use tenure::event::What;
use tenure::store::Sqlite;
use tenure::{Held, Lead, Name, Node, Reason};
use tokio::task::JoinSet;

use super::report::Report;
use super::witness::Traces;
use super::{SCHEDULER, cast, roles, timing};
use crate::exit::Exit;
use crate::process::clock::lease_now;

/// How often the work leaves a trace.
const PACE: Duration = Duration::from_millis(5);

/// Takes part until it is killed, or until nobody listens any more.
pub(super) async fn main(name: Name, dir: &Path) -> Result<Exit, Exit> {
    // Frozen members must go with the demo too, which only a kill from the kernel achieves. Should the demo be gone
    // already, the first report finds that out.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Exit::Failed(error.to_string()))?;
    let store = Arc::new(Sqlite::open(cast::store_file(dir))?);
    let traces = Traces::create(dir, &name, std::process::id()).map_err(|error| {
        Exit::Failed(format!("no witness file in {}: {error}; is the disk full?", dir.display()))
    })?;
    let node =
        Node::with_store(store).name(name.as_str()).ttl(timing().ttl).listen(|event| match event.what {
            What::SessionOpened { .. } => tell(&Report::Joined),
            What::SessionOver { reason, .. } => tell(&Report::Over { reason }),
            _ => {}
        });
    let node = node.start().await?;
    let traces = Arc::new(Mutex::new(traces));
    let mut careers = JoinSet::new();
    for role in roles() {
        careers.spawn(career(node.clone(), role, traces.clone()));
    }
    while let Some(ended) = careers.join_next().await {
        ended.map_err(|error| Exit::Failed(error.to_string()))??;
    }
    Ok(Exit::Done)
}

/// Stands for a role, leads it, stands again.
async fn career(node: Node, role: Name, traces: Arc<Mutex<Traces>>) -> Result<(), Exit> {
    let candidate = node.candidate(role.as_str()).await?;
    while let Some(tenure) = candidate.elected().await {
        let (token, stopped) = (tenure.token(), Arc::new(AtomicU64::new(0)));
        let leaving = Leaving { lead: tenure.lead(), stopped: stopped.clone(), traces: traces.clone() };
        let held = tenure.hold(|lead| work(lead, leaving)).await;
        let reason = match held {
            Held::Lost(reason) => reason,
            Held::Returned(()) => Reason::Finished,
        };
        tell(&Report::Left { role: role.clone(), token, reason, at: stopped.load(Ordering::Acquire) });
    }
    Ok(())
}

/// Leaves a trace every few milliseconds, for as long as it is not dropped.
async fn work(lead: Lead, leaving: Leaving) {
    let (role, token, at) = (lead.role().clone(), lead.token(), lease_now());
    if lead.check() {
        tell(&Report::Led { role, token, at });
    }
    let mut tick = tokio::time::interval(PACE);
    let mut until = None;
    loop {
        leaving.trace();
        if lead.role().as_str() == SCHEDULER && until != Some(lead.deadline()) {
            until = Some(lead.deadline());
            tell(&Report::Lease { until: lead.deadline().0 });
        }
        tick.tick().await;
    }
}

/// Notes when the work stopped, whatever stopped it.
struct Leaving {
    lead: Lead,
    stopped: Arc<AtomicU64>,
    traces: Arc<Mutex<Traces>>,
}

impl Leaving {
    /// The clock is read before leadership is checked: if it held then, it held at that instant, even if this process
    /// is frozen in between.
    fn trace(&self) {
        let at = lease_now();
        if self.lead.check() {
            let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
            traces.leave(at, self.lead.role(), self.lead.token());
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.trace();
        self.stopped.store(lease_now(), Ordering::Release);
    }
}

/// Tells the stage. If nobody listens, the demo is over.
fn tell(report: &Report) {
    let mut line = serde_json::to_string(report).expect("a report serialises");
    line.push('\n');
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        std::process::exit(0);
    }
}
