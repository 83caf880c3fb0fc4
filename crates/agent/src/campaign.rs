//! A candidacy as a stream: while a client keeps it open the client is a candidate for a role, and receives each change.
//!
//! The client works in another process, which this one can neither stop nor see stop. So every renewal
//! carries a deadline, and whatever happens to the client, its connection or this agent, the client has stopped by the last
//! deadline it received. The agent gives the role up when the client reports ready, and otherwise not before that deadline.
//!
//! ```text
//!   standing ──▶ elected ──▶ renewed … ──▶ draining ──▶ lost ──▶ standing again
//!                               │              └─ POST …/ready: given up at once
//!                               └─ closed, cut, or not read: given up at the last deadline sent
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::{EndReason, Lead, Name, StopRequest, Tenure, Timestamp, Token};
use tokio::sync::{Notify, mpsc};
use utoipa::ToSchema;

use super::candidacies::SharedCandidacy;
use super::http::tokens::same;
use crate::time::Stamp;
use tenure_process::clock::lease_now;

/// Every kind of event on a campaign stream.
pub const CAMPAIGN_EVENTS: &[(&str, &str)] = &[
    ("standing", "the client is a candidate; it must not work yet"),
    ("elected", "the client leads until the deadline"),
    ("renewed", "the lease was renewed: a later deadline"),
    ("draining", "the client must stop, then POST …/ready; the deadline still holds"),
    ("lost", "the tenure is over; the client must not work any more"),
];

/// An event of a campaign stream.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CampaignEvent {
    /// Its kind: standing, elected, renewed, draining, lost.
    pub event: &'static str,
    /// The id of this stream, a secret of this client: `POST …/ready` needs it.
    pub campaign: String,
    /// The role.
    pub role: String,
    /// The node of the agent.
    pub node: String,
    /// The fencing token of the tenure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Until when the client may rely on leadership if it receives nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// Why it drains or was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An instant, in three ways. On the agent's own host the boot clock is exact, whenever the message is read.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Deadline {
    /// Milliseconds left when the agent sent this message. A client that counts from when it *reads* the message counts too
    /// long, by the time that the message travelled.
    pub remaining_ms: u64,
    /// By this host's wall clock, RFC 3339.
    pub at: String,
    /// By this host's boot clock (`CLOCK_BOOTTIME`, the first number in /proc/uptime), in seconds.
    pub uptime: f64,
}

/// Where clients that lead are found by those who say that they are ready.
#[derive(Debug, Default)]
pub struct Campaigns {
    leading: Mutex<BTreeMap<(Name, Token), LeadingClient>>,
}

#[derive(Debug)]
struct LeadingClient {
    id: StreamId,
    ready: Arc<Notify>,
}

/// What a stream alone knows, so that no other client can say that its client has stopped: neither another user of this host nor
/// a client from the same address. It cannot be printed.
#[derive(Clone)]
pub struct StreamId(String);

impl StreamId {
    /// Another one, which cannot be guessed.
    ///
    /// # Panics
    /// If the kernel has no randomness.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        Self(format!("{:032x}", u128::from_ne_bytes(bytes)))
    }
}

impl std::fmt::Debug for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Campaigns {
    /// The client under this tenure has stopped.
    ///
    /// # Errors
    /// What is wrong, if there is no such tenure of that stream: `token` or `campaign`.
    pub fn ready(&self, role: &Name, token: Token, id: &str) -> Result<(), &'static str> {
        let leading = self.leading.lock().unwrap_or_else(PoisonError::into_inner);
        let found = leading.get(&(role.clone(), token)).ok_or("token")?;
        if !same(found.id.0.as_bytes(), id.as_bytes()) {
            return Err("campaign");
        }
        found.ready.notify_one();
        Ok(())
    }

    fn enter(&self, role: &Name, token: Token, id: &StreamId) -> Arc<Notify> {
        let ready = Arc::new(Notify::new());
        let waiting = LeadingClient { id: id.clone(), ready: ready.clone() };
        self.leading.lock().unwrap_or_else(PoisonError::into_inner).insert((role.clone(), token), waiting);
        ready
    }

    fn leave(&self, role: &Name, token: Token) {
        self.leading.lock().unwrap_or_else(PoisonError::into_inner).remove(&(role.clone(), token));
    }
}

/// One client's campaign.
#[derive(Debug)]
pub struct Campaign {
    /// The candidacy, shared with other clients of the role.
    pub candidacy: SharedCandidacy,
    /// Its stream.
    pub id: StreamId,
    /// Where it is found.
    pub campaigns: Arc<Campaigns>,
    pub node: Name,
    /// What is taken off each deadline, for clocks that run differently.
    pub slack: Duration,
    /// What it hears. Closed when the client has gone away; full when it does not read.
    pub out: mpsc::Sender<CampaignEvent>,
}

/// How a tenure of a client ended.
enum NextStep {
    /// It goes on standing.
    StandAgain,
    /// It has gone away, or does not read.
    Gone,
}

impl Campaign {
    /// Stands, and leads when elected, until the client goes away or the node stops.
    pub async fn run(self) {
        if !self.send("standing", None, None, None) {
            return;
        }
        loop {
            let tenure = tokio::select! {
                biased;
                () = self.out.closed() => return,
                tenure = self.candidacy.candidate.elected() => tenure,
            };
            let Some(tenure) = tenure else { return };
            if matches!(self.lead(tenure).await, NextStep::Gone) {
                return;
            }
        }
    }

    /// One tenure, from the election to the last deadline that the client received.
    async fn lead(&self, tenure: Tenure) -> NextStep {
        let (role, token) = (self.candidacy.candidate.role().clone(), tenure.token());
        let ready = self.campaigns.enter(&role, token, &self.id);
        let mut last_deadline = 0;
        let over = self.follow(&tenure, &ready, &mut last_deadline).await;
        self.campaigns.leave(&role, token);
        match over {
            TenureEnd::Ready(reason) => {
                let reason = reason.unwrap_or(EndReason::Resigned);
                tenure.resign();
                self.lost(token, reason)
            }
            // The client may still rely on the deadline it received before: the guard stays until then.
            TenureEnd::Lost(reason) | TenureEnd::TooSlow(reason) => {
                let ended = self.lost(token, reason);
                wait_until(last_deadline).await;
                drop(tenure);
                ended
            }
            TenureEnd::Gone => {
                wait_until(last_deadline).await;
                tenure.resign();
                NextStep::Gone
            }
        }
    }

    fn lost(&self, token: Token, reason: EndReason) -> NextStep {
        if self.send("lost", Some(token), None, Some(reason)) { NextStep::StandAgain } else { NextStep::Gone }
    }

    /// Sends the client each change of its tenure until the tenure ends. `last_deadline` is the last deadline sent.
    async fn follow(&self, tenure: &Tenure, ready: &Notify, last_deadline: &mut u64) -> TenureEnd {
        let lead = tenure.lead();
        let mut deadlines = lead.deadlines();
        deadlines.current();
        if !self.send_deadline("elected", &lead, None, last_deadline) {
            return TenureEnd::Gone;
        }
        let mut asked: Option<EndReason> = None;
        let mut until: Option<Instant> = None;
        loop {
            let drained = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            let promised = tokio::select! {
                biased;
                () = self.out.closed() => return TenureEnd::Gone,
                () = ready.notified() => return TenureEnd::Ready(asked),
                request = lead.stop_requested(), if asked.is_none() => {
                    asked = Some(request.reason());
                    // If the lease runs out, the deadline is near enough.
                    let drains = matches!(request, StopRequest::Drain { .. });
                    until = drains.then(|| Instant::now() + self.candidacy.drain);
                    self.send_deadline("draining", &lead, asked, last_deadline)
                }
                () = lead.cancelled() => return TenureEnd::Lost(asked.unwrap_or(EndReason::LeaseExpired)),
                () = drained => return TenureEnd::TooSlow(asked.unwrap_or(EndReason::Resigned)),
                moved = deadlines.moved() => match moved {
                    Some(_) => self.send_deadline("renewed", &lead, None, last_deadline),
                    None => return TenureEnd::Lost(EndReason::Fault),
                },
            };
            if !promised {
                return TenureEnd::Gone;
            }
        }
    }

    /// Sends the client a deadline. A message in flight counts as received, because the client may still read it.
    fn send_deadline(
        &self,
        event: &'static str,
        lead: &Lead,
        reason: Option<EndReason>,
        last_deadline: &mut u64,
    ) -> bool {
        // The lease clock is read before what is left of the lease: what is promised is never too long.
        let now = lease_now();
        let remaining = lead.remaining().saturating_sub(self.slack);
        let nanos = u64::try_from(lead.remaining().as_nanos()).unwrap_or(u64::MAX);
        *last_deadline = (*last_deadline).max(now.saturating_add(nanos));
        self.send(event, Some(lead.token()), Some(Deadline::after(remaining)), reason)
    }

    /// False if the client has gone away or does not read.
    fn send(
        &self,
        event: &'static str,
        token: Option<Token>,
        deadline: Option<Deadline>,
        reason: Option<EndReason>,
    ) -> bool {
        let role = self.candidacy.candidate.role().to_string();
        let reason = reason.map(|reason| reason.to_string());
        let token = token.map(Token::get);
        let (node, campaign) = (self.node.to_string(), self.id.0.clone());
        self.out.try_send(CampaignEvent { event, campaign, role, node, token, deadline, reason }).is_ok()
    }
}

/// Why a tenure of a client is over.
enum TenureEnd {
    /// The client has stopped, because it was asked to or by itself.
    Ready(Option<EndReason>),
    /// The lease is over.
    Lost(EndReason),
    /// The client was asked to stop, and has not said that it has.
    TooSlow(EndReason),
    /// The client has gone away, or does not read.
    Gone,
}

impl Deadline {
    fn after(remaining: Duration) -> Self {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let uptime = boot.tv_sec as f64 + boot.tv_nsec as f64 / 1e9;
        let micros = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
        let at = Stamp(Timestamp::from_micros(Stamp::now().0.as_micros().saturating_add(micros)));
        // Rounded down: the deadline sent is never later than the one that counts.
        let uptime = ((uptime + remaining.as_secs_f64()) * 1000.0).floor() / 1000.0;
        Self { remaining_ms: micros / 1000, at: at.to_string(), uptime }
    }
}

/// Waits until an instant of the lease clock has passed.
async fn wait_until(instant: u64) {
    loop {
        let left = instant.saturating_sub(lease_now());
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_nanos(left).max(Duration::from_millis(1))).await;
    }
}
