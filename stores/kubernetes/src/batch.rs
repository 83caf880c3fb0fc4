//! A batch of writes: one request for each, some of them at once. The API has no transactions, and the contract asks for none.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use futures_util::stream;
use serde::Serialize;
use tokio::time::Instant;

use super::STORE;
use super::connection::{Cluster, Effect, Question, Reply};
use super::keys::Keys;
use super::leases::{Held, LONGEST, Lease};
use super::rows::read_one;
use tenure_store::kit::rules::{WriteDecision, decide, refused_outright};
use tenure_store::{Key, Name, Outcome, StoreError, Write};

/// Requests at once: as many as there are connections that are kept open.
const AT_ONCE: usize = 8;

/// Carries out a batch. Writes on one register go one after the other, all others beside each other.
pub(super) async fn write(
    cluster: &Cluster,
    keys: &Keys,
    namespace: &Name,
    writes: &[Write],
) -> Vec<Outcome> {
    let mut registers: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
    for (nth, write) in writes.iter().enumerate() {
        registers.entry(&write.key).or_default().push(nth);
    }
    let on_register = |places: Vec<usize>| async move {
        let mut outcomes = Vec::new();
        for nth in places {
            outcomes.push((nth, Attempt { cluster, keys, namespace, write: &writes[nth] }.outcome().await));
        }
        outcomes
    };
    let done = stream::iter(registers.into_values()).map(on_register).buffer_unordered(AT_ONCE);
    let mut outcomes: Vec<_> = done.collect::<Vec<_>>().await.into_iter().flatten().collect();
    outcomes.sort_by_key(|(nth, _)| *nth);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// One write under way.
struct Attempt<'a> {
    cluster: &'a Cluster,
    keys: &'a Keys,
    namespace: &'a Name,
    write: &'a Write,
}

/// What one request came to.
enum Step {
    Over(Outcome),
    /// The Lease is not as it was known: it has to be read.
    Read,
}

/// The uid and the revision that a Lease has to have to be deleted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions<'a> {
    kind: &'static str,
    api_version: &'static str,
    preconditions: Preconditions<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions<'a> {
    uid: &'a str,
    resource_version: String,
}

impl Attempt<'_> {
    async fn outcome(&self) -> Outcome {
        if let Some(why) = refused_outright(STORE, self.write).or_else(|| too_long(self.write)) {
            return Outcome::Failed(why);
        }
        self.carry_out().await.unwrap_or_else(Outcome::Failed)
    }

    /// Compares and sets. A revision belongs to one state of a Lease, and so to one version: what is known of it from an answer
    /// before makes the comparison one request. A program that touched the Lease without changing the register makes it two more.
    async fn carry_out(&self) -> Result<Outcome, StoreError> {
        let until = Instant::now() + self.cluster.settings.timeout;
        let name = self.keys.lease(self.namespace, &self.write.key);
        let mut known = match (self.write.expect, &self.write.put) {
            (None, Some(_)) => match self.create().await? {
                Step::Over(outcome) => return Ok(outcome),
                Step::Read => None,
            },
            (Some(_), Some(_)) => {
                self.cluster.held(&name).filter(|held| Some(held.version) == self.write.expect)
            }
            (_, None) => None,
        };
        loop {
            let step = match known.take() {
                Some(held) => self.replace(&held).await?,
                None => self.read_and_decide().await?,
            };
            match step {
                Step::Over(outcome) => return Ok(outcome),
                Step::Read if Instant::now() >= until => {
                    let message = "another program changes this Lease all the time: see who writes it";
                    return Err(StoreError::not_applied(STORE, message));
                }
                Step::Read => {}
            }
        }
    }

    async fn create(&self) -> Result<Step, StoreError> {
        let Some(lease) = Lease::of_write(self.keys, self.namespace, self.write) else {
            return Ok(Step::Read);
        };
        let question = Question::with("POST", self.cluster.settings.leases(), &lease);
        self.send(&question, &lease.metadata.name).await
    }

    async fn replace(&self, held: &Held) -> Result<Step, StoreError> {
        if let WriteDecision::Refuse(why) = decide(STORE, self.write, Some((held.version, held.token))) {
            return Ok(Step::Over(Outcome::Failed(why)));
        }
        let Some(lease) = Lease::of_write(self.keys, self.namespace, self.write) else {
            return Ok(Step::Read);
        };
        let lease = lease.replacing(held);
        let question = Question::with("PUT", self.path(&lease.metadata.name), &lease);
        self.send(&question, &lease.metadata.name).await
    }

    /// Sends a Lease. What is known of it afterwards is what the server says.
    async fn send(&self, question: &Question, name: &str) -> Result<Step, StoreError> {
        let before = self.cluster.revision();
        match self.cluster.ask(Effect::Writes, question).await? {
            Reply::Done(body) => {
                let lease: Lease = serde_json::from_slice(&body).map_err(|_| self.cluster.strange())?;
                let entry = lease.entry(self.namespace, &self.write.key);
                if let Some(held) = lease.held(&entry) {
                    self.cluster.note_written(before, held.revision);
                    self.cluster.remember(name, held);
                }
                Ok(Step::Over(Outcome::Applied))
            }
            Reply::Absent | Reply::Conflict => {
                self.cluster.forget(name);
                Ok(Step::Read)
            }
            Reply::Gone => Err(self.cluster.strange()),
        }
    }

    /// Reads the register, decides as every store does, and carries it out on what was read.
    async fn read_and_decide(&self) -> Result<Step, StoreError> {
        let found = read_one(self.cluster, self.keys, self.namespace, &self.write.key).await?;
        let current = found.as_ref().map(|(_, entry)| (entry.version, entry.value.token));
        match (decide(STORE, self.write, current), found) {
            (WriteDecision::Refuse(why), _) => Ok(Step::Over(Outcome::Failed(why))),
            (WriteDecision::Conflict, found) => {
                Ok(Step::Over(Outcome::Conflict(found.map(|(_, entry)| entry))))
            }
            (WriteDecision::Apply, None) if self.write.put.is_none() => Ok(Step::Over(Outcome::Applied)),
            (WriteDecision::Apply, None) => self.create().await,
            (WriteDecision::Apply, Some((lease, entry))) => {
                let held = lease.held(&entry).ok_or_else(|| self.cluster.strange())?;
                match self.write.put {
                    Some(_) => self.replace(&held).await,
                    None => self.delete(lease, held).await,
                }
            }
        }
    }

    /// Deletes a Lease. Watches are shown the state before, so that this one has to say whether they are to tell.
    async fn delete(&self, lease: Lease, mut held: Held) -> Result<Step, StoreError> {
        let path = self.path(&lease.metadata.name);
        if lease.notifies() != self.write.notify {
            let marked = lease.with_notify(self.write.notify);
            match self.cluster.ask(Effect::Writes, &Question::with("PUT", path.clone(), &marked)).await {
                Ok(Reply::Done(body)) => {
                    let now: Lease = serde_json::from_slice(&body).map_err(|_| self.cluster.strange())?;
                    held.revision = now.revision().ok_or_else(|| self.cluster.strange())?;
                }
                Ok(Reply::Absent | Reply::Conflict) => return Ok(Step::Read),
                Ok(Reply::Gone) => return Err(self.cluster.strange()),
                // The register itself is as it was.
                Err(error) => return Err(StoreError::not_applied(STORE, error.message().to_owned())),
            }
        }
        self.cluster.forget(&self.keys.lease(self.namespace, &self.write.key));
        let preconditions = Preconditions { uid: &held.uid, resource_version: held.revision.to_string() };
        let options = DeleteOptions { kind: "DeleteOptions", api_version: "v1", preconditions };
        match self.cluster.ask(Effect::Writes, &Question::with("DELETE", path, &options)).await? {
            Reply::Done(_) => Ok(Step::Over(Outcome::Applied)),
            Reply::Absent | Reply::Conflict => Ok(Step::Read),
            Reply::Gone => Err(self.cluster.strange()),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.cluster.settings.leases())
    }
}

/// Annotations have less room than the longest value.
fn too_long(write: &Write) -> Option<StoreError> {
    let length = write.put.as_ref().map_or(0, |(_, value)| value.json.len());
    (length > LONGEST).then(|| {
        let key = &write.key;
        let message = format!(
            "{key} cannot be written: its value has {length} bytes, and a Lease holds at most {LONGEST} of them"
        );
        StoreError::not_applied(STORE, message).permanent()
    })
}
