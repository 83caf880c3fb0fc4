//! Leader-only work: a supervised group of named workers that runs while a role is led, and only then.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! use tenure::work::{Group, Restart, Worker};
//!
//! let node = tenure::Node::connect("memory:group").name("web-1").start().await?;
//! let group = Group::new()
//!     .worker(Worker::new("aggregate", |scope| async move {
//!         scope.ready();
//!         scope.stopping().await; // the last chance to finish what is in flight
//!         Ok(())
//!     }))
//!     .worker(Worker::blocking("compact", |scope| {
//!         while scope.check() && !scope.is_stopping() {
//!             std::thread::sleep(std::time::Duration::from_millis(5));
//!         }
//!         Ok(())
//!     }).restart(Restart::OnFailure));
//!
//! // Campaign, work while leading, stop in time, campaign again, until the node is stopped.
//! let leading = group.lead(node.stand("scheduler"));
//! # let stop = async { tokio::time::sleep(std::time::Duration::from_millis(50)).await; node.stop().await; Ok(()) };
//! # tokio::try_join!(leading, stop)?;
//! # Ok::<(), tenure::Error>(()) }).unwrap();
//! ```
//!
//! *elected → workers start, in order → told to stop → finish what is in flight → cancelled when the drain time is over →
//! resigned.* The role is given up once every worker is joined, and not before. Work that cannot start, dies beyond its
//! policy, hangs, fails its health check or panics ends the tenure (`work-failed`), and the node stands back for its
//! cool-down so that another gets a turn. Leading without working is a fault.

mod scope;
mod tend;
mod worker;

pub use scope::Scope;
pub use tend::Failure;
pub use worker::{Health, Restart, WorkError, Worker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::event::What;
use crate::node::CandidateBuilder;
use crate::{Error, Name, Node, Reason, Tenure};
use scope::Orders;
use tend::Ended;

/// How far leading goes: for moving to elections step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
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
pub struct Group {
    workers: Vec<Worker>,
    mode: Mode,
    static_leader: Option<Name>,
}

/// What one tenure came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Why the tenure ended.
    pub reason: Reason,
    /// Which worker failed, and how, if that was it.
    pub failure: Option<(String, Failure)>,
    /// Workers that did not finish, in time or well, after they were told to stop.
    pub cancelled: Vec<String>,
    /// How often each worker was started.
    pub starts: Vec<(String, u32)>,
}

impl Group {
    /// A group without workers: add some.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a worker. Workers start in the order in which they were added; see [`Worker::ready_within`].
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// How far leading goes; [`Mode::On`] by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Only this node leads, whoever else stands: see [`CandidateBuilder::static_leader`].
    pub fn static_leader(mut self, leader: Name) -> Self {
        self.static_leader = Some(leader);
        self
    }

    /// Campaigns, works while leading, gives up cleanly and campaigns again, until the node is stopped. Work that has
    /// finished, as work that failed, makes this node stand back for its cool-down.
    pub async fn lead(&self, stand: CandidateBuilder) -> Result<(), Error> {
        if self.mode == Mode::Off {
            return Ok(());
        }
        let stand = match &self.static_leader {
            Some(leader) => stand.static_leader(leader),
            None => stand,
        };
        let (node, eligible) = (stand.node().clone(), stand.is_eligible());
        let candidate = stand.start().await?;
        while let Some(tenure) = candidate.elected().await {
            let report = self.run(&node, tenure).await;
            if report.reason == Reason::Finished {
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
    pub async fn run(&self, node: &Node, tenure: Tenure) -> Report {
        let dropped = CancellationToken::new();
        let _guard = dropped.clone().drop_guard();
        let (group, node) = (self.clone(), node.clone());
        // On a task of its own: the guard of the tenure must outlive the workers, whoever drops what.
        let supervised = tokio::spawn(async move { group.supervise(&node, tenure, dropped).await });
        supervised.await.expect("the supervisor neither panics nor is aborted")
    }

    async fn supervise(&self, node: &Node, tenure: Tenure, dropped: CancellationToken) -> Report {
        let lead = tenure.lead();
        let orders = Orders::new();
        let base = Scope::new(node.clone(), lead.clone(), self.mode, orders.clone());
        let workers = self.workers.iter().filter(|worker| self.mode == Mode::On || worker.shadows);
        let (mut tended, mut gate) = (FuturesUnordered::new(), None);
        for worker in workers {
            let scope = base.of_worker();
            let before = gate.replace(scope.readiness());
            tended.push(tend::tend(worker, scope, before));
        }
        let mut book = Book::default();
        let told = loop {
            tokio::select! {
                biased;
                (reason, forced) = lead.ended() => break Some((reason, forced)),
                () = dropped.cancelled() => break Some((Reason::Resigned, true)),
                // With nothing to do, as in the shadow, the role is led until somebody ends it.
                Some(ended) = tended.next() => if book.enter(ended) || tended.is_empty() { break None },
            }
        };
        orders.stop.cancel();
        let forced = told.is_some_and(|(_, forced)| forced);
        tokio::select! {
            biased;
            () = book.finish(&mut tended) => {}
            () = tenure.out_of_time(forced) => {}
            () = dropped.cancelled() => {}
            // A drain that begins calmly may still run into the end of the lease.
            () = lead.cancelled() => {}
        }
        orders.kill.cancel();
        book.finish(&mut tended).await;
        drop(tended);
        self.give_up(node, tenure, told.map(|(reason, _)| reason), book).await
    }

    /// Every worker is joined: the role may go. What went wrong is told once it is lost.
    async fn give_up(&self, node: &Node, tenure: Tenure, told: Option<Reason>, book: Book) -> Report {
        let (lead, role, token) = (tenure.lead(), tenure.role().clone(), tenure.token());
        match (&book.failure, told) {
            (Some(_), _) => tenure.fail(),
            (None, Some(Reason::Shutdown)) => tenure.shut_down(),
            _ => drop(tenure),
        }
        let lost = lead.lost().await;
        if let Some((worker, failure)) = &book.failure {
            let (worker, why) = (worker.clone(), failure.to_string());
            node.tell_in_turn(What::WorkFailed { role, token, worker, why });
        } else {
            node.tell_in_turn(What::WorkStopped { role, token, cancelled: book.cancelled.clone() });
        }
        let reason = if book.failure.is_some() { Reason::WorkFailed } else { told.unwrap_or(lost) };
        Report { reason, failure: book.failure, cancelled: book.cancelled, starts: book.starts }
    }
}

/// What became of the workers.
#[derive(Debug, Default)]
struct Book {
    failure: Option<(String, Failure)>,
    cancelled: Vec<String>,
    starts: Vec<(String, u32)>,
}

impl Book {
    /// True if the tenure has to end because of it.
    fn enter(&mut self, ended: Ended) -> bool {
        self.starts.push((ended.worker.clone(), ended.starts));
        match ended.how {
            Ok(()) => false,
            Err(Failure::Cancelled) => {
                self.cancelled.push(ended.worker);
                false
            }
            Err(failure) => {
                self.failure.get_or_insert((ended.worker, failure));
                true
            }
        }
    }

    async fn finish<F: Future<Output = Ended>>(&mut self, tended: &mut FuturesUnordered<F>) {
        while let Some(ended) = tended.next().await {
            self.enter(ended);
        }
    }
}
