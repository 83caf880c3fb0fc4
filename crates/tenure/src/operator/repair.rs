//! Damaged registers, which no node can go on from: finding them, then repairing them.
//!
//! Nodes leave such a register alone, and go on with everything else. [`Operator::find_damage`] finds them and changes
//! nothing; [`Operator::repair`] repairs what it found. Why each remedy is safe is in `docs/adr/0022-hostile-registers.md`.

use std::time::Duration;

use serde::Serialize;
use tenure_core::record::{Cluster, Holder, PROTOCOL, Record, Role, Session, SessionState, StartReason};
use tenure_core::{Epoch, Key, Kind, Query, Takeover, Timestamp, Timing, Token};

use super::{AuditEntry, Operator, OperatorAction};
use crate::clock::{Clock, LeaseClock, wall_now};
use crate::history::RoleHistory;
use crate::store::{Entry, MAX_BATCH, Outcome, Value, Write};
use crate::{Error, Name, ledger};

/// A damaged register, which no node can go on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DamagedRegister {
    /// Its kind and name.
    pub register: String,
    /// The problem.
    pub problem: String,
    /// What [`Operator::repair`] does about it.
    pub remedy: Remedy,
    #[serde(skip)]
    entry: Entry,
}

/// What is done about a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Remedy {
    /// A session is marked as expelled, if it does not change for the longest lease: its roles can then be claimed.
    Expel,
    /// The register is deleted; the node that needs it writes it again.
    Delete,
    /// It is written anew from what can still be read of it.
    Rewrite,
    /// The namespace gets a new epoch: every leader gives up, and after the longest lease roles are claimed anew, with tokens
    /// above all plausible ones. What operators asked for, tasks and history are kept.
    Renew,
    /// It belongs to another version of Tenure.
    None,
}

impl Remedy {
    /// For people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expel => "mark the session as expelled, once it has not changed for the longest lease",
            Self::Delete => "delete the register; the node that needs it writes it again",
            Self::Rewrite => "write it anew from what can still be read of it",
            Self::Renew => {
                "give the namespace a new epoch: all leaders give up, and are elected anew after the longest lease"
            }
            Self::None => "use the version of Tenure that wrote it",
        }
    }
}

/// The kinds that are examined in an epoch. What an alert holds is the agent's business.
const EXAMINED: [Kind; 8] = [
    Kind::Session,
    Kind::Node,
    Kind::Role,
    Kind::RoleControl,
    Kind::NodeControl,
    Kind::Task,
    Kind::History,
    Kind::Audit,
];
/// The kinds that outlive an epoch that is renewed.
const KEPT: [Kind; 6] =
    [Kind::RoleControl, Kind::NodeControl, Kind::Task, Kind::History, Kind::Audit, Kind::Alert];
/// Tokens of a new epoch begin so far above the wall clock, in microseconds: as much as wall clocks may differ.
const HEADROOM: u64 = 24 * 60 * 60 * 1_000_000;

impl Operator {
    /// Finds damaged registers. Changes nothing.
    pub async fn find_damage(&self) -> Result<Vec<DamagedRegister>, Error> {
        let Some(cluster) = self.read_one(Key::Cluster).await? else { return Ok(Vec::new()) };
        let mut found: Vec<DamagedRegister> = check_cluster(&cluster).into_iter().collect();
        if super::refuse_newer(&cluster).is_err() {
            // What this version cannot read there, a newer one can.
            return Ok(found);
        }
        if let Some(epoch) = epoch_of(&cluster) {
            let entries = self.all(epoch, &EXAMINED).await?;
            found.extend(entries.iter().filter_map(check_register));
        }
        Ok(found)
    }

    /// Repairs what [`Operator::find_damage`] found, and returns what it repaired. Leaves a register alone that has changed
    /// since. Takes as long as the longest lease if sessions are among it.
    pub async fn repair(&self, found: &[DamagedRegister], why: &str) -> Result<Vec<DamagedRegister>, Error> {
        let mut repaired = Vec::new();
        for damaged in found.iter().filter(|damaged| damaged.remedy == Remedy::Rewrite && is_cluster(damaged))
        {
            if self.rewrite_cluster(&damaged.entry).await? {
                repaired.push(damaged.clone());
            }
        }
        let renews = found.iter().any(|damaged| damaged.remedy == Remedy::Renew);
        for damaged in found.iter().filter(|damaged| !is_cluster(damaged)) {
            let value = match damaged.remedy {
                Remedy::Delete => None,
                Remedy::Rewrite => rewritten(&damaged.entry),
                Remedy::Expel | Remedy::Renew | Remedy::None => continue,
            };
            if self.put(damaged.entry.key.clone(), Some(damaged.entry.version), value).await? {
                self.record_repair(damaged, why).await?;
                repaired.push(damaged.clone());
            }
        }
        if renews {
            self.renew().await?;
            for damaged in found.iter().filter(|damaged| damaged.remedy == Remedy::Renew) {
                self.record_repair(damaged, why).await?;
                repaired.push(damaged.clone());
            }
        } else {
            repaired.extend(self.expel(found, why).await?);
        }
        Ok(repaired)
    }

    /// Rule 3: every beat of the owner that was ever acknowledged was sent before this version was first received; unchanged
    /// for the longest lease, its owner's lease has run out.
    async fn expel(&self, found: &[DamagedRegister], why: &str) -> Result<Vec<DamagedRegister>, Error> {
        let sessions: Vec<&DamagedRegister> =
            found.iter().filter(|one| one.remedy == Remedy::Expel).collect();
        let Some(lease) = self.longest_lease().await?.filter(|_| !sessions.is_empty()) else {
            return Ok(Vec::new());
        };
        let clock = LeaseClock::new();
        let timing = Timing { rate_error_ppm: clock.rate_error_ppm(), ..Timing::default() };
        let until = clock.now().after(timing.expulsion_wait(lease));
        while clock.now() < until {
            clock.sleep_until(until).await;
        }
        let mut repaired = Vec::new();
        for damaged in sessions {
            // Beside a token that does not belong there nothing can be written: absent, it is expelled by the nodes.
            let expelled = Value::of_record(&Record::Session(expelled(lease)));
            let value = damaged.entry.value.token.is_none().then_some(expelled);
            if self.put(damaged.entry.key.clone(), Some(damaged.entry.version), value).await? {
                self.record_repair(damaged, why).await?;
                repaired.push(damaged.clone());
            }
        }
        Ok(repaired)
    }

    /// Gives the namespace a new epoch. The registers that outlive the old one are copied before any node can see it.
    async fn renew(&self) -> Result<(), Error> {
        let Some(cluster) = self.read_one(Key::Cluster).await? else { return Ok(()) };
        let epoch = Epoch::new((crate::store::entropy::nonce() as u64) >> 12 | 1);
        let (mut lease, mut highest) =
            (Timing::DEFAULT_TTL, Token::new(wall_now().as_micros()).min(Token::IMPLAUSIBLE));
        if let Some(former) = epoch_of(&cluster) {
            lease = self.longest_lease().await?.unwrap_or(lease);
            for role in self.all(former, &[Kind::Role]).await? {
                let token = role.value.parse::<Role>().ok().map(|role| role.token);
                highest = highest.max(token.filter(|token| *token < Token::IMPLAUSIBLE).unwrap_or(highest));
            }
            let kept = self.all(former, &KEPT).await?;
            self.carry_over(epoch, kept.iter().filter(|entry| check_register(entry).is_none())).await?;
        }
        let floor = Token::new(highest.get().saturating_add(HEADROOM)).min(Token::IMPLAUSIBLE);
        let record =
            Cluster { epoch, max_ttl: lease, falling: None, protocol: PROTOCOL, floor, renewed: true };
        let value = Value::of_record(&Record::Cluster(record));
        match self.put(Key::Cluster, Some(cluster.version), Some(value)).await? {
            true => Ok(()),
            false => Err(Error::Contended(Key::Cluster.to_string())),
        }
    }

    async fn carry_over(&self, epoch: Epoch, kept: impl Iterator<Item = &Entry>) -> Result<(), Error> {
        let copy = |entry: &Entry| {
            let Key::Named(_, kind, name) = &entry.key else { return None };
            let put = Some(super::with_new_version(entry.value.clone()));
            let key = Key::Named(epoch, *kind, name.clone());
            Some(Write { key, expect: None, put, notify: false, requires_lock: false })
        };
        let writes: Vec<Write> = kept.filter_map(copy).collect();
        for batch in writes.chunks(MAX_BATCH) {
            for outcome in self.store.write(&self.namespace, batch).await? {
                if let Outcome::Failed(error) = outcome {
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    async fn rewrite_cluster(&self, entry: &Entry) -> Result<bool, Error> {
        let Some(epoch) = epoch_of(entry) else { return Ok(false) };
        let lease = self.longest_listed(epoch).await?;
        let floor = floor_of(entry);
        let record =
            Cluster { epoch, max_ttl: lease, falling: None, protocol: PROTOCOL, floor, renewed: false };
        self.put(Key::Cluster, Some(entry.version), Some(Value::of_record(&Record::Cluster(record)))).await
    }

    /// The longest lease that any node of the namespace may rely on.
    pub async fn longest_lease(&self) -> Result<Option<Duration>, Error> {
        let Some(entry) = self.read_one(Key::Cluster).await? else { return Ok(None) };
        if let Ok(cluster) = entry.value.parse::<Cluster>() {
            return Ok(Some(cluster.max_ttl));
        }
        match epoch_of(&entry) {
            Some(epoch) => Ok(Some(self.longest_listed(epoch).await?)),
            None => Ok(Some(Timing::DEFAULT_TTL)),
        }
    }

    async fn longest_listed(&self, epoch: Epoch) -> Result<Duration, Error> {
        let sessions = self.all(epoch, &[Kind::Session]).await?;
        let ttls = sessions
            .iter()
            .filter_map(|entry| entry.value.parse::<Session>().ok())
            .map(|session| session.ttl);
        Ok(ttls.max().unwrap_or_default().max(Timing::DEFAULT_TTL))
    }

    async fn all(&self, epoch: Epoch, kinds: &[Kind]) -> Result<Vec<Entry>, Error> {
        let query = Query { keys: Vec::new(), kinds: kinds.iter().map(|kind| (epoch, *kind)).collect() };
        Ok(self.store.read(&self.namespace, &query).await?)
    }

    async fn record_repair(&self, damaged: &DamagedRegister, why: &str) -> Result<(), Error> {
        let subject = Name::new(damaged.entry.key.name()).map_err(Error::Name)?;
        self.record_action(
            OperatorAction::Repair,
            &subject,
            None,
            &format!("{}: {}; {why}", damaged.register, damaged.problem),
        )
        .await
    }
}

fn is_cluster(damaged: &DamagedRegister) -> bool {
    damaged.entry.key == Key::Cluster
}

/// The epoch that a `cluster` register names, as far as it can be read at all.
fn epoch_of(entry: &Entry) -> Option<Epoch> {
    let raw = entry.value.parse::<serde_json::Value>().ok()?;
    serde_json::from_value(raw.get("epoch")?.clone()).ok()
}

/// The floor for tokens that a `cluster` register names; the wall clock if that cannot be read.
fn floor_of(entry: &Entry) -> Token {
    let raw = entry.value.parse::<serde_json::Value>().unwrap_or_default();
    match raw.get("floor") {
        None => Token::new(0),
        Some(floor) => serde_json::from_value(floor.clone())
            .unwrap_or(Token::new(wall_now().as_micros()))
            .min(Token::IMPLAUSIBLE),
    }
}

fn check_cluster(entry: &Entry) -> Option<DamagedRegister> {
    if let Err(newer) = super::refuse_newer(entry) {
        return Some(damaged(entry, newer.message(), Remedy::None));
    }
    match entry.value.parse::<Cluster>() {
        Ok(cluster) if cluster.protocol == PROTOCOL && cluster.floor > Token::IMPLAUSIBLE => {
            let problem = format!("a floor of {} leaves no tokens", cluster.floor);
            Some(damaged(entry, &problem, Remedy::Rewrite))
        }
        Ok(cluster) if cluster.protocol == PROTOCOL => None,
        Ok(cluster) => {
            let problem =
                format!("it speaks protocol {}, and this version speaks {PROTOCOL}", cluster.protocol);
            Some(damaged(entry, &problem, Remedy::None))
        }
        Err(error) if epoch_of(entry).is_some() => Some(damaged(entry, &error.to_string(), Remedy::Rewrite)),
        Err(error) => Some(damaged(entry, &error.to_string(), Remedy::Renew)),
    }
}

fn check_register(entry: &Entry) -> Option<DamagedRegister> {
    let value = &entry.value;
    let fault = match entry.key.kind() {
        Kind::Role => return check_role(entry),
        Kind::Session | Kind::Node | Kind::RoleControl | Kind::NodeControl => {
            let readable = value.to_record(&entry.key) != Record::Foreign;
            return (!readable).then(|| damaged(entry, &parse_error(entry), remedy_for(entry)));
        }
        Kind::Task => value.parse::<ledger::TaskRecord>().err(),
        Kind::History => value.parse::<RoleHistory>().err(),
        Kind::Audit => value.parse::<Vec<AuditEntry>>().err(),
        Kind::Alert | Kind::Cluster => None,
    };
    fault.map(|fault| damaged(entry, &fault.to_string(), remedy_for(entry)))
}

fn remedy_for(entry: &Entry) -> Remedy {
    if entry.key.kind() == Kind::Session { Remedy::Expel } else { Remedy::Delete }
}

/// Why nodes cannot read it.
fn parse_error(entry: &Entry) -> String {
    let value = &entry.value;
    let fault = match entry.key.kind() {
        Kind::Session => value.parse::<Session>().err(),
        Kind::Node => value.parse::<tenure_core::record::Node>().err(),
        Kind::Role => value.parse::<Role>().err(),
        Kind::RoleControl => value.parse::<tenure_core::record::RoleControl>().err(),
        Kind::NodeControl => value.parse::<tenure_core::record::NodeControl>().err(),
        _ => None,
    };
    fault.map_or_else(
        || "the token that the store keeps beside it is not the one in it".to_owned(),
        |fault| fault.to_string(),
    )
}

/// A role may only be written anew with the holder that it named: that node may lead it still. Without a holder, or
/// with a token that leaves no room for a next one, only a new epoch makes sure that no node leads.
fn check_role(entry: &Entry) -> Option<DamagedRegister> {
    if let Record::Role(role) = entry.value.to_record(&entry.key) {
        let problem = format!("token {} is near the end of the range: no leader got there", role.token);
        return (role.token >= Token::IMPLAUSIBLE).then(|| damaged(entry, &problem, Remedy::Renew));
    }
    let remedy = if rewritten(entry).is_some() { Remedy::Rewrite } else { Remedy::Renew };
    Some(damaged(entry, &parse_error(entry), remedy))
}

/// What can still be read of a role: its token, which the store keeps beside it, and its holder.
fn rewritten(entry: &Entry) -> Option<Value> {
    let raw = entry.value.parse::<serde_json::Value>().ok()?;
    let holder: Holder = serde_json::from_value(raw.get("holder")?.clone()).ok()?;
    let told = raw.get("token").and_then(|token| serde_json::from_value::<Token>(token.clone()).ok());
    let token = told.max(entry.value.token).filter(|token| *token < Token::IMPLAUSIBLE)?;
    let (since, reason) = (wall_now(), StartReason::Repaired.into());
    let role = Role { token, holder: Some(holder), since, reason, previous: None, successor: None };
    Some(Value::of_record(&Record::Role(role)))
}

fn damaged(entry: &Entry, problem: &str, remedy: Remedy) -> DamagedRegister {
    let problem = problem.chars().take(200).collect();
    DamagedRegister { register: entry.key.to_string(), problem, remedy, entry: entry.clone() }
}

fn expelled(lease: Duration) -> Session {
    Session {
        node: Name::new("unknown").expect("a fixed name is a name"),
        beat: 0,
        freed: 0,
        freed_lately: Vec::new(),
        holds_back: false,
        node_writes: 0,
        ttl: lease,
        every: Duration::ZERO,
        takeover: Takeover::Strict,
        grace: lease,
        liveness_lock: None,
        state: SessionState::Expelled,
        beat_at: Timestamp::from_micros(0),
    }
}
