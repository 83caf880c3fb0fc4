//! Leader-only work: a supervised group of named workers that runs while a role is led, and only then.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! use tenure::work::{RestartPolicy, Worker, WorkerGroup};
//!
//! let node = tenure::Node::builder("memory:group").name("web-1").start().await?;
//! let group = WorkerGroup::new()
//!     .worker(Worker::new("aggregate", |context| async move {
//!         context.ready();
//!         context.stopping().await; // the last chance to finish what is in flight
//!         Ok(())
//!     }))
//!     .worker(Worker::blocking("compact", |context| {
//!         while context.check() && !context.is_stopping() {
//!             std::thread::sleep(std::time::Duration::from_millis(5));
//!         }
//!         Ok(())
//!     }).restart(RestartPolicy::OnFailure));
//!
//! // Campaign, work while leading, stop in time, campaign again, until the node is stopped.
//! let leading = group.lead(node.candidate("scheduler"));
//! # let stop = async { tokio::time::sleep(std::time::Duration::from_millis(50)).await; node.stop().await; Ok(()) };
//! # tokio::try_join!(leading, stop)?;
//! # Ok::<(), tenure::Error>(()) }).unwrap();
//! ```
//!
//! *elected → workers start, in order → told to stop → finish what is in flight → cancelled when the drain time is over →
//! resigned.* The role is given up once every worker is joined, and not before. Work that cannot start, dies beyond its
//! policy, hangs, fails its health check or panics ends the tenure (`work-failed`), and the node does not claim it for
//! its cool-down, so that another node gets a turn. Leading without working is a fault.

mod context;
mod supervisor;
mod worker;

pub use context::WorkerContext;
pub use supervisor::WorkerFailure;
pub use worker::{HealthCheck, RestartPolicy, WorkError, Worker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::event::EventKind;
use crate::node::CandidateBuilder;
use crate::{EndReason, Error, Name, Node, StopRequest, Tenure};
use context::StopSignals;
use supervisor::WorkerExit;

/// How far leading goes, for moving to elections step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkMode {
    /// Does not stand for the role.
    Off,
    /// Elects and records, and runs nothing.
    Shadow,
    /// Elects, and works.
    #[default]
    On,
}

/// Workers that belong together: they run while a role is led.
#[derive(Debug, Clone, Default)]
#[must_use = "a group runs with `lead(…)`"]
pub struct WorkerGroup {
    workers: Vec<Worker>,
    mode: WorkMode,
    static_leader: Option<Name>,
}

/// The report on one tenure of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenureReport {
    /// The reason for the end of the tenure.
    pub reason: EndReason,
    /// The worker whose failure ended the tenure.
    pub failure: Option<FailedWorker>,
    /// Workers that did not finish, in time or well, after they were told to stop.
    pub cancelled: Vec<String>,
    /// How often each worker was started.
    pub starts: Vec<WorkerStarts>,
}

/// A worker that failed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedWorker {
    /// The name of the worker.
    pub worker: String,
    /// How it failed.
    pub failure: WorkerFailure,
}

/// How often a worker was started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStarts {
    /// The name of the worker.
    pub worker: String,
    /// The number of starts; those after the first are restarts.
    pub count: u32,
}

impl WorkerGroup {
    /// A group without workers: add some.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a worker. Workers start in the order in which they were added; see [`Worker::ready_timeout`].
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// The mode; [`WorkMode::On`] by default.
    pub fn mode(mut self, mode: WorkMode) -> Self {
        self.mode = mode;
        self
    }

    /// Only this node leads, whatever other candidates there are: see [`CandidateBuilder::static_leader`].
    pub fn static_leader(mut self, leader: Name) -> Self {
        self.static_leader = Some(leader);
        self
    }

    /// Campaigns, works while leading, gives up cleanly and campaigns again, until the node is stopped. Work that has
    /// finished, as work that failed, keeps this node from claiming the role for its cool-down.
    pub async fn lead(&self, candidate: CandidateBuilder) -> Result<(), Error> {
        if self.mode == WorkMode::Off {
            return Ok(());
        }
        let builder = match &self.static_leader {
            Some(leader) => candidate.static_leader(leader),
            None => candidate,
        };
        let (node, eligible) = (builder.node().clone(), builder.is_eligible());
        let candidate = builder.await?;
        while let Some(tenure) = candidate.elected().await {
            let report = self.run(&node, tenure).await;
            if report.reason == EndReason::Finished {
                candidate.set_eligible(false);
                tokio::time::sleep(node.timing().ttl).await;
                candidate.set_eligible(eligible);
            }
        }
        Ok(())
    }

    /// One tenure: starts the workers, stays with them, stops them in time and gives the role up. Returns when the
    /// tenure is over.
    ///
    /// Dropping this future cancels the workers at once; the role is given up in the background when they are joined.
    ///
    /// # Panics
    /// If the runtime is shut down meanwhile.
    pub async fn run(&self, node: &Node, tenure: Tenure) -> TenureReport {
        let dropped = CancellationToken::new();
        let _guard = dropped.clone().drop_guard();
        let (group, node) = (self.clone(), node.clone());
        // On a task of its own: the guard of the tenure must outlive the workers, whatever the caller drops.
        let supervised = tokio::spawn(async move { group.supervise(&node, tenure, dropped).await });
        supervised.await.expect("the supervisor neither panics nor is aborted")
    }

    async fn supervise(&self, node: &Node, tenure: Tenure, dropped: CancellationToken) -> TenureReport {
        let lead = tenure.lead();
        let signals = StopSignals::new();
        let base = WorkerContext::new(node.clone(), lead.clone(), self.mode, signals.clone());
        let chosen = self.workers.iter().filter(|worker| self.mode == WorkMode::On || worker.shadows);
        let (mut workers, mut gate) = (FuturesUnordered::new(), None);
        for worker in chosen {
            let context = base.for_worker();
            let before = gate.replace(context.readiness());
            workers.push(supervisor::supervise(worker, context, before));
        }
        let mut outcomes = WorkerOutcomes::default();
        let stop = loop {
            tokio::select! {
                biased;
                request = lead.stop_requested() => break Some(request),
                () = dropped.cancelled() => break Some(StopRequest::LeaseEnds { reason: EndReason::Resigned }),
                // With nothing to do, as in shadow mode, the role is led until it is given up.
                Some(ended) = workers.next() => if outcomes.add(ended) || workers.is_empty() { break None },
            }
        };
        signals.stop.cancel();
        // Work that ended by itself leaves the others their drain time.
        let request = stop.unwrap_or(StopRequest::Drain { reason: EndReason::Finished });
        tokio::select! {
            biased;
            () = outcomes.finish(&mut workers) => {}
            () = tenure.stop_deadline(request) => {}
            () = dropped.cancelled() => {}
            // A drain that begins calmly may still run into the end of the lease.
            () = lead.cancelled() => {}
        }
        signals.kill.cancel();
        outcomes.finish(&mut workers).await;
        drop(workers);
        self.give_up(node, tenure, stop.map(StopRequest::reason), outcomes).await
    }

    /// Every worker is joined: the role may go. A failure is published once the tenure is lost.
    async fn give_up(
        &self,
        node: &Node,
        tenure: Tenure,
        reason: Option<EndReason>,
        outcomes: WorkerOutcomes,
    ) -> TenureReport {
        let (lead, role, token) = (tenure.lead(), tenure.role().clone(), tenure.token());
        match (&outcomes.failure, reason) {
            (Some(_), _) => tenure.fail(),
            (None, Some(EndReason::Shutdown)) => tenure.shut_down(),
            _ => drop(tenure),
        }
        let lost = lead.lost().await;
        if let Some(failed) = &outcomes.failure {
            let (worker, why) = (failed.worker.clone(), failed.failure.to_string());
            node.publish_in_order(EventKind::WorkFailed { role, token, worker, why });
        } else {
            node.publish_in_order(EventKind::WorkStopped {
                role,
                token,
                cancelled: outcomes.cancelled.clone(),
            });
        }
        let reason = if outcomes.failure.is_some() { EndReason::WorkFailed } else { reason.unwrap_or(lost) };
        TenureReport {
            reason,
            failure: outcomes.failure,
            cancelled: outcomes.cancelled,
            starts: outcomes.starts,
        }
    }
}

#[derive(Debug, Default)]
struct WorkerOutcomes {
    failure: Option<FailedWorker>,
    cancelled: Vec<String>,
    starts: Vec<WorkerStarts>,
}

impl WorkerOutcomes {
    /// True if the tenure has to end because of it.
    fn add(&mut self, ended: WorkerExit) -> bool {
        self.starts.push(WorkerStarts { worker: ended.worker.clone(), count: ended.starts });
        match ended.how {
            Ok(()) => false,
            Err(WorkerFailure::Cancelled) => {
                self.cancelled.push(ended.worker);
                false
            }
            Err(failure) => {
                self.failure.get_or_insert(FailedWorker { worker: ended.worker, failure });
                true
            }
        }
    }

    async fn finish<F: Future<Output = WorkerExit>>(&mut self, workers: &mut FuturesUnordered<F>) {
        while let Some(ended) = workers.next().await {
            self.add(ended);
        }
    }
}
