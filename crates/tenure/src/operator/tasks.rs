//! Scheduled tasks as operators see them: the ledger, and asking for a run, a pause, an end of it.

use tenure_core::{Key, Kind};

use super::update::Update;
use super::{Operator, OperatorAction};
use crate::ledger::{TaskRecord, TaskTrigger};
use crate::store::{Entry, Value};
use crate::{Error, Name, SessionId};

impl Operator {
    /// The ledgers of all tasks, or of one: several, if every node runs it.
    pub async fn tasks(&self, task: Option<&Name>) -> Result<Vec<TaskRecord>, Error> {
        let found = self.ledgers(task).await?;
        Ok(found.into_iter().map(|(_, record)| record).collect())
    }

    /// Asks for a run at once, whatever the schedule says. The id identifies the run in the ledger; the run begins when the role
    /// has a leader.
    pub async fn trigger_task(&self, task: &Name, why: &str) -> Result<SessionId, Error> {
        self.known(task).await?;
        let (id, order) = (SessionId::new(crate::store::entropy::nonce()), self.order(why));
        let trigger = TaskTrigger { id, order };
        self.record_action(OperatorAction::TriggerTask, task, None, why).await?;
        self.change_task(task, |record| record.trigger = Some(trigger.clone())).await?;
        Ok(id)
    }

    /// Lets the ticks of a task pass until [`Operator::resume_task`]. False if it was paused already.
    pub async fn pause_task(&self, task: &Name, why: &str) -> Result<bool, Error> {
        let order = self.order(why);
        if self.known(task).await?.iter().any(|record| record.paused.is_none()) {
            self.record_action(OperatorAction::PauseTask, task, None, why).await?;
        }
        self.change_task(task, |record| _ = record.paused.get_or_insert_with(|| order.clone())).await
    }

    /// Lets a paused task run again. False if it was not paused.
    pub async fn resume_task(&self, task: &Name, why: &str) -> Result<bool, Error> {
        if self.known(task).await?.iter().any(|record| record.paused.is_some()) {
            self.record_action(OperatorAction::ResumeTask, task, None, why).await?;
        }
        self.change_task(task, |record| record.paused = None).await
    }

    /// The ledgers of a task that there is.
    async fn known(&self, task: &Name) -> Result<Vec<TaskRecord>, Error> {
        let found = self.tasks(Some(task)).await?;
        if found.is_empty() {
            return Err(Error::NoSuchTask { task: task.clone(), namespace: self.namespace.clone() });
        }
        Ok(found)
    }

    async fn ledgers(&self, task: Option<&Name>) -> Result<Vec<(Key, TaskRecord)>, Error> {
        let Some((_, entries)) = self.read_kinds(&[Kind::Task]).await? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in entries {
            match entry.value.parse::<TaskRecord>() {
                Ok(record) if task.is_none_or(|task| record.task == *task) => {
                    found.push((entry.key, record));
                }
                _ => {}
            }
        }
        found.sort_by(|(_, a), (_, b)| (&a.task, &a.node).cmp(&(&b.task, &b.node)));
        Ok(found)
    }

    /// Changes the ledgers of a task, on top of whatever they hold. False if there was nothing to change.
    async fn change_task(&self, task: &Name, mut change: impl FnMut(&mut TaskRecord)) -> Result<bool, Error> {
        let ledgers = self.ledgers(Some(task)).await?;
        if ledgers.is_empty() {
            return Err(Error::NoSuchTask { task: task.clone(), namespace: self.namespace.clone() });
        }
        let mut changed = false;
        // Each ledger is changed once: a trigger must not be set again where it was answered already.
        for (key, _) in ledgers {
            let change = |found: Option<&Entry>| {
                let before = found.and_then(|entry| entry.value.parse::<TaskRecord>().ok());
                let Some(before) = before.filter(|record| record.task == *task) else {
                    return Update::Keep(false);
                };
                let mut record = before.clone();
                change(&mut record);
                if record == before {
                    return Update::Keep(false);
                }
                // The token stays as it is, and with it the leader's right to write.
                let token = record.role.is_some().then_some(record.token);
                Update::Put(Some(Value::of(&record, token)), true)
            };
            changed |= self.update(key, change).await?;
        }
        Ok(changed)
    }
}
