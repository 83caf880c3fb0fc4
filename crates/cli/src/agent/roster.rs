//! The roster: for which roles this node stands, and who works under each tenure.
//!
//! A role is *held* by the agent itself, for its work and its tasks and for those who ask `/leader`, or *campaigned* for by
//! clients, who share one candidacy: the node is elected once, and one of them gets the tenure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use tenure::schedule::{BadTask, Counters, Schedule, TaskSettings};
use tenure::work::Mode as Migration;
use tenure::{Candidate, Lead, Name, Node};
use tokio::sync::watch;

use super::config::{Candidacy, Config, Mode, RoleConfig};
use super::work::{Holder, Plan};

/// So many roles are stood for at once, so that ten thousand do not wait for each other.
const TOGETHER: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub struct Roster {
    node: Node,
    labels: BTreeMap<String, String>,
    default: Candidacy,
    places: Mutex<BTreeMap<Name, Place>>,
    /// What this process counted about tasks, of all roles.
    counters: Counters,
    /// The tasks of every node.
    everywhere: Schedule,
}

#[derive(Debug)]
struct Place {
    role: RoleConfig,
    /// What an operator said about it, until a reload.
    eligible: Option<bool>,
    candidate: Option<Candidate>,
    /// How many clients campaign.
    clients: usize,
    /// Whether it stands in the configuration.
    named: bool,
    /// What the agent itself does while it leads; letting go of it makes it give up and leave.
    held: Option<watch::Sender<Arc<Plan>>>,
    schedule: Schedule,
}

/// Why a client cannot campaign, or an operator cannot change something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The agent leads it itself.
    #[error("this agent itself leads {0}; `mode = \"campaign\"` in its [[role]] leaves it to clients")]
    Held(Name),
    /// This node does not stand for it.
    #[error("this node does not stand for {0}")]
    NotStanding(Name),
    /// It is switched off.
    #[error("{0} is switched off here: `migration = \"off\"` in its [[role]]")]
    Off(Name),
    /// Another node leads by decree.
    #[error("{0} is led by {1}: `static-leader` in its [[role]]")]
    Decreed(Name, Name),
    /// A label is missing.
    #[error("this node lacks the label {1} that {0} requires")]
    Label(Name, String),
    /// The library refused.
    #[error("{0}")]
    Other(String),
}

/// A client's share in a candidacy.
#[derive(Debug)]
pub struct Share {
    roster: Arc<Roster>,
    /// The candidacy.
    pub candidate: Candidate,
    /// How long the client may take to wind down.
    pub drain: std::time::Duration,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.roster.leave(self.candidate.role());
    }
}

impl Roster {
    /// Stands for nothing yet.
    #[must_use]
    pub fn new(node: Node, config: &Config) -> Self {
        let (labels, default) = (config.node.labels.clone(), config.candidacy.clone());
        let (counters, places) = (Counters::default(), Mutex::default());
        let everywhere = Schedule::counting(counters.clone());
        Self { node, labels, default, places, counters, everywhere }
    }

    /// What this process counted about tasks.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Runs these tasks on every node from now on.
    ///
    /// # Errors
    /// If one of them cannot be.
    pub fn sync_everywhere(&self, tasks: &[TaskSettings]) -> Result<(), Refused> {
        replace(&self.everywhere, tasks)
    }

    /// Runs the tasks of every node, until told to stop; then they have the drain time to finish.
    pub async fn run_everywhere(&self, stop: impl Future<Output = ()>) {
        self.everywhere.everywhere_until(&self.node, stop, self.default.drain).await;
    }

    /// Stands for these roles, and for no others but those that clients campaign for.
    ///
    /// # Errors
    /// If the library refuses a role.
    pub async fn sync(&self, roles: &[RoleConfig]) -> Result<(), Refused> {
        self.drop_all_but(roles);
        self.expect(roles)?;
        let held = |role: &&RoleConfig| role.mode == Mode::Hold && role.migration != Migration::Off;
        let held: Vec<&RoleConfig> = roles.iter().filter(held).collect();
        for some in held.chunks(TOGETHER) {
            try_join_all(some.iter().map(|role| self.hold(role))).await?;
        }
        Ok(())
    }

    /// Knows these roles from now on, before it stands for any: a role that the agent is to hold is never a client's.
    ///
    /// # Errors
    /// If a task of a role cannot be.
    pub fn expect(&self, roles: &[RoleConfig]) -> Result<(), Refused> {
        roles.iter().try_for_each(|role| self.name(role))
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Name, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_all_but(&self, roles: &[RoleConfig]) {
        let wanted: BTreeMap<&Name, &RoleConfig> = roles.iter().map(|role| (&role.name, role)).collect();
        self.places().retain(|name, place| {
            let stays = wanted.get(name).is_some_and(|role| place.role.stands_like(role));
            place.named = stays;
            if !stays && place.held.take().is_some() {
                place.candidate = None;
            }
            stays || place.clients > 0
        });
    }

    /// Notes how a role is to be stood for once clients come; changes what can change at once.
    fn name(&self, role: &RoleConfig) -> Result<(), Refused> {
        let mut places = self.places();
        let place = places.entry(role.name.clone()).or_insert_with(|| self.place(role));
        place.named = true;
        place.reload(role, self.refusal(role).is_none())
    }

    fn place(&self, role: &RoleConfig) -> Place {
        let (role, schedule) = (role.clone(), Schedule::counting(self.counters.clone()));
        Place { role, eligible: None, candidate: None, clients: 0, named: false, held: None, schedule }
    }

    async fn hold(&self, role: &RoleConfig) -> Result<(), Refused> {
        if self.places().get(&role.name).is_some_and(|place| place.held.is_some()) {
            return Ok(());
        }
        let candidate = self.stand(role).await?;
        let mut places = self.places();
        let place = places.entry(role.name.clone()).or_insert_with(|| self.place(role));
        let (held, plans) = watch::channel(Arc::new(Plan::of(role)));
        let (node, schedule) = (self.node.clone(), place.schedule.clone());
        tokio::spawn(Holder { node, candidate: candidate.clone(), plans, schedule }.hold());
        (place.candidate, place.held) = (Some(candidate), Some(held));
        Ok(())
    }

    async fn stand(&self, role: &RoleConfig) -> Result<Candidate, Refused> {
        let Candidacy { eligible, priority, preempt, takeover_delay, min_tenure, cool_down, drain, requires } =
            &role.candidacy;
        let mut builder = self
            .node
            .stand(role.name.as_str())
            .eligible(*eligible)
            .priority(*priority)
            .preempt(*preempt)
            .takeover_delay(*takeover_delay)
            .min_tenure(*min_tenure)
            .drain(*drain);
        if let Some(cool_down) = cool_down {
            builder = builder.cool_down(*cool_down);
        }
        for (key, value) in requires {
            builder = builder.require_label(key, value);
        }
        if let Some(leader) = &role.static_leader {
            builder = builder.static_leader(leader);
        }
        builder.start().await.map_err(|error| Refused::Other(error.to_string()))
    }

    /// A client's share in the candidacy for a role.
    ///
    /// # Errors
    /// If the agent holds the role itself, or this node may not lead it.
    pub async fn campaign(self: &Arc<Self>, name: &Name) -> Result<Share, Refused> {
        let role = self.role_of(name)?;
        let candidate = match self.candidate(name) {
            Some(candidate) => candidate,
            None => self.stand(&role).await?,
        };
        let mut places = self.places();
        let place = places.entry(name.clone()).or_insert_with(|| self.place(&role));
        place.clients += 1;
        let candidate = place.candidate.get_or_insert(candidate).clone();
        Ok(Share { roster: self.clone(), candidate, drain: role.candidacy.drain })
    }

    fn role_of(&self, name: &Name) -> Result<RoleConfig, Refused> {
        let named = self.places().get(name).map(|place| place.role.clone());
        let unnamed = || RoleConfig::new(name.clone(), Mode::Campaign, self.default.clone());
        let role = named.unwrap_or_else(unnamed);
        if role.mode == Mode::Hold {
            return Err(Refused::Held(name.clone()));
        }
        match self.refusal(&role) {
            Some(refused) => Err(refused),
            None => Ok(role),
        }
    }

    fn leave(&self, name: &Name) {
        let mut places = self.places();
        let Some(place) = places.get_mut(name) else { return };
        place.clients = place.clients.saturating_sub(1);
        if place.clients == 0 && place.held.is_none() {
            place.candidate = None;
            if !place.named {
                places.remove(name);
            }
        }
    }

    /// Claims a role, or only follows, until a reload says otherwise.
    ///
    /// # Errors
    /// If this node does not stand for it, or may not.
    pub fn set_eligible(&self, name: &Name, eligible: bool) -> Result<(), Refused> {
        let mut places = self.places();
        let place = places.get_mut(name).ok_or_else(|| Refused::NotStanding(name.clone()))?;
        if let (true, Some(refused)) = (eligible, self.refusal(&place.role)) {
            return Err(refused);
        }
        place.eligible = Some(eligible);
        if let Some(candidate) = &place.candidate {
            candidate.set_eligible(eligible);
        }
        Ok(())
    }

    /// Why this node may not lead a role, if it may not.
    fn refusal(&self, role: &RoleConfig) -> Option<Refused> {
        let name = || role.name.clone();
        if role.migration == Migration::Off {
            return Some(Refused::Off(name()));
        }
        if let Some(leader) = role.static_leader.as_ref().filter(|leader| *leader != self.node.name()) {
            return Some(Refused::Decreed(name(), leader.clone()));
        }
        self.lacks(&role.candidacy.requires).map(|label| Refused::Label(name(), label))
    }

    fn lacks(&self, requires: &BTreeMap<String, String>) -> Option<String> {
        let missing = requires.iter().find(|(key, value)| self.labels.get(*key) != Some(value));
        missing.map(|(key, value)| format!("{key}={value}"))
    }

    fn candidate(&self, name: &Name) -> Option<Candidate> {
        self.places().get(name)?.candidate.clone()
    }

    /// Leadership of a role, if this node has it at this very moment.
    #[must_use]
    pub fn lead(&self, name: &Name) -> Option<Lead> {
        self.candidate(name)?.lead()
    }

    /// Every role that this node stands for, with leadership where it has it.
    #[must_use]
    pub fn leads(&self) -> Vec<(Name, Option<Lead>)> {
        let places = self.places();
        let standing = places.iter().filter_map(|(name, place)| Some((name, place.candidate.as_ref()?)));
        standing.map(|(name, candidate)| (name.clone(), candidate.lead())).collect()
    }
}

impl Place {
    /// Applies what a reload may change.
    fn reload(&mut self, role: &RoleConfig, fits: bool) -> Result<(), Refused> {
        let Candidacy { eligible, priority, .. } = role.candidacy;
        let former = self.eligible.take().unwrap_or(self.role.candidacy.eligible);
        if let Some(candidate) = &self.candidate {
            if former != eligible || self.role.static_leader != role.static_leader {
                candidate.set_eligible(eligible && fits);
            }
            if self.role.candidacy.priority != priority {
                candidate.set_priority(priority);
            }
        }
        let candidacy = Candidacy { eligible, priority, ..self.role.candidacy.clone() };
        self.role = RoleConfig { candidacy, ..role.clone() };
        if let Some(held) = &self.held {
            let plan = Arc::new(Plan::of(role));
            held.send_if_modified(|had| {
                let other = *had != plan;
                *had = plan;
                other
            });
        }
        replace(&self.schedule, &role.tasks)
    }
}

/// Gives a schedule other tasks, if they are others: what is as it was is not disturbed.
fn replace(schedule: &Schedule, tasks: &[TaskSettings]) -> Result<(), Refused> {
    let mut wanted: Vec<&TaskSettings> = tasks.iter().collect();
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    if schedule.tasks().iter().map(|task| task.settings()).eq(wanted) {
        return Ok(());
    }
    let made: Result<Vec<_>, BadTask> = tasks.iter().cloned().map(crate::task::of_settings).collect();
    made.and_then(|tasks| schedule.replace(tasks)).map_err(|error| Refused::Other(error.to_string()))
}
