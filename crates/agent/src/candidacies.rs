//! Candidacies: the roles this node is a candidate for, and who works under each tenure.
//!
//! A role is *held* by the agent itself, for its work and its tasks and for those who ask `/leader`, or *campaigned* for by
//! clients, who share one candidacy: the node is elected once, and one of them gets the tenure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use tenure::schedule::{Schedule, TaskCounters, TaskError};
use tenure::work::WorkMode as Migration;
use tenure::{Candidate, Lead, Name, Node};
use tokio::sync::watch;

use super::config::{CandidacyConfig, Config, Mode, RoleConfig};
use super::work::{RoleHolder, WorkPlan};
use crate::outbound::Outbound;
use crate::task::TaskConfig;

/// So many roles are stood for at once, so that ten thousand do not wait for each other.
const START_BATCH: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub struct Candidacies {
    node: Node,
    labels: BTreeMap<String, String>,
    default: CandidacyConfig,
    default_migration: Migration,
    entries: Mutex<BTreeMap<Name, RoleEntry>>,
    /// What this process counted about tasks, of all roles.
    counters: TaskCounters,
    /// The tasks of every node.
    on_every_node: TaskSchedule,
    /// How others are called.
    outbound: Arc<Outbound>,
}

#[derive(Debug)]
struct RoleEntry {
    role: RoleConfig,
    /// What an operator said about it, until a reload.
    eligible: Option<bool>,
    candidate: Option<Candidate>,
    /// How many clients campaign.
    clients: usize,
    /// Whether it stands in the configuration.
    named: bool,
    /// What the agent itself does while it leads; letting go of it makes it give up and leave.
    held: Option<watch::Sender<Arc<WorkPlan>>>,
    tasks: TaskSchedule,
}

/// Why a client cannot campaign, or an operator cannot change something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CandidacyError {
    /// The agent leads it itself.
    #[error("cannot campaign for {0}: this agent leads it itself; set `mode = \"campaign\"` in its [[role]]")]
    Held(Name),
    /// This node does not stand for it.
    #[error("this node is not a candidate for {0}")]
    NotCandidate(Name),
    /// It is switched off.
    #[error("{0} is off on this node: `migration = \"off\"` in its [[role]] or in [candidacy]")]
    Off(Name),
    /// Another node leads by decree.
    #[error("only {1} may lead {0}: `static-leader` in its [[role]]")]
    StaticLeader(Name, Name),
    #[error("this node may not lead {0}: it lacks the label {1}")]
    MissingLabel(Name, String),
    /// The library refused.
    #[error("{0}")]
    Other(String),
}

/// A client's share in a candidacy.
#[derive(Debug)]
pub struct SharedCandidacy {
    candidacies: Arc<Candidacies>,
    /// The candidacy.
    pub candidate: Candidate,
    /// How long the client may take to wind down.
    pub drain: std::time::Duration,
}

impl Drop for SharedCandidacy {
    fn drop(&mut self) {
        self.candidacies.leave(self.candidate.role());
    }
}

impl Candidacies {
    /// Stands for nothing yet.
    #[must_use]
    pub fn new(node: Node, config: &Config) -> Self {
        let (labels, default) = (config.node.labels.clone(), config.candidacy.clone());
        let (counters, entries) = (TaskCounters::default(), Mutex::default());
        let on_every_node = TaskSchedule::counting(&counters);
        let outbound = Arc::new(config.outbound.clone());
        let default_migration = config.migration;
        Self { node, labels, default, default_migration, entries, counters, on_every_node, outbound }
    }

    /// What this process counted about tasks.
    #[must_use]
    pub fn counters(&self) -> &TaskCounters {
        &self.counters
    }

    /// Runs these tasks on every node from now on.
    ///
    /// # Errors
    /// If one of them cannot be.
    pub fn sync_on_every_node(&self, tasks: &[TaskConfig]) -> Result<(), CandidacyError> {
        self.on_every_node.replace(tasks, &self.outbound)
    }

    /// Runs the tasks of every node, until told to stop; then they have the drain time to finish.
    pub async fn run_on_every_node(&self, stop: impl Future<Output = ()>) {
        self.on_every_node.schedule.run_on_every_node_until(&self.node, stop, self.default.drain).await;
    }

    /// Stands for these roles, and for no others but those that clients campaign for.
    ///
    /// # Errors
    /// If the library refuses a role.
    pub async fn sync(&self, roles: &[RoleConfig]) -> Result<(), CandidacyError> {
        self.retain_only(roles);
        self.register_all(roles)?;
        let held = |role: &&RoleConfig| role.mode == Mode::Hold && role.migration != Migration::Off;
        let held: Vec<&RoleConfig> = roles.iter().filter(held).collect();
        for some in held.chunks(START_BATCH) {
            try_join_all(some.iter().map(|role| self.hold(role))).await?;
        }
        Ok(())
    }

    /// Knows these roles from now on, before it stands for any: a role that the agent is to hold is never a client's.
    ///
    /// # Errors
    /// If a task of a role cannot be.
    pub fn register_all(&self, roles: &[RoleConfig]) -> Result<(), CandidacyError> {
        roles.iter().try_for_each(|role| self.register(role))
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Name, RoleEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retain_only(&self, roles: &[RoleConfig]) {
        let wanted: BTreeMap<&Name, &RoleConfig> = roles.iter().map(|role| (&role.name, role)).collect();
        self.entries().retain(|name, entry| {
            let stays = wanted.get(name).is_some_and(|role| entry.role.stands_like(role));
            entry.named = stays;
            if !stays && entry.held.take().is_some() {
                entry.candidate = None;
            }
            stays || entry.clients > 0
        });
    }

    /// Notes how a role is to be stood for once clients come; changes what can change at once.
    fn register(&self, role: &RoleConfig) -> Result<(), CandidacyError> {
        let mut entries = self.entries();
        let entry = entries.entry(role.name.clone()).or_insert_with(|| self.entry(role));
        entry.named = true;
        entry.reload(role, self.ineligibility(role).is_none(), &self.outbound)
    }

    fn entry(&self, role: &RoleConfig) -> RoleEntry {
        let (role, tasks) = (role.clone(), TaskSchedule::counting(&self.counters));
        RoleEntry { role, eligible: None, candidate: None, clients: 0, named: false, held: None, tasks }
    }

    async fn hold(&self, role: &RoleConfig) -> Result<(), CandidacyError> {
        if self.entries().get(&role.name).is_some_and(|entry| entry.held.is_some()) {
            return Ok(());
        }
        let candidate = self.start_candidate(role).await?;
        let mut entries = self.entries();
        let entry = entries.entry(role.name.clone()).or_insert_with(|| self.entry(role));
        let (held, plans) = watch::channel(Arc::new(WorkPlan::of(role, &self.outbound)));
        let (node, schedule) = (self.node.clone(), entry.tasks.schedule.clone());
        tokio::spawn(RoleHolder { node, candidate: candidate.clone(), plans, schedule }.hold());
        (entry.candidate, entry.held) = (Some(candidate), Some(held));
        Ok(())
    }

    async fn start_candidate(&self, role: &RoleConfig) -> Result<Candidate, CandidacyError> {
        let CandidacyConfig {
            eligible,
            priority,
            preempt,
            takeover_delay,
            min_tenure,
            cool_down,
            drain,
            requires,
        } = &role.candidacy;
        let mut builder = self
            .node
            .candidate(role.name.as_str())
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
        let other = |error: tenure::Error| CandidacyError::Other(error.to_string());
        if let Some(url) = &role.guard {
            let lock = tenure::guard::open(url, self.node.name()).map_err(|error| other(error.into()))?;
            builder = builder.guard(lock);
        }
        builder.await.map_err(other)
    }

    /// A client's share in the candidacy for a role.
    ///
    /// # Errors
    /// If the agent holds the role itself, or this node may not lead it.
    pub async fn campaign(self: &Arc<Self>, name: &Name) -> Result<SharedCandidacy, CandidacyError> {
        let role = self.role_of(name)?;
        let candidate = match self.candidate(name) {
            Some(candidate) => candidate,
            None => self.start_candidate(&role).await?,
        };
        let mut entries = self.entries();
        let entry = entries.entry(name.clone()).or_insert_with(|| self.entry(&role));
        entry.clients += 1;
        let candidate = entry.candidate.get_or_insert(candidate).clone();
        Ok(SharedCandidacy { candidacies: self.clone(), candidate, drain: role.candidacy.drain })
    }

    fn role_of(&self, name: &Name) -> Result<RoleConfig, CandidacyError> {
        let named = self.entries().get(name).map(|entry| entry.role.clone());
        let unnamed = || {
            let role = RoleConfig::new(name.clone(), Mode::Campaign, self.default.clone());
            RoleConfig { migration: self.default_migration, ..role }
        };
        let role = named.unwrap_or_else(unnamed);
        if role.mode == Mode::Hold {
            return Err(CandidacyError::Held(name.clone()));
        }
        match self.ineligibility(&role) {
            Some(refused) => Err(refused),
            None => Ok(role),
        }
    }

    fn leave(&self, name: &Name) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(name) else { return };
        entry.clients = entry.clients.saturating_sub(1);
        if entry.clients == 0 && entry.held.is_none() {
            entry.candidate = None;
            if !entry.named {
                entries.remove(name);
            }
        }
    }

    /// Claims a role, or only follows, until a reload says otherwise.
    ///
    /// # Errors
    /// If this node does not stand for it, or may not.
    pub fn set_eligible(&self, name: &Name, eligible: bool) -> Result<(), CandidacyError> {
        let mut entries = self.entries();
        let entry = entries.get_mut(name).ok_or_else(|| CandidacyError::NotCandidate(name.clone()))?;
        if let (true, Some(refused)) = (eligible, self.ineligibility(&entry.role)) {
            return Err(refused);
        }
        entry.eligible = Some(eligible);
        if let Some(candidate) = &entry.candidate {
            candidate.set_eligible(eligible);
        }
        Ok(())
    }

    /// Why this node may not lead a role, if it may not.
    fn ineligibility(&self, role: &RoleConfig) -> Option<CandidacyError> {
        let name = || role.name.clone();
        if role.migration == Migration::Off {
            return Some(CandidacyError::Off(name()));
        }
        if let Some(leader) = role.static_leader.as_ref().filter(|leader| *leader != self.node.name()) {
            return Some(CandidacyError::StaticLeader(name(), leader.clone()));
        }
        self.missing_label(&role.candidacy.requires).map(|label| CandidacyError::MissingLabel(name(), label))
    }

    fn missing_label(&self, requires: &BTreeMap<String, String>) -> Option<String> {
        let missing = requires.iter().find(|(key, value)| self.labels.get(*key) != Some(value));
        missing.map(|(key, value)| format!("{key}={value}"))
    }

    fn candidate(&self, name: &Name) -> Option<Candidate> {
        self.entries().get(name)?.candidate.clone()
    }

    /// Leadership of a role, if this node has it at this very moment.
    #[must_use]
    pub fn lead(&self, name: &Name) -> Option<Lead> {
        self.candidate(name)?.lead()
    }

    /// Whether this node only shadows a role: it elects and records, and runs nothing.
    #[must_use]
    pub fn is_in_shadow(&self, name: &Name) -> bool {
        self.entries().get(name).is_some_and(|entry| entry.role.migration == Migration::Shadow)
    }

    /// Every role that this node stands for, with leadership where it has it; in the shadow it has none.
    #[must_use]
    pub fn leads(&self) -> Vec<(Name, Option<Lead>)> {
        let lead = |(name, entry): (&Name, &RoleEntry)| {
            let candidate = entry.candidate.as_ref()?;
            let works = entry.role.migration != Migration::Shadow;
            Some((name.clone(), works.then(|| candidate.lead()).flatten()))
        };
        self.entries().iter().filter_map(lead).collect()
    }
}

impl RoleEntry {
    /// Applies what a reload may change.
    fn reload(
        &mut self,
        role: &RoleConfig,
        fits: bool,
        outbound: &Arc<Outbound>,
    ) -> Result<(), CandidacyError> {
        let CandidacyConfig { eligible, priority, .. } = role.candidacy;
        let former = self.eligible.take().unwrap_or(self.role.candidacy.eligible);
        if let Some(candidate) = &self.candidate {
            if former != eligible || self.role.static_leader != role.static_leader {
                candidate.set_eligible(eligible && fits);
            }
            if self.role.candidacy.priority != priority {
                candidate.set_priority(priority);
            }
        }
        let candidacy = CandidacyConfig { eligible, priority, ..self.role.candidacy.clone() };
        self.role = RoleConfig { candidacy, ..role.clone() };
        if let Some(held) = &self.held {
            let plan = Arc::new(WorkPlan::of(role, outbound));
            held.send_if_modified(|had| {
                let other = *had != plan;
                *had = plan;
                other
            });
        }
        self.tasks.replace(&role.tasks, outbound)
    }
}

/// A schedule, and the tasks of the configuration that are in it.
#[derive(Debug)]
struct TaskSchedule {
    schedule: Schedule,
    tasks: Mutex<Vec<TaskConfig>>,
}

impl TaskSchedule {
    fn counting(counters: &TaskCounters) -> Self {
        Self { schedule: Schedule::counting(counters.clone()), tasks: Mutex::default() }
    }

    /// Gives it other tasks, if they are others: what is as it was is not disturbed.
    fn replace(&self, tasks: &[TaskConfig], outbound: &Outbound) -> Result<(), CandidacyError> {
        let mut wanted = tasks.to_vec();
        wanted.sort_by(|a, b| a.settings.name.cmp(&b.settings.name));
        let mut current = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == wanted {
            return Ok(());
        }
        let made: Result<Vec<_>, TaskError> = wanted.iter().map(|task| task.task(outbound)).collect();
        made.and_then(|tasks| self.schedule.replace(tasks))
            .map_err(|error| CandidacyError::Other(error.to_string()))?;
        *current = wanted;
        Ok(())
    }
}
