//! Delivery of notifications: the leader of `tenure.alerts` reads what was delivered, decides what is due, sends it, and
//! records the outcome.
//!
//! While the store is unreachable no node leads. The last leader then goes on with the rules that say so
//! (`without-store`), from memory, and sends the resolution when the store is back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tenure::{Candidate, Name, Timestamp};
use tokio::task::JoinHandle;

use super::record::{Failure, Notice, Record, pause};
use super::rules::{Alerting, Rule};
use super::target::{self, Message, MessageInstance, Target};
use super::{AlertEvent, ROLE};
use crate::http::App;
use crate::time::Stamp;

/// The candidacy for `tenure.alerts`, and the deliveries in flight.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    standing: Mutex<Option<(Candidate, JoinHandle<()>)>>,
    /// What is on its way or waits to be tried again: not before then.
    in_flight: Mutex<BTreeMap<(Name, String), Instant>>,
    /// What each target was told last by this very process.
    told: Mutex<BTreeMap<(Name, String), Notice>>,
    /// What was told without the store.
    alone: Mutex<BTreeMap<Name, Record>>,
}

/// Where it is written down what was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordPlace {
    Store,
    Memory,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notifier {
    pub(super) async fn round(&self, app: &Arc<App>, alerting: &Alerting) {
        if let Err(error) = self.campaign(app, app.alert_manager.has_recipients()).await {
            tracing::warn!(%error, "cannot campaign for {ROLE}");
        }
        if self.leads()
            && let Err(error) = self.deliver_shared(app, alerting).await
        {
            tracing::warn!(%error, "cannot read or write alert records");
        }
        self.deliver_without_store(app, alerting);
    }

    /// Campaigns for the role as long as there is a target to tell.
    async fn campaign(&self, app: &App, wanted: bool) -> Result<(), tenure::Error> {
        let stands = lock(&self.standing).is_some();
        if wanted && !stands {
            let candidate = app.node.candidate(ROLE).await?;
            let leading = tokio::spawn(hold_role(candidate.clone()));
            *lock(&self.standing) = Some((candidate, leading));
        } else if !wanted && let Some((_, leading)) = lock(&self.standing).take() {
            leading.abort();
        }
        Ok(())
    }

    fn leads(&self) -> bool {
        let standing = lock(&self.standing);
        standing.as_ref().and_then(|(candidate, _)| candidate.lead()).is_some_and(|lead| lead.check())
    }

    /// Goes on from what the registers say.
    async fn deliver_shared(&self, app: &Arc<App>, alerting: &Alerting) -> Result<(), tenure::Error> {
        let mut records: BTreeMap<Name, Record> = app.operator.alerts().await?;
        for rule in &alerting.rules {
            let now = Stamp::now().0;
            let kept = records.remove(&rule.name).unwrap_or_default();
            let mut record = kept.clone();
            record.advance(&app.alert_manager.firing(rule, &kept), rule.patience, now);
            if record != kept {
                // Operators write here, too: the change is made on top of whatever they wrote meanwhile.
                let change = |kept: Option<Record>| {
                    let mut record = kept.unwrap_or_default();
                    record.advance(&app.alert_manager.firing(rule, &record), rule.patience, now);
                    Some(record)
                };
                record = app.operator.change_alert(&rule.name, change).await?.unwrap_or(record);
            }
            // Asked last, because reading and writing take their time.
            if self.leads() {
                self.send(app, alerting, rule, &record, RecordPlace::Store);
            }
        }
        Ok(())
    }

    /// Without the store, the node that told people last goes on. With it again: what was said is taken back.
    fn deliver_without_store(&self, app: &Arc<App>, alerting: &Alerting) {
        let seen = app.cluster_view.latest();
        let role = Name::new(ROLE).ok();
        let role = role.as_ref().and_then(|role| seen.snapshot.role(role));
        let last = role.and_then(|role| role.leader.clone().or_else(|| role.last_leader.clone()));
        let blind = seen.at.is_some() && !app.cluster_view.is_fresh();
        let mine = blind && last.as_ref() == Some(app.node.name());
        for rule in alerting.rules.iter().filter(|rule| rule.without_store) {
            let mut record = lock(&self.alone).get(&rule.name).cloned().unwrap_or_default();
            let firing = if mine { app.alert_manager.firing(rule, &record) } else { Vec::new() };
            record.advance(&firing, rule.patience, Stamp::now().0);
            self.send(app, alerting, rule, &record, RecordPlace::Memory);
            if record != Record::default() {
                lock(&self.alone).insert(rule.name.clone(), record);
            }
        }
    }

    /// Sends what is due, and is not on its way already.
    fn send(&self, app: &Arc<App>, alerting: &Alerting, rule: &Rule, record: &Record, place: RecordPlace) {
        let sinks: Vec<String> = rule.notify.iter().map(|sink| sink.text.clone()).collect();
        for (text, news) in record.due(&sinks) {
            let Some(sink) = rule.notify.iter().find(|sink| sink.text == text) else { continue };
            let Some(target) = alerting.targets.iter().find(|target| target.name == sink.target) else {
                continue;
            };
            let delivery = Delivery {
                alert: rule.name.clone(),
                sink: text.clone(),
                target: target.clone(),
                channel: sink.channel.clone(),
                message: message(app, rule, record, &news),
                news,
                place,
            };
            let way = (rule.name.clone(), text);
            let mut in_flight = lock(&self.in_flight);
            if in_flight.get(&way).is_none_or(|until| *until <= Instant::now()) {
                // Longer than it can take: whatever becomes of it says when it is tried again.
                in_flight.insert(way, Instant::now() + target.timeout * 4);
                tokio::spawn(delivery.run(app.clone()));
            }
        }
    }
}

/// Something to be told, on its way.
struct Delivery {
    alert: Name,
    sink: String,
    target: Target,
    channel: Option<String>,
    message: Message,
    news: Notice,
    place: RecordPlace,
}

impl Delivery {
    async fn run(self, app: Arc<App>) {
        let (notifier, way) = (&app.alert_manager.notifier, (self.alert.clone(), self.sink.clone()));
        // Delivered but not recorded: only the recording is tried again.
        let told = lock(&notifier.told).get(&way) == Some(&self.news);
        let outcome = match told {
            true => Ok(()),
            false => {
                target::notify(&app.config.outbound, &self.target, self.channel.as_deref(), &self.message)
                    .await
            }
        };
        if !told {
            self.report(&app, &outcome);
        }
        if outcome.is_ok() {
            lock(&notifier.told).insert(way.clone(), self.news.clone());
        }
        let attempts = self.record_outcome(&app, outcome.clone()).await;
        let mut in_flight = lock(&notifier.in_flight);
        match (outcome, attempts) {
            (Ok(()), Some(_)) => _ = in_flight.remove(&way),
            (_, attempts) => _ = in_flight.insert(way, Instant::now() + pause(attempts.unwrap_or(1))),
        }
    }

    /// Returns how often it was tried; none if it could not be written down.
    async fn record_outcome(&self, app: &App, outcome: Result<(), Failure>) -> Option<u32> {
        let now = Stamp::now().0;
        let note = |kept: Option<Record>| {
            let mut record = kept.unwrap_or_default();
            record.note(&self.sink, &self.news, outcome.clone(), now);
            Some(record)
        };
        let record = match self.place {
            RecordPlace::Store => app.operator.change_alert(&self.alert, note).await.ok()?,
            RecordPlace::Memory => {
                let mut alone = lock(&app.alert_manager.notifier.alone);
                let record = note(alone.get(&self.alert).cloned());
                record.clone().map(|record| alone.insert(self.alert.clone(), record));
                record
            }
        };
        record.and_then(|record| record.told.get(&self.sink).map(|told| told.attempts))
    }

    fn report(&self, app: &App, outcome: &Result<(), Failure>) {
        let (alert, target, status) = (self.alert.clone(), self.sink.clone(), self.message.status);
        let how = if outcome.is_ok() { "delivered" } else { "failed" };
        *app.alert_manager.state().deliveries.entry((target.clone(), how)).or_default() += 1;
        app.events.publish_alert(&match outcome {
            Ok(()) => {
                tracing::info!(%alert, target, status, "alert delivered");
                AlertEvent::AlertNotified { alert, target, status }
            }
            Err(failure) => {
                let error = failure.why.clone();
                tracing::warn!(%alert, target, status, error, "alert delivery failed");
                AlertEvent::AlertNotifyFailed { alert, target, error }
            }
        });
    }
}

/// Leads whenever elected. There is no work here that would have to stop first.
async fn hold_role(candidate: Candidate) {
    while let Some(tenure) = candidate.elected().await {
        let _ = tenure.hold(|lead| async move { lead.draining().await }).await;
    }
}

fn message(app: &App, rule: &Rule, record: &Record, news: &Notice) -> Message {
    let episode = record.episode.as_ref().filter(|episode| news.firing && episode.id == news.episode);
    let (instances, total): (Vec<MessageInstance>, usize) = match episode {
        Some(episode) => (episode.instances.iter().map(MessageInstance::from).collect(), episode.total),
        None => (Vec::new(), 0),
    };
    let first = instances.first().map(|line| line.summary.clone());
    let namespace = app.node.namespace().to_string();
    Message {
        version: 1,
        status: if news.firing { "firing" } else { "resolved" },
        alert: rule.name.to_string(),
        severity: rule.severity.as_str(),
        summary: first.unwrap_or_else(|| "resolved".to_owned()),
        condition: rule.condition.text.clone(),
        since: target::stamp(Timestamp::from_micros(news.episode)),
        key: format!("tenure/{namespace}/{}/{}", rule.name, news.episode),
        news: news.news,
        total,
        instances,
        namespace,
        node: app.node.name().to_string(),
    }
}
