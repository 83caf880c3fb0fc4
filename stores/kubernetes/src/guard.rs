//! The guard lock in Kubernetes: the Lease of client-go's `leaderelection`.
//!
//! The holder writes its name into `holderIdentity` and renews `renewTime`. No clock of another host counts: a contender takes a
//! Lease over that has not changed for `leaseDurationSeconds` since the contender received it, on the contender's own clock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::STORE;
use super::connection::{Cluster, Effect, Question, Reply};
use super::settings::{KubernetesSettings, URL};
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{GuardBackend, GuardLock, Hold, OpenedGuardLock, StoreError};

/// How often one attempt reads the Lease again that another program changed meanwhile.
const ATTEMPTS: usize = 3;

/// This guard lock, by its URLs.
pub const GUARD_BACKEND: GuardBackend =
    GuardBackend::new(&["kubernetes"], "kubernetes:NAMESPACE/LEASE", |url, holder| {
        let lock = KubernetesGuard::open(url, holder)?;
        let warning = lock.contender.cluster.settings.warning();
        Ok(OpenedGuardLock::new(lock, warning))
    });

/// One contender for a Lease.
pub struct KubernetesGuard {
    contender: Arc<Contender>,
    thread: ConnectionThread,
}

struct Contender {
    cluster: Cluster,
    lease: String,
    holder: String,
    ttl: Duration,
    known: Mutex<Known>,
}

/// What this contender knows of the Lease.
#[derive(Debug, Default)]
struct Known {
    /// The Lease as the last renewal left it.
    renewed: Option<Value>,
    /// The last attempt ended with this contender as the holder.
    held: bool,
    /// The record of another holder, and when it was first received.
    seen: Option<(Value, Instant)>,
}

/// What became of a write.
enum Written {
    Done(Value),
    /// Another program changed the Lease meanwhile.
    Outrun,
}

impl KubernetesGuard {
    /// Prepares a contender for the Lease that a URL names, known there as `holder`; nothing is connected.
    ///
    /// `kubernetes:NAMESPACE/LEASE?ttl=15s`, without the namespace for that of the pod or of the kubeconfig's context; the other
    /// parameters are those of the store.
    ///
    /// # Errors
    /// If the URL cannot be read, or the process has no threads left. No message shows the URL.
    pub fn open(url: &str, holder: &str) -> Result<Self, StoreError> {
        let (url, ttl) = URL.guard_ttl(url)?;
        let (place, query) =
            url.split_once('?').map_or((url.as_str(), None), |(place, query)| (place, Some(query)));
        let named = place.split_once('/').filter(|(_, lease)| is_name(lease));
        let Some((place, lease)) = named else {
            return Err(
                URL.refuse("the URL of a guard lock names a Lease: write kubernetes:NAMESPACE/LEASE?ttl=15s")
            );
        };
        let store = query.map_or_else(|| place.to_owned(), |query| format!("{place}?{query}"));
        let settings = Arc::new(KubernetesSettings::parse(&store)?);
        let cluster = Cluster::new(settings, Arc::new(Watches::default()))?;
        let (lease, holder) = (lease.to_owned(), holder.to_owned());
        let contender = Contender { cluster, lease, holder, ttl, known: Mutex::default() };
        Ok(Self { contender: Arc::new(contender), thread: ConnectionThread::open(STORE)? })
    }
}

/// Whether Kubernetes takes it as the name of a Lease.
fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends = |c: char| matches!(c, '-' | '.');
    (1..=253).contains(&text.len()) && text.chars().all(inner) && text.trim_matches(ends) == text
}

impl fmt::Debug for KubernetesGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesGuard").field("lease", &self.to_string()).finish_non_exhaustive()
    }
}

impl fmt::Display for KubernetesGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kubernetes:{}/{}", self.contender.cluster.settings.namespace, self.contender.lease)
    }
}

/// Attempts run on the thread of the lock, one after the other, also if the caller went away.
#[async_trait]
impl GuardLock for KubernetesGuard {
    fn ttl(&self) -> Duration {
        self.contender.ttl
    }

    async fn hold(&self) -> Result<Hold, StoreError> {
        let contender = self.contender.clone();
        self.thread.run(async move { contender.hold().await }).await
    }

    async fn release(&self) -> Result<(), StoreError> {
        let contender = self.contender.clone();
        self.thread.run(async move { contender.release().await }).await
    }
}

impl Contender {
    async fn hold(&self) -> Result<Hold, StoreError> {
        let mut known = self.known.lock().await;
        if let Some(lease) = known.renewed.take() {
            let spec = self.spec(holder_since(&lease), transitions(&lease));
            if let Written::Done(lease) = self.replace(lease, spec).await? {
                known.renewed = Some(lease);
                return Ok(Hold::Held);
            }
        }
        for _ in 0..ATTEMPTS {
            let found = self.read().await?;
            let holder = found.as_ref().map_or("", holder).to_owned();
            // Whatever it is now: this contender did not hold it for a while.
            if holder != self.holder && std::mem::take(&mut known.held) {
                let shown =
                    if holder.is_empty() { "no program now: the Lease was given up" } else { &holder };
                return Ok(Hold::HeldBy(shown.to_owned()));
            }
            let written = match found {
                None => self.create().await?,
                Some(lease) if holder == self.holder => {
                    let spec = self.spec(holder_since(&lease), transitions(&lease));
                    self.replace(lease, spec).await?
                }
                Some(lease) if holder.is_empty() || known.is_expired(&lease, self.ttl) => {
                    let spec = self.spec(None, transitions(&lease) + 1);
                    self.replace(lease, spec).await?
                }
                Some(_) => return Ok(Hold::HeldBy(holder)),
            };
            if let Written::Done(lease) = written {
                *known = Known { renewed: Some(lease), held: true, seen: None };
                return Ok(Hold::Held);
            }
        }
        Ok(Hold::HeldBy("several contenders at once".to_owned()))
    }

    async fn release(&self) -> Result<(), StoreError> {
        let mut known = self.known.lock().await;
        *known = Known { seen: known.seen.take(), ..Known::default() };
        for _ in 0..ATTEMPTS {
            let Some(lease) = self.read().await?.filter(|lease| holder(lease) == self.holder) else {
                return Ok(());
            };
            let mut spec = self.spec(None, transitions(&lease));
            spec.insert("holderIdentity".to_owned(), "".into());
            // As client-go gives it back: a contender that looks at nothing but the times need not wait.
            spec.insert("leaseDurationSeconds".to_owned(), 1.into());
            if let Written::Done(_) = self.replace(lease, spec).await? {
                return Ok(());
            }
        }
        Err(StoreError::not_applied(STORE, "the Lease is being changed by others at the same time"))
    }

    async fn read(&self) -> Result<Option<Value>, StoreError> {
        match self.cluster.ask(Effect::Reads, &Question::get(self.path())).await? {
            Reply::Done(body) => serde_json::from_slice(&body).map(Some).map_err(|_| self.cluster.strange()),
            Reply::Absent => Ok(None),
            Reply::Conflict | Reply::Gone => Err(self.cluster.strange()),
        }
    }

    async fn create(&self) -> Result<Written, StoreError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.lease },
            "spec": self.spec(None, 0),
        });
        self.write(&Question::with("POST", self.cluster.settings.leases(), &lease)).await
    }

    /// Writes that record over the Lease that was read, and over no other: revision and uid go with it.
    async fn replace(&self, mut lease: Value, spec: Map<String, Value>) -> Result<Written, StoreError> {
        lease["spec"] = Value::Object(spec);
        self.write(&Question::with("PUT", self.path(), &lease)).await
    }

    async fn write(&self, question: &Question) -> Result<Written, StoreError> {
        match self.cluster.ask(Effect::Writes, question).await? {
            Reply::Done(body) => {
                serde_json::from_slice(&body).map(Written::Done).map_err(|_| self.cluster.strange())
            }
            Reply::Absent | Reply::Conflict | Reply::Gone => Ok(Written::Outrun),
        }
    }

    /// The record of this contender, which holds since then, or since now.
    fn spec(&self, since: Option<Value>, transitions: i64) -> Map<String, Value> {
        let now = Value::from(humantime::format_rfc3339_micros(SystemTime::now()).to_string());
        let fields = [
            ("holderIdentity", self.holder.as_str().into()),
            ("leaseDurationSeconds", self.ttl.as_secs().into()),
            ("acquireTime", since.unwrap_or_else(|| now.clone())),
            ("renewTime", now),
            ("leaseTransitions", transitions.into()),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn path(&self) -> String {
        format!("{}/{}", self.cluster.settings.leases(), self.lease)
    }
}

impl Known {
    /// Whether the record of another holder has not changed for as long as it counts, and a tenth more for the clocks.
    fn is_expired(&mut self, lease: &Value, ttl: Duration) -> bool {
        let record = &lease["spec"];
        let (_, since) = match self.seen.take() {
            Some(seen) if seen.0 == *record => self.seen.insert(seen),
            _ => self.seen.insert((record.clone(), Instant::now())),
        };
        let seconds = record["leaseDurationSeconds"].as_u64().filter(|seconds| *seconds > 0);
        let counts = seconds.map_or(ttl, Duration::from_secs);
        since.elapsed() > counts + counts / 10
    }
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

fn holder_since(lease: &Value) -> Option<Value> {
    lease["spec"].get("acquireTime").filter(|time| time.is_string()).cloned()
}

fn transitions(lease: &Value) -> i64 {
    lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default().clamp(0, i64::from(i32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_lease_and_a_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], \
                    clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}], \
                    users: [{name: u, user: {token: hunter2}}]}";
        std::fs::write(file.path(), text).unwrap();
        let open =
            |url: &str| KubernetesGuard::open(&format!("{url}kubeconfig={}", file.path().display()), "me");
        for (url, shown, ttl) in [
            ("kubernetes:team/jobs.scheduler?ttl=7s&", "kubernetes:team/jobs.scheduler", 7),
            ("kubernetes:/jobs?", "kubernetes:default/jobs", 15),
        ] {
            let lock = open(url).unwrap();
            assert_eq!((lock.to_string().as_str(), lock.ttl().as_secs()), (shown, ttl));
            assert!(!format!("{lock:?}").contains("hunter2"));
        }
        for (url, part) in [
            ("kubernetes:team?", "names a Lease"),
            ("kubernetes:team/?", "names a Lease"),
            ("kubernetes:team/Hunter2?", "names a Lease"),
            ("kubernetes:team/x?ttl=1500ms&", "whole seconds"),
            ("kubernetes:team/x?hunter2=1&", "parameters of a Kubernetes URL"),
        ] {
            let message = open(url).expect_err(url).to_string();
            assert!(message.contains(part) && !message.contains("hunter2"), "{url}: {message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_expires_once_it_has_not_changed_for_as_long_as_it_counts() {
        let lease = |renewed: &str| json!({"spec": {"holderIdentity": "x", "leaseDurationSeconds": 10, "renewTime": renewed}});
        let (mut known, ttl) = (Known::default(), Duration::from_secs(15));
        assert!(!known.is_expired(&lease("1"), ttl), "it was just received, whatever its times say");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!known.is_expired(&lease("1"), ttl), "clocks may differ by a tenth");
        assert!(!known.is_expired(&lease("2"), ttl), "it was renewed");
        tokio::time::advance(Duration::from_millis(11_001)).await;
        assert!(known.is_expired(&lease("2"), ttl));
    }
}
