//! Scheduled tasks as operators see them: the ledger, and asking for a run, a pause, an end of it.

use std::collections::BTreeSet;

use tenure_core::{Key, Kind, Query, Version};

use super::ask::TRIES;
use super::{Act, Operator};
use crate::ledger::{Record, Trigger};
use crate::store::Value;
use crate::{Error, Name, SessionId};

impl Operator {
    /// The ledgers of all tasks, or of one: several, if every node runs it.
    pub async fn tasks(&self, task: Option<&Name>) -> Result<Vec<Record>, Error> {
        let found = self.ledgers(task).await?;
        Ok(found.into_iter().map(|(_, _, record)| record).collect())
    }

    /// Asks for a run at once, whatever the schedule says. The id tells the run in the ledger; it begins when somebody
    /// leads.
    pub async fn trigger_task(&self, task: &Name, why: &str) -> Result<SessionId, Error> {
        self.known(task).await?;
        let (id, order) = (SessionId(crate::clock::nonce()), self.order(why));
        let trigger = Trigger { id, order };
        self.note(Act::TriggerTask, task, None, why).await?;
        self.change_task(task, |record| record.trigger = Some(trigger.clone())).await?;
        Ok(id)
    }

    /// Lets the ticks of a task pass until [`Operator::resume_task`]. False if it was paused already.
    pub async fn pause_task(&self, task: &Name, why: &str) -> Result<bool, Error> {
        let order = self.order(why);
        if self.known(task).await?.iter().any(|record| record.paused.is_none()) {
            self.note(Act::PauseTask, task, None, why).await?;
        }
        self.change_task(task, |record| _ = record.paused.get_or_insert_with(|| order.clone())).await
    }

    /// Lets a paused task run again. False if it was not paused.
    pub async fn resume_task(&self, task: &Name, why: &str) -> Result<bool, Error> {
        if self.known(task).await?.iter().any(|record| record.paused.is_some()) {
            self.note(Act::ResumeTask, task, None, why).await?;
        }
        self.change_task(task, |record| record.paused = None).await
    }

    /// The ledgers of a task that there is.
    async fn known(&self, task: &Name) -> Result<Vec<Record>, Error> {
        let found = self.tasks(Some(task)).await?;
        if found.is_empty() {
            return Err(Error::NoSuchTask { task: task.clone(), namespace: self.namespace.clone() });
        }
        Ok(found)
    }

    async fn ledgers(&self, task: Option<&Name>) -> Result<Vec<(Key, Version, Record)>, Error> {
        let Some(epoch) = super::epoch(&self.store, &self.namespace).await? else { return Ok(Vec::new()) };
        let query = Query { keys: Vec::new(), kinds: vec![(epoch, Kind::Task)] };
        let mut found = Vec::new();
        for entry in self.store.read(&self.namespace, &query).await? {
            match entry.value.parse::<Record>() {
                Ok(record) if task.is_none_or(|task| record.task == *task) => {
                    found.push((entry.key, entry.version, record));
                }
                _ => {}
            }
        }
        found.sort_by(|(_, _, a), (_, _, b)| (&a.task, &a.node).cmp(&(&b.task, &b.node)));
        Ok(found)
    }

    /// Changes the ledgers of a task, on top of whatever they hold. False if there was nothing to change.
    async fn change_task(&self, task: &Name, mut change: impl FnMut(&mut Record)) -> Result<bool, Error> {
        // Each ledger is changed once: a trigger must not be set again where it was answered already.
        let mut done = BTreeSet::new();
        let mut changed = false;
        for _ in 0..TRIES {
            let found = self.ledgers(Some(task)).await?;
            if found.is_empty() {
                return Err(Error::NoSuchTask { task: task.clone(), namespace: self.namespace.clone() });
            }
            let mut outrun = false;
            for (key, version, before) in found {
                let mut record = before.clone();
                change(&mut record);
                if record == before || done.contains(&key) {
                    continue;
                }
                // The token stays as it is, and with it the leader's right to write.
                let token = record.role.is_some().then_some(record.token);
                let put = self.put(key.clone(), Some(version), Some(Value::of(&record, token))).await?;
                (changed, outrun) = (changed | put, outrun | !put);
                if put {
                    done.insert(key);
                }
            }
            if !outrun {
                return Ok(changed);
            }
        }
        Err(Error::Contended(format!("task/{task}")))
    }
}
