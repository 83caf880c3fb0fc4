//! One node of the demo, as a process of its own: it is a candidate for every role, and its work is to write notes.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use tenure::event::EventKind;
use tenure::store::Sqlite;
use tenure::{EndReason, Lead, Name, Node, WorkOutcome};
use tokio::task::JoinSet;

use super::message::MemberMessage;
use super::{SCHEDULER, nodes, roles, timing};
use crate::exit::Exit;
use tenure_process::clock::lease_now;
use tenure_torture::judge::{NoteKind, NoteWriter};

/// How often the work writes a note.
const NOTE_INTERVAL: Duration = Duration::from_millis(5);

/// Takes part until it is killed, or until its parent is gone.
pub(super) async fn main(name: Name, dir: &Path) -> Result<Exit, Exit> {
    // Frozen members must go with the demo too, which only a kill from the kernel achieves. Should the demo be gone
    // already, the first report finds that out.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Exit::Failed(error.to_string()))?;
    let store = Arc::new(Sqlite::open(nodes::store_file(dir))?);
    let notes = NoteWriter::in_dir(dir, name.as_str(), std::process::id()).map_err(|error| {
        Exit::Failed(format!("cannot write notes in {}: {error}; free some disk space", dir.display()))
    })?;
    let node = Node::builder_with_store(store).name(name.as_str()).ttl(timing().ttl).listen(|event| {
        match event.kind {
            EventKind::SessionOpened { .. } => send(&MemberMessage::Joined),
            EventKind::SessionOver { reason, .. } => send(&MemberMessage::Over { reason }),
            _ => {}
        }
    });
    let node = node.start().await?;
    let mut campaigns = JoinSet::new();
    for role in roles() {
        campaigns.spawn(campaign(node.clone(), role, notes.clone()));
    }
    while let Some(ended) = campaigns.join_next().await {
        ended.map_err(|error| Exit::Failed(error.to_string()))??;
    }
    Ok(Exit::Done)
}

/// Campaigns for a role, leads it, campaigns again.
async fn campaign(node: Node, role: Name, notes: NoteWriter) -> Result<(), Exit> {
    let candidate = node.candidate(role.as_str()).await?;
    while let Some(tenure) = candidate.elected().await {
        let (token, stopped) = (tenure.token(), Arc::new(AtomicU64::new(0)));
        let working = TenureWork { lead: tenure.lead(), stopped: stopped.clone(), notes: notes.clone() };
        let held = tenure.hold(|lead| work(lead, working)).await;
        let reason = match held {
            WorkOutcome::Lost(reason) => reason,
            WorkOutcome::Completed(()) => EndReason::Finished,
        };
        send(&MemberMessage::Left { role: role.clone(), token, reason, at: stopped.load(Ordering::Acquire) });
    }
    Ok(())
}

/// Writes a note every few milliseconds, for as long as it is not dropped.
async fn work(lead: Lead, working: TenureWork) {
    let (role, token, at) = (lead.role().clone(), lead.token(), lease_now());
    if lead.check() {
        send(&MemberMessage::Led { role, token, at });
    }
    let mut tick = tokio::time::interval(NOTE_INTERVAL);
    let mut until = None;
    loop {
        working.note();
        if lead.role().as_str() == SCHEDULER && until != Some(lead.deadline()) {
            until = Some(lead.deadline());
            send(&MemberMessage::Lease { until: lead.deadline().as_nanos() });
        }
        tick.tick().await;
    }
}

/// Notes when the work stopped, whatever stopped it.
struct TenureWork {
    lead: Lead,
    stopped: Arc<AtomicU64>,
    notes: NoteWriter,
}

impl TenureWork {
    /// The clock is read before leadership is checked: if it held then, it held at that instant, even if this process
    /// is frozen in between.
    fn note(&self) {
        let at = lease_now();
        if self.lead.check() {
            let (role, token) = (self.lead.role().to_string(), self.lead.token().get());
            let until = self.lead.deadline().as_nanos();
            self.notes.note_at(at, NoteKind::Act { role, token, leads: true, until });
        }
    }
}

impl Drop for TenureWork {
    fn drop(&mut self) {
        self.note();
        self.stopped.store(lease_now(), Ordering::Release);
    }
}

/// Reports to the demo. If its end of the pipe is closed, the demo is over.
fn send(report: &MemberMessage) {
    let mut line = serde_json::to_string(report).expect("a report serialises");
    line.push('\n');
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        std::process::exit(0);
    }
}
