//! A candidacy as a stream: while a client holds it open it stands for a role, and is told what becomes of it.
//!
//! The client works in another process, which this one can neither stop nor see stop. So it is told a deadline with
//! every renewal, and whatever happens to it, to its connection or to this agent, it has stopped by the last deadline it
//! was told. The role is given up when the client says that it is ready, and otherwise not before that deadline.
//!
//! ```text
//!   standing ──▶ elected ──▶ renewed … ──▶ draining ──▶ lost ──▶ standing again
//!                               │              └─ POST …/ready: given up at once
//!                               └─ closed, cut, or not read: given up at the last deadline told
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::{Lead, Name, Reason, Tenure, Token, Wall};
use tokio::sync::{Notify, mpsc};
use utoipa::ToSchema;

use super::roster::Share;
use crate::output::time::Stamp;
use crate::process::clock::lease_now;

/// Every kind of event on a campaign stream.
pub const CAMPAIGN_EVENTS: &[(&str, &str)] = &[
    ("standing", "the client stands; nothing may be done yet"),
    ("elected", "the client leads, until the deadline"),
    ("renewed", "the deadline has moved"),
    ("draining", "stop, then POST …/ready; the deadline still counts"),
    ("lost", "the tenure is over; nothing may be done any more"),
];

/// An event of a campaign stream.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Notice {
    /// Its kind: standing, elected, renewed, draining, lost.
    pub event: &'static str,
    /// The role.
    pub role: String,
    /// The node of the agent.
    pub node: String,
    /// The fencing token of the tenure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Until when leadership may be relied on if nothing more is heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Until>,
    /// Why it drains or was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An instant, in three ways. On the agent's own host the boot clock is exact, whenever the message is read.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Until {
    /// How many milliseconds were left when this was sent. Counted from when it is *read* it is too late by as long as
    /// it was on its way.
    pub remaining_ms: u64,
    /// By this host's wall clock, RFC 3339.
    pub at: String,
    /// By this host's boot clock (`CLOCK_BOOTTIME`, the first number in /proc/uptime), in seconds.
    pub uptime: f64,
}

/// Where clients that lead are found by those who say that they are ready.
#[derive(Debug, Default)]
pub struct Campaigns {
    leading: Mutex<BTreeMap<(Name, Token), Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    client: String,
    ready: Arc<Notify>,
}

impl Campaigns {
    /// The client under this tenure has stopped. False if there is no such tenure of that client.
    #[must_use]
    pub fn ready(&self, role: &Name, token: Token, client: &str) -> bool {
        let leading = self.leading.lock().unwrap_or_else(PoisonError::into_inner);
        let found = leading.get(&(role.clone(), token)).filter(|waiting| waiting.client == client);
        found.map(|waiting| waiting.ready.notify_one()).is_some()
    }

    fn enter(&self, role: &Name, token: Token, client: &str) -> Arc<Notify> {
        let ready = Arc::new(Notify::new());
        let waiting = Waiting { client: client.to_owned(), ready: ready.clone() };
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
    /// Its share in the candidacy.
    pub share: Share,
    /// Who it is.
    pub client: String,
    /// Where it is found.
    pub campaigns: Arc<Campaigns>,
    /// This node.
    pub node: Name,
    /// What is taken off each deadline, for clocks that run differently.
    pub slack: Duration,
    /// What it hears. Closed when the client has gone away; full when it does not read.
    pub out: mpsc::Sender<Notice>,
}

/// How a tenure of a client ended.
enum Ended {
    /// It goes on standing.
    StandAgain,
    /// It has gone away, or does not read.
    Gone,
}

impl Campaign {
    /// Stands, and leads when elected, until the client goes away or the node stops.
    pub async fn run(self) {
        if !self.tell("standing", None, None, None) {
            return;
        }
        loop {
            let tenure = tokio::select! {
                biased;
                () = self.out.closed() => return,
                tenure = self.share.candidate.elected() => tenure,
            };
            let Some(tenure) = tenure else { return };
            if matches!(self.lead(tenure).await, Ended::Gone) {
                return;
            }
        }
    }

    /// One tenure, from the election to the end of the last deadline that the client was told.
    async fn lead(&self, tenure: Tenure) -> Ended {
        let (role, token) = (self.share.candidate.role().clone(), tenure.token());
        let ready = self.campaigns.enter(&role, token, &self.client);
        let mut told = 0;
        let over = self.follow(&tenure, &ready, &mut told).await;
        self.campaigns.leave(&role, token);
        match over {
            Over::Ready(reason) => {
                let reason = reason.unwrap_or(Reason::Resigned);
                tenure.resign();
                self.lost(token, reason)
            }
            // It is told at once, and may still rely on what it was told before: the guard stays until then.
            Over::Lost(reason) | Over::TooSlow(reason) => {
                let ended = self.lost(token, reason);
                wait_until(told).await;
                drop(tenure);
                ended
            }
            Over::Gone => {
                wait_until(told).await;
                tenure.resign();
                Ended::Gone
            }
        }
    }

    fn lost(&self, token: Token, reason: Reason) -> Ended {
        if self.tell("lost", Some(token), None, Some(reason)) { Ended::StandAgain } else { Ended::Gone }
    }

    /// Tells the client what becomes of its tenure until it is over. `told` is the last deadline that it was told.
    async fn follow(&self, tenure: &Tenure, ready: &Notify, told: &mut u64) -> Over {
        let lead = tenure.lead();
        let mut deadlines = lead.deadlines();
        deadlines.borrow_and_update();
        if !self.promise("elected", &lead, None, told) {
            return Over::Gone;
        }
        let mut asked: Option<Reason> = None;
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
                () = self.out.closed() => return Over::Gone,
                () = ready.notified() => return Over::Ready(asked),
                (reason, forced) = lead.ended(), if asked.is_none() => {
                    asked = Some(reason);
                    // If the lease runs out, the deadline is near enough.
                    until = (!forced).then(|| Instant::now() + self.share.drain);
                    self.promise("draining", &lead, asked, told)
                }
                () = lead.cancelled() => return Over::Lost(asked.unwrap_or(Reason::LeaseExpired)),
                () = drained => return Over::TooSlow(asked.unwrap_or(Reason::Resigned)),
                moved = deadlines.changed() => match moved {
                    Ok(()) => self.promise("renewed", &lead, None, told),
                    Err(_) => return Over::Lost(Reason::Fault),
                },
            };
            if !promised {
                return Over::Gone;
            }
        }
    }

    /// Tells the client a deadline. What is on its way counts as told, because it may yet be read.
    fn promise(&self, event: &'static str, lead: &Lead, reason: Option<Reason>, told: &mut u64) -> bool {
        // The lease clock is read before what is left of the lease: what is promised is never too long.
        let now = lease_now();
        let remaining = lead.remaining().saturating_sub(self.slack);
        let nanos = u64::try_from(lead.remaining().as_nanos()).unwrap_or(u64::MAX);
        *told = (*told).max(now.saturating_add(nanos));
        self.tell(event, Some(lead.token()), Some(Until::after(remaining)), reason)
    }

    /// False if the client has gone away or does not read.
    fn tell(
        &self,
        event: &'static str,
        token: Option<Token>,
        deadline: Option<Until>,
        reason: Option<Reason>,
    ) -> bool {
        let role = self.share.candidate.role().to_string();
        let reason = reason.map(|reason| reason.to_string());
        let token = token.map(|token| token.0);
        let node = self.node.to_string();
        self.out.try_send(Notice { event, role, node, token, deadline, reason }).is_ok()
    }
}

/// Why a tenure of a client is over.
enum Over {
    /// The client has stopped, because it was asked to or by itself.
    Ready(Option<Reason>),
    /// The lease is over.
    Lost(Reason),
    /// The client was asked to stop, and has not said that it has.
    TooSlow(Reason),
    /// The client has gone away, or does not read.
    Gone,
}

impl Until {
    fn after(remaining: Duration) -> Self {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let uptime = boot.tv_sec as f64 + boot.tv_nsec as f64 / 1e9;
        let micros = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
        let at = Stamp(Wall(Stamp::now().0.0.saturating_add(micros)));
        // Rounded down: what is told is never later than what counts.
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
