//! What is kept about an alert, in a register of its own: since when it fires, who was told, who knows. It is the memory
//! of the node that tells people, and the next one goes on from it. Everything here is a decision without a clock or a wire.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Timestamp;
use tenure::operator::Order;

use super::samples::Labels;

/// So many series of one alert are named; the rest is a number.
pub const NAMED: usize = 50;

/// What a register of an alert holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// What goes on, if it does.
    pub episode: Option<Episode>,
    /// When the last one began and ended.
    pub past: Option<(Timestamp, Timestamp)>,
    /// No target is told for a while.
    pub silence: Option<Silence>,
    /// When people were last to be told something new.
    pub news_at: Option<Timestamp>,
    /// What each target was told last.
    pub told: BTreeMap<String, Delivered>,
}

/// From when an alert begins to fire until it fires no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Tells it from others: when it began, in microseconds since 1970.
    pub id: u64,
    /// The series that fire.
    pub instances: Vec<Instance>,
    /// How many there are in all.
    pub total: usize,
    /// How often there was something to tell; 0: not yet.
    pub news: u32,
    /// The series that people were to be told of, and still fire.
    pub covered: BTreeSet<String>,
    /// An operator looks after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Order>,
    /// An operator says that it is over, although the condition still holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Order>,
}

/// A series that fires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    pub labels: Labels,
    /// What it was when it began to fire; none if that was not a number.
    pub value: Option<f64>,
    /// Since when the condition holds.
    pub since: Timestamp,
    /// What it means, for people.
    pub summary: String,
}

/// No target is told until then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Silence {
    /// Until when.
    pub until: Timestamp,
    /// Who said so, and why.
    #[serde(flatten)]
    pub order: Order,
}

/// What a target was told last, or is to be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    pub episode: u64,
    pub news: u32,
    /// Whether it was told that it fires, or that it is over.
    pub firing: bool,
    /// When.
    pub at: Timestamp,
    /// How often that was tried.
    pub attempts: u32,
    /// Why it could not be told; none: it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// It is not tried any more.
    #[serde(default)]
    pub given_up: bool,
}

/// What a target is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub episode: u64,
    pub news: u32,
    /// It fires, or it is over.
    pub firing: bool,
}

/// How patient a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotifyPolicy {
    /// The shortest time between two notifications.
    pub cool_down: Duration,
    /// Until an operator acknowledges it, it is told again this often; nought: never.
    pub repeat: Duration,
}

impl Record {
    /// Takes in what fires now.
    pub fn advance(&mut self, firing: &[Instance], patience: NotifyPolicy, now: Timestamp) {
        self.silence.take_if(|silence| silence.until <= now);
        if firing.is_empty() {
            if let Some(over) = self.episode.take() {
                self.past = Some((Timestamp::from_micros(over.id), now));
            }
            return;
        }
        let began = firing.iter().map(|instance| instance.since).min().unwrap_or(now);
        let fresh = || Episode {
            id: now.as_micros().max(began.as_micros()),
            instances: Vec::new(),
            total: 0,
            news: 0,
            covered: BTreeSet::new(),
            acknowledged: None,
            resolved: None,
        };
        let episode = self.episode.get_or_insert_with(fresh);
        episode.see(firing);
        let (quiet, waited) =
            (self.silence.is_some() || episode.resolved.is_some(), since(self.news_at, now));
        if !quiet && waited >= patience.cool_down && episode.has_news(patience, waited) {
            episode.news = episode.news.saturating_add(1);
            episode.covered = episode.keys();
            self.news_at = Some(now);
        }
    }

    /// What each of these targets is to be told next. That it is over goes to the targets that were told that it fires.
    #[must_use]
    pub fn due(&self, targets: &[String]) -> Vec<(String, Notice)> {
        let over = self.told.iter().filter(|(_, told)| self.is_over(told)).map(|(target, told)| {
            (target.clone(), Notice { episode: told.episode, news: told.news, firing: false })
        });
        let mut due: Vec<(String, Notice)> = over.collect();
        let Some(episode) = self.episode.as_ref().filter(|episode| episode.is_told()) else { return due };
        for target in targets {
            let news = Notice { episode: episode.id, news: episode.news, firing: true };
            let was = self.told.get(target);
            if was.is_none_or(|told| !told.settles(&news)) && !due.iter().any(|(other, _)| other == target) {
                due.push((target.clone(), news));
            }
        }
        due
    }

    /// Whether a target believes that something fires which is over.
    fn is_over(&self, told: &Delivered) -> bool {
        let goes_on = |episode: &Episode| episode.id == told.episode && episode.resolved.is_none();
        let heard = told.firing && told.error.is_none();
        let trying = !told.firing && told.error.is_some() && !told.given_up;
        (heard || trying) && !self.episode.as_ref().is_some_and(goes_on)
    }

    /// Records the outcome of a delivery.
    pub fn note(&mut self, target: &str, news: &Notice, outcome: Result<(), Failure>, now: Timestamp) {
        let same = |told: &Delivered| {
            (told.episode, told.news, told.firing) == (news.episode, news.news, news.firing)
        };
        let attempts =
            self.told.get(target).filter(|told| same(told)).map_or(0, |told| told.attempts).saturating_add(1);
        let (error, permanent) = match outcome {
            Ok(()) => (None, false),
            Err(failure) => (Some(failure.why), failure.permanent),
        };
        let given_up = error.is_some() && (permanent || attempts >= ATTEMPTS);
        let told = Delivered {
            episode: news.episode,
            news: news.news,
            firing: news.firing,
            at: now,
            attempts,
            error,
            given_up,
        };
        self.told.insert(target.to_owned(), told);
    }
}

/// So often something is tried; with the pauses between, over half an hour.
pub const ATTEMPTS: u32 = 12;

/// Why a target could not be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub why: String,
    /// Trying again would not help.
    pub permanent: bool,
}

/// How long to wait after so many attempts.
#[must_use]
pub fn pause(attempts: u32) -> Duration {
    Duration::from_secs(300)
        .min(Duration::from_secs(1) * 2_u32.saturating_pow(attempts.saturating_sub(1).min(9)))
}

impl Delivered {
    /// Whether this notice needs no further delivery.
    fn settles(&self, news: &Notice) -> bool {
        let same = (self.episode, self.news, self.firing) == (news.episode, news.news, news.firing);
        same && (self.error.is_none() || self.given_up)
    }
}

impl Episode {
    /// Whether any target was ever to be told.
    fn is_told(&self) -> bool {
        self.news > 0 && self.resolved.is_none()
    }

    /// What is new: a series that no target was told of, or the whole once more.
    fn has_news(&self, patience: NotifyPolicy, waited: Duration) -> bool {
        let unheard = self.instances.iter().any(|instance| !self.covered.contains(&key(&instance.labels)));
        let again = !patience.repeat.is_zero() && waited >= patience.repeat && self.acknowledged.is_none();
        self.news == 0 || unheard || again
    }

    fn keys(&self) -> BTreeSet<String> {
        self.instances.iter().map(|instance| key(&instance.labels)).collect()
    }

    /// Series that were there keep the value with which they began, so that nothing is written while nothing happens.
    fn see(&mut self, firing: &[Instance]) {
        let was: BTreeMap<String, Instance> =
            self.instances.drain(..).map(|instance| (key(&instance.labels), instance)).collect();
        let kept = |instance: &Instance| was.get(&key(&instance.labels)).unwrap_or(instance).clone();
        self.instances = firing.iter().take(NAMED).map(kept).collect();
        self.total = firing.len();
        let keys = self.keys();
        self.covered.retain(|known| keys.contains(known));
    }
}

fn key(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect::<Vec<_>>().join(",")
}

fn since(then: Option<Timestamp>, now: Timestamp) -> Duration {
    then.map_or(Duration::MAX, |then| Duration::from_micros(now.as_micros().saturating_sub(then.as_micros())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;
    const PATIENCE: NotifyPolicy =
        NotifyPolicy { cool_down: Duration::from_secs(300), repeat: Duration::from_secs(3600) };

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 * MINUTE + minutes * MINUTE)
    }

    fn role(name: &str) -> Instance {
        let labels = [("role".to_owned(), name.to_owned())].into();
        Instance { labels, value: Some(0.0), since: at(0), summary: String::new() }
    }

    fn hook() -> Vec<String> {
        vec!["hook".to_owned()]
    }

    /// Tells the one target whatever is due; returns what that was.
    fn tell(record: &mut Record, now: Timestamp) -> Vec<bool> {
        let due = record.due(&hook());
        for (target, news) in &due {
            record.note(target, news, Ok(()), now);
        }
        due.into_iter().map(|(_, news)| news.firing).collect()
    }

    #[test]
    fn it_is_told_once_and_that_it_is_over_once() {
        let mut record = Record::default();
        for minute in 0..3 {
            record.advance(&[role("a")], PATIENCE, at(minute));
            assert_eq!(tell(&mut record, at(minute)), if minute == 0 { vec![true] } else { vec![] });
        }
        // A node that goes on from the register tells nothing again.
        let mut next: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(next, record);
        next.advance(&[role("a")], PATIENCE, at(3));
        assert_eq!(next, record, "nothing is written while nothing happens");
        next.advance(&[], PATIENCE, at(4));
        assert_eq!(tell(&mut next, at(4)), [false]);
        next.advance(&[], PATIENCE, at(5));
        assert_eq!(tell(&mut next, at(5)), [false; 0]);
        assert_eq!(next.past.map(|(_, ended)| ended), Some(at(4)));
    }

    #[test]
    fn what_flaps_is_told_after_its_cool_down_only() {
        let mut record = Record::default();
        record.advance(&[role("a")], PATIENCE, at(0));
        assert_eq!(tell(&mut record, at(0)), [true]);
        record.advance(&[], PATIENCE, at(1));
        assert_eq!(tell(&mut record, at(1)), [false]);
        record.advance(&[role("a")], PATIENCE, at(2));
        assert_eq!(tell(&mut record, at(2)), [false; 0], "too soon");
        record.advance(&[role("a")], PATIENCE, at(5));
        assert_eq!(tell(&mut record, at(5)), [true]);
    }

    #[test]
    fn a_second_role_is_news_and_an_acknowledged_one_is_not_repeated() {
        let mut record = Record::default();
        record.advance(&[role("a")], PATIENCE, at(0));
        assert_eq!(tell(&mut record, at(0)), [true]);
        record.advance(&[role("a"), role("b")], PATIENCE, at(1));
        assert_eq!(tell(&mut record, at(1)), [false; 0], "too soon");
        record.advance(&[role("a"), role("b")], PATIENCE, at(6));
        assert_eq!(tell(&mut record, at(6)), [true]);
        record.advance(&[role("a"), role("b")], PATIENCE, at(67));
        assert_eq!(tell(&mut record, at(67)), [true], "once more");
        let order = Order { by: "ada".to_owned(), why: String::new(), at: at(68) };
        record.episode.as_mut().unwrap().acknowledged = Some(order);
        record.advance(&[role("a"), role("b")], PATIENCE, at(200));
        assert_eq!(tell(&mut record, at(200)), [false; 0]);
        record.advance(&[role("a"), role("b"), role("c")], PATIENCE, at(201));
        assert_eq!(tell(&mut record, at(201)), [true], "another one is");
    }

    #[test]
    fn what_is_silenced_is_told_when_that_is_over_and_what_is_resolved_by_hand_is_over() {
        let order = || Order { by: "ada".to_owned(), why: String::new(), at: at(0) };
        let silence = Some(Silence { until: at(10), order: order() });
        let mut record = Record { silence, ..Record::default() };
        record.advance(&[role("a")], PATIENCE, at(1));
        assert_eq!(tell(&mut record, at(1)), [false; 0]);
        record.advance(&[role("a")], PATIENCE, at(11));
        assert_eq!(tell(&mut record, at(11)), [true]);
        record.episode.as_mut().unwrap().resolved = Some(order());
        assert_eq!(tell(&mut record, at(12)), [false]);
        record.advance(&[role("a"), role("b")], PATIENCE, at(60));
        assert_eq!(tell(&mut record, at(60)), [false; 0], "quiet until the condition was false");
        record.advance(&[], PATIENCE, at(61));
        record.advance(&[role("a")], PATIENCE, at(62));
        assert_eq!(tell(&mut record, at(62)), [true]);
    }

    #[test]
    fn what_cannot_be_told_is_tried_again_and_given_up_at_last() {
        let mut record = Record::default();
        record.advance(&[role("a")], PATIENCE, at(0));
        let failed = || Err(Failure { why: "down".to_owned(), permanent: false });
        for attempt in 1..=ATTEMPTS {
            let due = record.due(&hook());
            assert_eq!(due.len(), 1, "{attempt}");
            record.note("hook", &due[0].1, failed(), at(0));
            assert_eq!(record.told["hook"].attempts, attempt);
        }
        assert_eq!(record.due(&hook()), []);
        record.advance(&[], PATIENCE, at(1));
        assert_eq!(record.due(&hook()), [], "who never heard of it need not hear that it is over");

        // A target that says no is not asked again; one that is told at the second try is told once.
        let mut record = Record::default();
        record.advance(&[role("a")], PATIENCE, at(0));
        let due = record.due(&hook());
        record.note("hook", &due[0].1, failed(), at(0));
        record.note("hook", &due[0].1, Ok(()), at(0));
        assert_eq!(record.due(&hook()), []);
        record.advance(&[], PATIENCE, at(1));
        let due = record.due(&hook());
        record.note("hook", &due[0].1, failed(), at(1));
        assert_eq!(record.due(&hook()), due, "tried again");
        record.note("hook", &due[0].1, Err(Failure { why: "404".to_owned(), permanent: true }), at(1));
        assert_eq!(record.due(&hook()), []);
    }

    #[test]
    fn pauses_grow_and_end() {
        assert_eq!([1, 2, 3, 20].map(|attempts| pause(attempts).as_secs()), [1, 2, 4, 300]);
    }
}
