//! Many nodes and many roles on one store: what they cost at rest, what happens when the busiest node is gone, and a rolling
//! restart of all.
//!
//! Each node has a handle of its own on the store, as a process of its own would have. Each role has a few candidates, drawn
//! by lot, and the same ones in each run.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rustix::process::getpid;
use tenure::{Candidate, Node, Token};
use tenure_torture::servers::cpu_of;
use tenure_torture::target::{ServerUse, TargetStore};

use super::figures::{Figures, Spread, show};
use super::measure::resident;
use super::metered::{Count, Meter, Metered};
use super::{Bench, micros, progress};
use crate::exit::Exit;

/// How many nodes stand for how many roles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) nodes: usize,
    pub(super) roles: usize,
    /// So many nodes stand for each role.
    pub(super) candidates: usize,
    pub(super) ttl: Duration,
}

/// So many nodes start at a time, as operators of many nodes should start them: the next one when one of these has its session.
const AT_ONCE: usize = 16;
/// How often it is looked whether all roles are led.
const LOOK: Duration = Duration::from_millis(5);
/// A run whose roles are not led after so many leases has failed.
const PATIENCE: u32 = 120;
/// For so many leases the cost at rest is counted, after as many in which the nodes come to rest.
const RESTED: u32 = 6;

/// Measures all of it.
pub(super) async fn scale(
    bench: &Bench,
    scale: Scale,
    server: Option<&TargetStore>,
    figures: &mut Figures,
) -> Result<(), Exit> {
    let Scale { nodes, roles, candidates, .. } = scale;
    let size = format!("{nodes} nodes, {roles} roles of {candidates} candidates");
    progress(&size);
    let before = resident();
    let (mut fleet, began) = (Fleet::new(bench, scale), Instant::now());
    fleet.start_all().await?;
    fleet.wait_until_led().await?;
    let asked = Total(fleet.meter.reset());
    figures.plain(&format!("{size}: all led"), format!("{}, {asked}", show(micros(began.elapsed()))), "");
    rest(&fleet, server, figures, before).await;
    if candidates > 1 {
        lose_the_busiest(&fleet, figures).await?;
    }
    restart_all(&mut fleet, figures).await?;
    let server = server_use(server).await;
    let connections = server.map_or("?".to_owned(), |server| server.connections.to_string());
    figures.plain("… connections in the end", connections, "");
    fleet.stop_all().await;
    Ok(())
}

/// What all of them cost while nothing happens, by the minute.
async fn rest(fleet: &Fleet<'_>, server: Option<&TargetStore>, figures: &mut Figures, memory: u64) {
    progress("the cost at rest");
    let span = fleet.scale.ttl * RESTED;
    tokio::time::sleep(span).await;
    fleet.wait_for_histories().await;
    let (from, cpu) = (server_use(server).await, cpu_of(getpid()));
    fleet.meter.reset();
    let began = Instant::now();
    tokio::time::sleep(span).await;
    let (count, to, took) = (fleet.meter.reset(), server_use(server).await, began.elapsed());
    let nodes = fleet.members.len() as u64;
    figures.plain("… at rest, a minute", Total(count.per_minute(took)).to_string(), "");
    if let Some((from, to)) = from.zip(to) {
        figures.plain("… of the server, a minute", ServerMinute { from, to, took }.to_string(), "");
    }
    let busy = percent(cpu_of(getpid()).saturating_sub(cpu), took) / nodes as f64;
    let size = resident().saturating_sub(memory) / nodes / 1024;
    figures.plain("… a node", format!("{busy:.2} % of a core, {size} KiB"), "");
}

async fn server_use(server: Option<&TargetStore>) -> Option<ServerUse> {
    server?.usage().await
}

fn percent(cpu: Duration, of: Duration) -> f64 {
    100.0 * cpu.as_secs_f64() / of.as_secs_f64()
}

struct Total(Count);

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { operations, rows, bytes } = self.0;
        let mib = bytes as f64 / f64::from(1 << 20);
        write!(f, "{operations} operations, {rows} rows, {mib:.1} MiB of records")
    }
}

struct ServerMinute {
    from: ServerUse,
    to: ServerUse,
    took: Duration,
}

impl fmt::Display for ServerMinute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, took } = self;
        let minute = |from: u64, to: u64| to.saturating_sub(from) as f64 * 60.0 / took.as_secs_f64();
        let cpu = percent(to.cpu.saturating_sub(from.cpu), *took);
        let requests = minute(from.requests, to.requests);
        write!(f, "{cpu:.1} % of a core, {} connections, {requests:.0} requests", to.connections)?;
        if let Some((from, to)) = from.bytes.zip(to.bytes) {
            let mib = |from, to| minute(from, to) / f64::from(1 << 20);
            write!(f, ", {:.1} MiB received, {:.1} MiB sent", mib(from.0, to.0), mib(from.1, to.1))?;
        }
        Ok(())
    }
}

/// The store no longer answers the node that leads the most roles, as if it had been killed.
async fn lose_the_busiest(fleet: &Fleet<'_>, figures: &mut Figures) -> Result<(), Exit> {
    progress("the fail-over of the busiest node");
    let (busiest, roles) = fleet.board.busiest();
    let cut_at = Instant::now();
    fleet.members[busiest].cut.store(true, Ordering::Relaxed);
    let mut spread = Spread::new();
    for began in fleet.led_by_others(&roles, busiest).await? {
        spread.add(micros(began.saturating_duration_since(cut_at)));
    }
    let what = format!("busiest node cut off: its {} roles led again", roles.len());
    let bound = fleet.members[busiest].node.timing().bounds().crash;
    figures.plain(&what, spread.to_string(), &format!("≤ {}", show(micros(bound))));
    fleet.members[busiest].cut.store(false, Ordering::Relaxed);
    // It notices, and stands again.
    tokio::time::sleep(2 * fleet.scale.ttl).await;
    fleet.wait_until_led().await
}

/// One node after the other is stopped and started anew, as soon as every role is led.
async fn restart_all(fleet: &mut Fleet<'_>, figures: &mut Figures) -> Result<(), Exit> {
    progress("a rolling restart");
    fleet.board.take_gaps();
    let began = Instant::now();
    for node in 0..fleet.members.len() {
        fleet.members[node].node.stop().await;
        fleet.members[node] = fleet.start(node).await?;
        fleet.wait_until_led().await?;
    }
    let what = format!("rolling restart of {} nodes", fleet.members.len());
    figures.plain(&what, show(micros(began.elapsed())), "");
    let gaps = fleet.board.take_gaps();
    let mut spread = Spread::new();
    gaps.iter().for_each(|gap| spread.add(micros(*gap)));
    figures.plain(&format!("… {} hand-overs, each without a leader for", gaps.len()), spread.to_string(), "");
    Ok(())
}

/// All nodes, and what they share.
struct Fleet<'a> {
    bench: &'a Bench,
    scale: Scale,
    /// The roles of each node.
    stands: Vec<Vec<usize>>,
    meter: Arc<Meter>,
    board: Arc<Board>,
    members: Vec<Member>,
}

struct Member {
    node: Node,
    /// The store does not answer it any more.
    cut: Arc<AtomicBool>,
}

impl<'a> Fleet<'a> {
    fn new(bench: &'a Bench, scale: Scale) -> Self {
        Self {
            bench,
            scale,
            stands: stands(scale),
            meter: Arc::default(),
            board: Arc::new(Board::new(scale.roles)),
            members: Vec::new(),
        }
    }

    async fn start_all(&mut self) -> Result<(), Exit> {
        let starting = stream::iter(0..self.scale.nodes).map(|node| self.start(node)).buffered(AT_ONCE);
        let members = starting.try_collect().await?;
        self.members = members;
        Ok(())
    }

    async fn start(&self, node: usize) -> Result<Member, Exit> {
        let cut = Arc::new(AtomicBool::new(false));
        let store = Metered { inner: self.bench.store()?, meter: self.meter.clone(), cut: cut.clone() };
        // Where many start at once the server is slow to answer: a node goes on asking, as a service that is restarted would.
        let started = Node::builder_with_store(Arc::new(store))
            .namespace(self.bench.namespace.as_str())
            .name(format!("scale-{node}"))
            .ttl(self.scale.ttl)
            .start_without_waiting()?;
        started.wait_for_store().await?;
        for role in &self.stands[node] {
            let candidate = started.candidate(&format!("scale-{role}")).await?;
            tokio::spawn(campaign(candidate, node, *role, self.board.clone()));
        }
        Ok(Member { node: started, cut })
    }

    async fn wait_until_led(&self) -> Result<(), Exit> {
        self.wait_until(|slot| slot.leader.is_some()).await
    }

    async fn wait_until(&self, reached: impl Fn(&Slot) -> bool) -> Result<(), Exit> {
        let give_up = Instant::now() + self.scale.ttl * PATIENCE;
        loop {
            let left = self.board.slots().iter().filter(|slot| !reached(slot)).count();
            if left == 0 {
                return Ok(());
            }
            if Instant::now() > give_up {
                let (why, of) = ("the machine or the store is too slow for so many nodes", self.scale.roles);
                return Err(Exit::Failed(format!(
                    "{left} of {of} roles have no leader after {:?}: {why}",
                    self.scale.ttl * PATIENCE
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// When each of these roles was led by another node than this one.
    async fn led_by_others(&self, roles: &[usize], node: usize) -> Result<Vec<Instant>, Exit> {
        self.wait_until(|slot| slot.leader.is_some_and(|leader| leader != node)).await?;
        let slots = self.board.slots();
        Ok(roles.iter().filter_map(|role| slots[*role].began).collect())
    }

    /// The history is written after the fact.
    async fn wait_for_histories(&self) {
        let mut written = None;
        while written != Some(self.meter.histories()) {
            written = Some(self.meter.histories());
            tokio::time::sleep(self.scale.ttl).await;
        }
    }

    async fn stop_all(&self) {
        let stopping = self.members.iter().map(|member| member.node.stop());
        stream::iter(stopping).buffer_unordered(AT_ONCE).for_each(|()| std::future::ready(())).await;
    }
}

/// Leads the role whenever this node is elected, until the node is stopped.
async fn campaign(candidate: Candidate, node: usize, role: usize, board: Arc<Board>) {
    while let Some(tenure) = candidate.elected().await {
        let token = tenure.token();
        board.began(role, node, token);
        let _ = tenure.hold(|_| std::future::pending::<()>()).await;
        board.ended(role, token);
    }
}

/// Which node leads which role, as the candidates see it.
struct Board {
    slots: Mutex<Vec<Slot>>,
    /// For how long roles had no leader between two tenures.
    gaps: Mutex<Vec<Duration>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    leader: Option<usize>,
    token: Option<Token>,
    began: Option<Instant>,
    ended: Option<Instant>,
}

impl Board {
    fn new(roles: usize) -> Self {
        Self { slots: Mutex::new(vec![Slot::default(); roles]), gaps: Mutex::default() }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self, role: usize, node: usize, token: Token) {
        let now = Instant::now();
        let mut slots = self.slots();
        let slot = &mut slots[role];
        (slot.leader, slot.token, slot.began) = (Some(node), Some(token), Some(now));
        let gap = slot.ended.take().map(|ended| now - ended);
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner).extend(gap);
    }

    /// The next leader may have been quicker to say so.
    fn ended(&self, role: usize, token: Token) {
        let mut slots = self.slots();
        let slot = &mut slots[role];
        if slot.token == Some(token) {
            (slot.leader, slot.ended) = (None, Some(Instant::now()));
        }
    }

    fn take_gaps(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.gaps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The node that leads the most roles, and these.
    fn busiest(&self) -> (usize, Vec<usize>) {
        let slots = self.slots();
        let mut led = std::collections::BTreeMap::<usize, Vec<usize>>::new();
        for (role, slot) in slots.iter().enumerate() {
            slot.leader.iter().for_each(|leader| led.entry(*leader).or_default().push(role));
        }
        led.into_iter().max_by_key(|(_, roles)| roles.len()).unwrap_or_default()
    }
}

/// The roles for which each node stands: each role has its candidates by lot.
fn stands(scale: Scale) -> Vec<Vec<usize>> {
    let mut stands = vec![Vec::new(); scale.nodes];
    let mut lot = fastrand::Rng::with_seed(1);
    for role in 0..scale.roles {
        let mut drawn = BTreeSet::new();
        while drawn.len() < scale.candidates {
            drawn.insert(lot.usize(0..scale.nodes));
        }
        drawn.into_iter().for_each(|node| stands[node].push(role));
    }
    stands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_its_candidates_and_no_node_stands_twice() {
        let scale = Scale { nodes: 20, roles: 300, candidates: 3, ttl: Duration::from_secs(5) };
        let stands = stands(scale);
        let mut candidates = [0; 300];
        for roles in &stands {
            assert!(roles.is_sorted() && roles.len() == roles.iter().collect::<BTreeSet<_>>().len());
            roles.iter().for_each(|role| candidates[*role] += 1);
        }
        assert_eq!(candidates, [3; 300]);
        assert!(stands.iter().all(|roles| (20..=80).contains(&roles.len())), "{:?}", stands[0].len());
    }

    #[test]
    fn the_board_knows_who_leads_and_for_how_long_no_node_did() {
        let (board, token) = (Board::new(3), Token::new);
        board.began(0, 7, token(1));
        board.began(1, 7, token(1));
        board.began(2, 5, token(1));
        assert_eq!(board.busiest(), (7, vec![0, 1]));
        board.ended(0, token(1));
        board.began(0, 7, token(2));
        board.ended(0, token(1));
        assert_eq!((board.slots()[0].leader, board.take_gaps().len()), (Some(7), 1));
    }
}
