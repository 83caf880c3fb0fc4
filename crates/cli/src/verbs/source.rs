//! What a verb asks: a store, or an agent. `--store` means the store; else `--agent`, `TENURE_AGENT` or the usual socket
//! mean an agent; else `TENURE_STORE` or the embedded store.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::history::RoleHistory;
use tenure::operator::{ClusterChange, ClusterSnapshot, ClusterWatch};
use tenure::store::Retry;
use tenure::{Error, Leader, Name, Operator};

use crate::args::Common;
use crate::exit::Exit;
use crate::output::sanitize;
use tenure_agent::client::{Agent, Changes};
use tenure_agent::config::default_socket;
use tenure_agent::model::{ActionOutcome, AuditItem, TaskStatus};

/// A store, or an agent.
#[derive(Debug)]
pub(crate) enum Source {
    /// The registers themselves.
    Store(Operator),
    /// An agent, which looks at them for us.
    Agent(Agent),
}

/// Changes as they come.
pub(crate) enum Watching {
    /// By looking again and again.
    Store(Box<ClusterWatch>),
    /// From an agent's stream.
    Agent(Changes),
}

/// The registers that were named, for people.
fn store_of(common: &Common) -> Result<Operator, Exit> {
    let store = tenure::store::open_read_only(&common.store_url())?;
    Ok(Operator::new(store, common.namespace(), super::whoami()))
}

impl Source {
    /// What was named, on the command line or in the environment.
    ///
    /// # Errors
    /// If it cannot be used, or is a file that is not there: there is nothing to look at, and no agent to ask.
    pub(crate) async fn of(common: &Common) -> Result<Self, Exit> {
        if common.store.is_some() {
            return Ok(Self::Store(store_of(common)?));
        }
        if let Some(named) = common.agent.clone().or_else(|| std::env::var("TENURE_AGENT").ok()) {
            let agent = Agent::connect(&named, common.allow_plaintext_token).await?;
            return match &common.namespace {
                Some(namespace) if *namespace != agent.namespace => {
                    let theirs = &agent.namespace;
                    Err(Exit::No(format!(
                        "cannot use the agent at {named}: it is in namespace {theirs}, not {namespace}"
                    )))
                }
                _ => Ok(Self::Agent(agent)),
            };
        }
        // No agent was named: one that does not answer, or that is elsewhere, is not meant.
        let usual = default_socket();
        if usual.exists()
            && let Ok(agent) = Agent::connect(&usual.display().to_string(), false).await
            && common.namespace.as_ref().is_none_or(|namespace| *namespace == agent.namespace)
        {
            return Ok(Self::Agent(agent));
        }
        Ok(Self::Store(store_of(common)?))
    }

    pub(crate) fn namespace(&self) -> &Name {
        match self {
            Self::Store(operator) => operator.namespace(),
            Self::Agent(agent) => &agent.namespace,
        }
    }

    /// What is asked, for people.
    pub(crate) fn location(&self) -> String {
        match self {
            Self::Store(operator) => operator.store().to_string(),
            Self::Agent(agent) => agent.to_string(),
        }
    }

    pub(crate) async fn snapshot(&self) -> Result<ClusterSnapshot, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.snapshot().await?),
            Self::Agent(agent) => Ok(agent.snapshot().await?),
        }
    }

    pub(crate) async fn history(&self, role: Option<&Name>) -> Result<BTreeMap<Name, RoleHistory>, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.history(role).await?),
            Self::Agent(agent) => Ok(agent.history(role).await?),
        }
    }

    pub(crate) async fn audit(&self) -> Result<Vec<AuditItem>, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.audit().await?.iter().map(AuditItem::from).collect()),
            Self::Agent(agent) => Ok(agent.audit().await?),
        }
    }

    pub(crate) async fn watch(&self) -> Result<Watching, Exit> {
        match self {
            Self::Store(operator) => Ok(Watching::Store(Box::new(operator.watch().await?))),
            Self::Agent(agent) => Ok(Watching::Agent(agent.changes().await?)),
        }
    }

    pub(crate) async fn transfer(
        &self,
        role: &Name,
        to: &Name,
        why: &str,
        wait: Duration,
    ) -> Result<Leader, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.transfer(role, to, why, wait, wait).await?),
            Self::Agent(agent) => Ok(agent.transfer(role, to, why, wait).await?),
        }
    }

    pub(crate) async fn transfer_at(
        &self,
        role: &Name,
        to: &Name,
        why: &str,
        wait: Duration,
        at: &str,
    ) -> Result<ActionOutcome, Exit> {
        match self {
            Self::Store(_) => Err(needs_agent("a transfer at a given time")),
            Self::Agent(agent) => Ok(agent.transfer_at(role, to, why, wait, at).await?),
        }
    }

    pub(crate) async fn step_down(&self, role: &Name, why: &str, wait: Duration) -> Result<Leader, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.step_down(role, why, wait).await?),
            Self::Agent(agent) => Ok(agent.step_down(role, why, wait).await?),
        }
    }

    pub(crate) async fn pause(&self, role: &Name, why: &str, wait: Duration) -> Result<Option<Name>, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.pause(role, why, wait).await?),
            Self::Agent(agent) => Ok(agent.pause(role, why, wait).await?),
        }
    }

    /// The ledgers of all tasks, or of one, with all the runs that are kept.
    pub(crate) async fn tasks(&self, task: Option<&Name>) -> Result<Vec<TaskStatus>, Exit> {
        match self {
            Self::Store(operator) => {
                let records = operator.tasks(task).await?;
                Ok(records.iter().map(|record| TaskStatus::of(record, usize::MAX)).collect())
            }
            Self::Agent(agent) => Ok(agent.tasks(task).await?),
        }
    }

    /// Asks for a run; what the run that answers it carries.
    pub(crate) async fn trigger_task(&self, task: &Name, why: &str) -> Result<String, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.trigger_task(task, why).await?.to_string()),
            Self::Agent(agent) => Ok(agent.trigger_task(task, why).await?),
        }
    }

    /// False if it was paused already.
    pub(crate) async fn pause_task(&self, task: &Name, why: &str) -> Result<bool, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.pause_task(task, why).await?),
            Self::Agent(agent) => Ok(agent.pause_task(task, why).await?),
        }
    }

    /// False if it was not paused.
    pub(crate) async fn resume_task(&self, task: &Name, why: &str) -> Result<bool, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.resume_task(task, why).await?),
            Self::Agent(agent) => Ok(agent.resume_task(task, why).await?),
        }
    }

    /// False if it was not paused.
    pub(crate) async fn resume(&self, role: &Name, why: &str) -> Result<bool, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.resume(role, why).await?),
            Self::Agent(agent) => Ok(agent.resume(role, why).await?),
        }
    }

    pub(crate) async fn forget(&self, role: &Name, why: &str) -> Result<(), Exit> {
        match self {
            Self::Store(operator) => Ok(operator.forget(role, why).await?),
            Self::Agent(agent) => Ok(agent.forget(role, why).await?),
        }
    }

    pub(crate) async fn pin(&self, role: &Name, to: Option<&Name>, why: &str) -> Result<(), Exit> {
        match self {
            Self::Store(operator) => Ok(operator.pin(role, to.cloned(), why).await?),
            Self::Agent(agent) => Ok(agent.pin(role, to, why).await?),
        }
    }

    pub(crate) async fn drain(&self, node: &Name, drain: bool, why: &str) -> Result<(), Exit> {
        match self {
            Self::Store(operator) => Ok(operator.drain(node, drain, why).await?),
            Self::Agent(agent) => Ok(agent.drain(node, drain, why).await?),
        }
    }

    pub(crate) async fn eligible(
        &self,
        role: &Name,
        eligible: bool,
        why: &str,
    ) -> Result<ActionOutcome, Exit> {
        match self {
            Self::Store(_) => Err(needs_agent("the eligibility of a node")),
            Self::Agent(agent) => Ok(agent.eligible(role, eligible, why).await?),
        }
    }

    pub(crate) async fn withdraw_request(&self, role: &Name) -> Result<bool, Exit> {
        match self {
            Self::Store(operator) => Ok(operator.withdraw_request(role).await?),
            Self::Agent(agent) => Ok(agent.withdraw_request(role).await?),
        }
    }
}

fn needs_agent(what: &str) -> Exit {
    Exit::Usage(format!("{what} needs an agent: name one with --agent or TENURE_AGENT"))
}

impl Watching {
    /// The next changes. A store that fails for a moment is waited for.
    pub(crate) async fn next(&mut self) -> Result<Vec<ClusterChange>, Exit> {
        let watch = match self {
            Self::Agent(changes) => return Ok(changes.next().await?),
            Self::Store(watch) => watch,
        };
        let mut reported = false;
        loop {
            match watch.next().await {
                Err(Error::Store(error)) if error.retry() == Retry::Soon => {
                    if !std::mem::replace(&mut reported, true) {
                        anstream::eprintln!("tenure: {}; retrying", sanitize(&error.to_string()));
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                answered => return Ok(answered?),
            }
        }
    }
}
