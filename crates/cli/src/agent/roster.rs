//! The roster: for which roles this node stands, and who works under each tenure.
//!
//! A role is *held* by the agent itself, for those who ask `/leader`, or *campaigned* for by clients, who share one
//! candidacy: the node is elected once, and one of them gets the tenure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::{Candidate, Lead, Name, Node};
use tokio::task::JoinHandle;

use super::config::{Candidacy, Config, Mode, RoleConfig};

/// See the [module](self).
#[derive(Debug)]
pub struct Roster {
    node: Node,
    labels: BTreeMap<String, String>,
    default: Candidacy,
    places: Mutex<BTreeMap<Name, Place>>,
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
    holder: Option<JoinHandle<()>>,
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
        Self { node, labels, default, places: Mutex::default() }
    }

    /// Stands for these roles, and for no others but those that clients campaign for.
    ///
    /// # Errors
    /// If the library refuses a role.
    pub async fn sync(&self, roles: &[RoleConfig]) -> Result<(), Refused> {
        self.drop_all_but(roles);
        for role in roles {
            if role.mode == Mode::Hold {
                self.hold(role).await?;
            } else {
                self.name(role);
            }
        }
        Ok(())
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Name, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_all_but(&self, roles: &[RoleConfig]) {
        self.places().retain(|name, place| {
            let stays = roles.iter().any(|role| role.name == *name && role.mode == place.role.mode);
            place.named = stays;
            if let (false, Some(holder)) = (stays, place.holder.take()) {
                holder.abort();
                place.candidate = None;
            }
            stays || place.clients > 0
        });
    }

    /// Notes how a role is to be stood for once clients come; changes what can change at once.
    fn name(&self, role: &RoleConfig) {
        let mut places = self.places();
        let place = places.entry(role.name.clone()).or_insert_with(|| Place::new(role));
        place.named = true;
        place.reload(role, self.lacks(&role.candidacy.requires).is_none());
    }

    async fn hold(&self, role: &RoleConfig) -> Result<(), Refused> {
        self.name(role);
        if self.places().get(&role.name).is_some_and(|place| place.holder.is_some()) {
            return Ok(());
        }
        let candidate = self.stand(role).await?;
        let holder = tokio::spawn(lead_it(candidate.clone()));
        let mut places = self.places();
        let place = places.entry(role.name.clone()).or_insert_with(|| Place::new(role));
        (place.candidate, place.holder) = (Some(candidate), Some(holder));
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
        let place = places.entry(name.clone()).or_insert_with(|| Place::new(&role));
        place.clients += 1;
        let candidate = place.candidate.get_or_insert(candidate).clone();
        Ok(Share { roster: self.clone(), candidate, drain: role.candidacy.drain })
    }

    fn role_of(&self, name: &Name) -> Result<RoleConfig, Refused> {
        let named = self.places().get(name).map(|place| place.role.clone());
        let unnamed =
            || RoleConfig { name: name.clone(), mode: Mode::Campaign, candidacy: self.default.clone() };
        let role = named.unwrap_or_else(unnamed);
        if role.mode == Mode::Hold {
            return Err(Refused::Held(name.clone()));
        }
        match self.lacks(&role.candidacy.requires) {
            Some(label) => Err(Refused::Label(name.clone(), label)),
            None => Ok(role),
        }
    }

    fn leave(&self, name: &Name) {
        let mut places = self.places();
        let Some(place) = places.get_mut(name) else { return };
        place.clients = place.clients.saturating_sub(1);
        if place.clients == 0 && place.holder.is_none() {
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
        if let (true, Some(label)) = (eligible, self.lacks(&place.role.candidacy.requires)) {
            return Err(Refused::Label(name.clone(), label));
        }
        place.eligible = Some(eligible);
        if let Some(candidate) = &place.candidate {
            candidate.set_eligible(eligible);
        }
        Ok(())
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
    fn new(role: &RoleConfig) -> Self {
        let role = role.clone();
        Self { role, eligible: None, candidate: None, clients: 0, named: false, holder: None }
    }

    /// Applies what a reload may change.
    fn reload(&mut self, role: &RoleConfig, fits: bool) {
        let Candidacy { eligible, priority, .. } = role.candidacy;
        if let Some(candidate) = &self.candidate {
            if self.eligible.take().unwrap_or(self.role.candidacy.eligible) != eligible {
                candidate.set_eligible(eligible && fits);
            }
            if self.role.candidacy.priority != priority {
                candidate.set_priority(priority);
            }
        }
        (self.role.candidacy.eligible, self.role.candidacy.priority) = (eligible, priority);
    }
}

/// Leads whenever elected. There is no work here that would have to stop first.
pub(super) async fn lead_it(candidate: Candidate) {
    while let Some(tenure) = candidate.elected().await {
        let _ = tenure.hold(|lead| async move { lead.draining().await }).await;
    }
}
