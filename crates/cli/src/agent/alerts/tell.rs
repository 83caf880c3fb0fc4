//! Telling people: whoever leads `tenure.alerts` reads what was told, decides what is due, sends it, and writes down what
//! came of it.
//!
//! While the store cannot be seen nobody leads anything. Then whoever told people last goes on with the rules that say
//! so (`without-store`), from memory, and takes back what it said when the store is there again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tenure::{Candidate, Name, Wall};
use tokio::task::JoinHandle;

use super::notify::{self, Line, Message, Target};
use super::record::{Failure, News, Record, pause};
use super::rules::{Alerting, Rule};
use super::{Happened, ROLE};
use crate::agent::http::App;
use crate::output::time::Stamp;

/// The candidacy for telling, and what is on its way.
#[derive(Debug, Default)]
pub(super) struct Telling {
    standing: Mutex<Option<(Candidate, JoinHandle<()>)>>,
    /// What is on its way or waits to be tried again: not before then.
    under_way: Mutex<BTreeMap<(Name, String), Instant>>,
    /// What each target was told last by this very process.
    told: Mutex<BTreeMap<(Name, String), News>>,
    /// What was told without the store.
    alone: Mutex<BTreeMap<Name, Record>>,
}

/// Where it is written down what was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Book {
    /// In the store.
    Shared,
    /// In memory.
    Own,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Telling {
    pub(super) async fn round(&self, app: &Arc<App>, alerting: &Alerting) {
        if let Err(error) = self.stand(app, app.desk.tells()).await {
            tracing::warn!(%error, "this node cannot stand for {ROLE}");
        }
        if self.leads()
            && let Err(error) = self.shared(app, alerting).await
        {
            tracing::warn!(%error, "what was told of alerts cannot be read or written");
        }
        self.alone(app, alerting);
    }

    /// Stands for the role as long as there is anybody to tell.
    async fn stand(&self, app: &App, wanted: bool) -> Result<(), tenure::Error> {
        let stands = lock(&self.standing).is_some();
        if wanted && !stands {
            let candidate = app.node.stand(ROLE).start().await?;
            let leading = tokio::spawn(lead_it(candidate.clone()));
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
    async fn shared(&self, app: &Arc<App>, alerting: &Alerting) -> Result<(), tenure::Error> {
        let mut records: BTreeMap<Name, Record> = app.operator.alerts().await?.into_iter().collect();
        for rule in &alerting.rules {
            let now = Stamp::now().0;
            let kept = records.remove(&rule.name).unwrap_or_default();
            let mut record = kept.clone();
            record.advance(&app.desk.firing(rule, &kept), rule.patience, now);
            if record != kept {
                // Operators write here, too: the change is made on top of whatever they wrote meanwhile.
                let change = |kept: Option<Record>| {
                    let mut record = kept.unwrap_or_default();
                    record.advance(&app.desk.firing(rule, &record), rule.patience, now);
                    Some(record)
                };
                record = app.operator.change_alert(&rule.name, change).await?.unwrap_or(record);
            }
            // Asked last, because reading and writing take their time.
            if self.leads() {
                self.send(app, alerting, rule, &record, Book::Shared);
            }
        }
        Ok(())
    }

    /// Without the store: whoever told people last goes on. With it again: what was said is taken back.
    fn alone(&self, app: &Arc<App>, alerting: &Alerting) {
        let seen = app.sight.seen();
        let last = Name::new(ROLE).ok().and_then(|role| seen.snapshot.role(&role)?.leader.clone());
        let blind = seen.at.is_some() && !app.sight.is_fresh();
        let mine = blind && last.as_ref() == Some(app.node.name());
        for rule in alerting.rules.iter().filter(|rule| rule.without_store) {
            let mut record = lock(&self.alone).get(&rule.name).cloned().unwrap_or_default();
            let firing = if mine { app.desk.firing(rule, &record) } else { Vec::new() };
            record.advance(&firing, rule.patience, Stamp::now().0);
            self.send(app, alerting, rule, &record, Book::Own);
            if record != Record::default() {
                lock(&self.alone).insert(rule.name.clone(), record);
            }
        }
    }

    /// Sends what is due, and is not on its way already.
    fn send(&self, app: &Arc<App>, alerting: &Alerting, rule: &Rule, record: &Record, book: Book) {
        let sinks: Vec<String> = rule.notify.iter().map(|sink| sink.text.clone()).collect();
        for (text, news) in record.due(&sinks) {
            let Some(sink) = rule.notify.iter().find(|sink| sink.text == text) else { continue };
            let Some(target) = alerting.targets.iter().find(|target| target.name == sink.target) else {
                continue;
            };
            let errand = Errand {
                alert: rule.name.clone(),
                sink: text.clone(),
                target: target.clone(),
                channel: sink.channel.clone(),
                message: message(app, rule, record, &news),
                news,
                book,
            };
            let way = (rule.name.clone(), text);
            let mut under_way = lock(&self.under_way);
            if under_way.get(&way).is_none_or(|until| *until <= Instant::now()) {
                // Longer than it can take: whatever becomes of it says when it is tried again.
                under_way.insert(way, Instant::now() + target.timeout * 4);
                tokio::spawn(errand.run(app.clone()));
            }
        }
    }
}

/// Something to be told, on its way.
struct Errand {
    alert: Name,
    sink: String,
    target: Target,
    channel: Option<String>,
    message: Message,
    news: News,
    book: Book,
}

impl Errand {
    async fn run(self, app: Arc<App>) {
        let (telling, way) = (&app.desk.telling, (self.alert.clone(), self.sink.clone()));
        // Told, but not written down: only that is done again.
        let told = lock(&telling.told).get(&way) == Some(&self.news);
        let outcome = match told {
            true => Ok(()),
            false => notify::tell(&self.target, self.channel.as_deref(), &self.message).await,
        };
        if !told {
            self.report(&app, &outcome);
        }
        if outcome.is_ok() {
            lock(&telling.told).insert(way.clone(), self.news.clone());
        }
        let attempts = self.write_down(&app, outcome.clone()).await;
        let mut under_way = lock(&telling.under_way);
        match (outcome, attempts) {
            (Ok(()), Some(_)) => _ = under_way.remove(&way),
            (_, attempts) => _ = under_way.insert(way, Instant::now() + pause(attempts.unwrap_or(1))),
        }
    }

    /// Returns how often it was tried; none if it could not be written down.
    async fn write_down(&self, app: &App, outcome: Result<(), Failure>) -> Option<u32> {
        let now = Stamp::now().0;
        let note = |kept: Option<Record>| {
            let mut record = kept.unwrap_or_default();
            record.note(&self.sink, &self.news, outcome.clone(), now);
            Some(record)
        };
        let record = match self.book {
            Book::Shared => app.operator.change_alert(&self.alert, note).await.ok()?,
            Book::Own => {
                let mut alone = lock(&app.desk.telling.alone);
                let record = note(alone.get(&self.alert).cloned());
                record.clone().map(|record| alone.insert(self.alert.clone(), record));
                record
            }
        };
        record.and_then(|record| record.told.get(&self.sink).map(|told| told.attempts))
    }

    fn report(&self, app: &App, outcome: &Result<(), Failure>) {
        let (alert, target, status) = (self.alert.clone(), self.sink.clone(), self.message.status);
        let how = if outcome.is_ok() { "told" } else { "failed" };
        *app.desk.state().deliveries.entry((target.clone(), how)).or_default() += 1;
        app.events.tell_alert(&match outcome {
            Ok(()) => {
                tracing::info!(%alert, target, status, "told");
                Happened::AlertTold { alert, target, status }
            }
            Err(failure) => {
                let error = failure.why.clone();
                tracing::warn!(%alert, target, status, error, "could not be told");
                Happened::AlertUntold { alert, target, error }
            }
        });
    }
}

/// Leads whenever elected. There is no work here that would have to stop first.
async fn lead_it(candidate: Candidate) {
    while let Some(tenure) = candidate.elected().await {
        let _ = tenure.hold(|lead| async move { lead.draining().await }).await;
    }
}

fn message(app: &App, rule: &Rule, record: &Record, news: &News) -> Message {
    let episode = record.episode.as_ref().filter(|episode| news.firing && episode.id == news.episode);
    let (instances, total): (Vec<Line>, usize) = match episode {
        Some(episode) => (episode.instances.iter().map(Line::from).collect(), episode.total),
        None => (Vec::new(), 0),
    };
    let first = instances.first().map(|line| line.summary.clone());
    let namespace = app.node.namespace().to_string();
    Message {
        version: 1,
        status: if news.firing { "firing" } else { "resolved" },
        alert: rule.name.to_string(),
        severity: rule.severity.as_str(),
        summary: first.unwrap_or_else(|| "it is over".to_owned()),
        condition: rule.condition.text.clone(),
        since: notify::stamp(Wall(news.episode)),
        key: format!("tenure/{namespace}/{}/{}", rule.name, news.episode),
        news: news.news,
        total,
        instances,
        namespace,
        node: app.node.name().to_string(),
    }
}
