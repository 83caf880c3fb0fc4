//! What is known: happenings go in, and what the board and the verdict need comes out. No clock, no processes.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{EndReason, Name, Token};

use super::message::MemberMessage;
use super::summary::span;

/// Something that happened, to be told with the instant at which it did.
#[derive(Debug, Clone)]
pub(super) enum DemoEvent {
    /// A process was started for a node.
    Started { node: Name, pid: u32 },
    /// A process said something.
    Reported { node: Name, report: MemberMessage },
    /// A process was killed with SIGKILL.
    Killed { node: Name },
    /// A process was frozen with SIGSTOP.
    Frozen { node: Name },
    /// A frozen process was woken with SIGCONT.
    Woken { node: Name },
    /// A process is gone.
    Gone { node: Name },
    /// A node was asked to leave its other roles to others.
    Spread { from: Name },
    /// A leader was asked to hand over.
    Asked { from: Name, to: Name },
    /// Something that was wanted came to nothing.
    Refused { why: String },
}

/// How a node fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// Its process runs, its session is not open yet.
    Joining,
    /// It takes part.
    Live,
    /// It was frozen.
    Frozen,
    /// It was killed, or ended.
    Dead,
}

#[derive(Debug, Clone)]
pub(super) struct DemoNode {
    pub(super) name: Name,
    pub(super) pid: u32,
    /// How it fared since when, the latest last.
    pub(super) past: Vec<(u64, Health)>,
}

impl DemoNode {
    /// How it fares.
    pub(super) fn health(&self) -> Health {
        self.health_at(u64::MAX)
    }

    /// How it fared.
    pub(super) fn health_at(&self, at: u64) -> Health {
        self.past.iter().rev().find(|(since, _)| *since <= at).map_or(Health::Dead, |(_, health)| *health)
    }
}

/// What ended a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// Its process was killed.
    Crash,
    /// Its process was frozen.
    Freeze,
    /// It was asked for.
    HandOver,
    /// None of the demo's doing.
    Other(EndReason),
}

/// One period of leading a role.
#[derive(Debug, Clone)]
pub(super) struct DemoTenure {
    pub(super) node: Name,
    pub(super) token: Token,
    pub(super) began: u64,
    pub(super) ended: Option<(u64, Cause)>,
}

/// One leader came after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailOver {
    pub(super) at: u64,
    pub(super) from: Name,
    pub(super) to: Name,
    pub(super) token: Token,
    pub(super) cause: Cause,
    /// From the end of the former leader's work to the beginning of the new one's.
    pub(super) gap: Duration,
}

/// All that is known.
#[derive(Debug)]
pub(super) struct DemoCluster {
    /// When the demo began.
    pub(super) began: u64,
    pub(super) nodes: Vec<DemoNode>,
    tenures: BTreeMap<Name, BTreeMap<Token, DemoTenure>>,
    /// Until when the leader of the scheduler may rely on it, as far as it said.
    pub(super) lease_until: u64,
    /// The latest thing worth a headline.
    pub(super) headline: String,
    main: Name,
}

impl DemoCluster {
    /// A cluster without nodes yet.
    pub(super) fn new(began: u64, nodes: &[Name], main: Name) -> Self {
        let node_state = |name: &Name| DemoNode { name: name.clone(), pid: 0, past: Vec::new() };
        let nodes = nodes.iter().map(node_state).collect();
        let headline = "The nodes start; each claims vacant roles in its turn.".to_owned();
        Self { began, nodes, tenures: BTreeMap::new(), lease_until: 0, headline, main }
    }

    /// Takes a happening in, and says what there is to say about it.
    pub(super) fn apply(&mut self, at: u64, event: DemoEvent) -> Option<String> {
        match event {
            DemoEvent::Started { node, pid } => self.started(at, &node, pid),
            DemoEvent::Reported { node, report } => self.reported(at, &node, report),
            DemoEvent::Killed { node } => {
                let held = self.ends(at, &node, Cause::Crash);
                self.becomes(at, &node, Health::Dead);
                self.headline(format!("{node} is killed (SIGKILL){held}"))
            }
            DemoEvent::Frozen { node } => {
                self.ends(at, &node, Cause::Freeze);
                self.becomes(at, &node, Health::Frozen);
                let main = &self.main;
                self.headline(format!(
                    "{node} is frozen (SIGSTOP): no node may lead {main} until its lease ends"
                ))
            }
            DemoEvent::Woken { node } => {
                self.becomes(at, &node, Health::Live);
                self.headline(format!("{node} is woken (SIGCONT) and finds out what it missed"))
            }
            DemoEvent::Gone { node } => self.gone(at, &node),
            DemoEvent::Spread { from } => self
                .headline(format!("{from} came first and took every role; it is asked to leave the shards")),
            DemoEvent::Asked { from, to } => {
                self.headline(format!("{from} is asked to hand {} to {to}", self.main))
            }
            DemoEvent::Refused { why } => self.headline(why),
        }
    }

    /// The roles a node holds, the scheduler first. A frozen node holds them until another node takes them.
    pub(super) fn held_by(&self, node: &Name) -> Vec<&Name> {
        let held = |role: &&Name| self.holder(role).is_some_and(|tenure| tenure.node == *node);
        let mut roles: Vec<&Name> = self.tenures.keys().filter(held).collect();
        roles.sort_by_key(|role| **role != self.main);
        roles
    }

    /// Who holds what, in one line.
    pub(super) fn spread(&self) -> String {
        let held = |node_state: &DemoNode| {
            let roles: Vec<&str> = self.held_by(&node_state.name).into_iter().map(Name::as_str).collect();
            format!(
                "{}: {}",
                node_state.name,
                if roles.is_empty() { "-".to_owned() } else { roles.join(" ") }
            )
        };
        self.nodes.iter().map(held).collect::<Vec<_>>().join(" | ")
    }

    /// Who holds a role, be it frozen.
    pub(super) fn holder(&self, role: &Name) -> Option<&DemoTenure> {
        let last = self.tenures.get(role)?.values().next_back()?;
        matches!(last.ended, None | Some((_, Cause::Freeze))).then_some(last)
    }

    /// Who leads the scheduler, and is not frozen.
    pub(super) fn leader(&self) -> Option<&DemoTenure> {
        self.holder(&self.main).filter(|tenure| tenure.ended.is_none())
    }

    /// The role that the board is about.
    pub(super) fn main_role(&self) -> &Name {
        &self.main
    }

    /// All that led the scheduler, in order.
    pub(super) fn tenures(&self) -> impl DoubleEndedIterator<Item = &DemoTenure> {
        self.tenures.get(&self.main).into_iter().flat_map(BTreeMap::values)
    }

    /// How often the scheduler went from one to the next, and how.
    pub(super) fn fail_overs(&self) -> Vec<FailOver> {
        self.tenures().zip(self.tenures().skip(1)).filter_map(fail_over).collect()
    }

    /// How many fare like that.
    pub(super) fn count(&self, health: Health) -> usize {
        self.nodes.iter().filter(|node_state| node_state.health() == health).count()
    }

    /// A node by its name.
    pub(super) fn node_state(&self, node: &Name) -> Option<&DemoNode> {
        self.nodes.iter().find(|node_state| node_state.name == *node)
    }

    fn started(&mut self, at: u64, node: &Name, pid: u32) -> Option<String> {
        self.becomes(at, node, Health::Joining);
        if let Some(node_state) = self.nodes.iter_mut().find(|node_state| node_state.name == *node) {
            node_state.pid = pid;
        }
        Some(format!("{node} starts as process {pid}"))
    }

    fn reported(&mut self, at: u64, node: &Name, report: MemberMessage) -> Option<String> {
        match report {
            MemberMessage::Joined => {
                let joining =
                    self.node_state(node).is_some_and(|node_state| node_state.health() == Health::Joining);
                if joining {
                    self.becomes(at, node, Health::Live);
                }
                let how = if joining { "joins" } else { "joins again with a new session" };
                Some(format!("{node} {how}"))
            }
            MemberMessage::Over { reason } => {
                let reason = reason.as_str();
                self.headline(format!("{node} sees that its session is over ({reason}) and stands by"))
            }
            MemberMessage::Led { role, token, at } => self.led(at, node, &role, token),
            MemberMessage::Left { role, token, reason, at } => self.left(at, &role, token, reason),
            MemberMessage::Lease { until } => {
                self.goes_on(node);
                self.lease_until = self.lease_until.max(until);
                None
            }
        }
    }

    fn led(&mut self, at: u64, node: &Name, role: &Name, token: Token) -> Option<String> {
        let tenure = DemoTenure { node: node.clone(), token, began: at, ended: None };
        let tenures = self.tenures.entry(role.clone()).or_default();
        let former = tenures.values().next_back().cloned();
        tenures.insert(token, tenure.clone());
        let after = former.and_then(|former| fail_over((&former, &tenure))).map_or(String::new(), |over| {
            let gap = span(over.gap);
            match over.cause {
                Cause::Crash => format!(", {gap} after the crash of {}", over.from),
                Cause::Freeze => format!(", {gap} after {} was frozen", over.from),
                Cause::HandOver => format!(", {gap} after {} stopped working", over.from),
                Cause::Other(reason) => {
                    format!(", {gap} after {} gave it up ({})", over.from, reason.as_str())
                }
            }
        });
        let text = format!("{node} leads {role} with token {token}{after}");
        (*role == self.main).then(|| self.headline(text)).flatten()
    }

    /// The earliest end counts: one that was killed or frozen did nothing more, whatever it noticed later.
    fn left(&mut self, at: u64, role: &Name, token: Token, reason: EndReason) -> Option<String> {
        let tenure = self.tenures.get_mut(role)?.get_mut(&token)?;
        let cause = match reason {
            EndReason::Transfer | EndReason::StepDown => Cause::HandOver,
            reason => Cause::Other(reason),
        };
        if tenure.ended.is_some_and(|(earlier, _)| earlier <= at) {
            return None;
        }
        tenure.ended = Some((at, cause));
        let text = format!("{} has stopped its work for {role} ({})", tenure.node, reason.as_str());
        (*role == self.main).then_some(text)
    }

    /// Every tenure of a node ends; returns what it led, for people.
    fn ends(&mut self, at: u64, node: &Name, cause: Cause) -> String {
        let held: Vec<String> = self.held_by(node).into_iter().map(ToString::to_string).collect();
        for tenure in self.tenures.values_mut().flat_map(BTreeMap::values_mut) {
            if tenure.node == *node && tenure.ended.is_none() {
                tenure.ended = Some((at, cause));
            }
        }
        match held.as_slice() {
            [] => String::new(),
            [one] => format!(" while leading {one}"),
            [first, rest @ ..] => format!(" while leading {first} and {} more roles", rest.len()),
        }
    }

    /// One whose lease moves after it was woken was not frozen for long enough to be replaced: it goes on.
    fn goes_on(&mut self, node: &Name) {
        if self.node_state(node).is_none_or(|node_state| node_state.health() != Health::Live) {
            return;
        }
        for tenures in self.tenures.values_mut() {
            if let Some(tenure) = tenures.values_mut().next_back()
                && tenure.node == *node
                && matches!(tenure.ended, Some((_, Cause::Freeze)))
            {
                tenure.ended = None;
            }
        }
    }

    fn gone(&mut self, at: u64, node: &Name) -> Option<String> {
        if self.node_state(node).is_none_or(|node_state| node_state.health() == Health::Dead) {
            return None;
        }
        self.ends(at, node, Cause::Crash);
        self.becomes(at, node, Health::Dead);
        self.headline(format!("{node} ended by itself"))
    }

    fn becomes(&mut self, at: u64, node: &Name, health: Health) {
        if let Some(node_state) = self.nodes.iter_mut().find(|node_state| node_state.name == *node) {
            node_state.past.push((at, health));
        }
    }

    fn headline(&mut self, text: String) -> Option<String> {
        self.headline.clone_from(&text);
        Some(text)
    }
}

fn fail_over((former, next): (&DemoTenure, &DemoTenure)) -> Option<FailOver> {
    let (ended, cause) = former.ended?;
    Some(FailOver {
        at: next.began,
        from: former.node.clone(),
        to: next.node.clone(),
        token: next.token,
        cause,
        gap: Duration::from_nanos(next.began.saturating_sub(ended)),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::demo) const MS: u64 = 1_000_000;

    pub(in crate::demo) fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Two nodes that have joined.
    pub(in crate::demo) fn two() -> DemoCluster {
        let nodes = [name("node-1"), name("node-2")];
        let mut cluster = DemoCluster::new(0, &nodes, name("scheduler"));
        for (node, pid) in nodes.into_iter().zip(100..) {
            cluster.apply(0, DemoEvent::Started { node: node.clone(), pid });
            say(&mut cluster, node.as_str(), MemberMessage::Joined);
        }
        cluster
    }

    pub(in crate::demo) fn say(
        cluster: &mut DemoCluster,
        node: &str,
        report: MemberMessage,
    ) -> Option<String> {
        cluster.apply(0, DemoEvent::Reported { node: name(node), report })
    }

    pub(in crate::demo) fn led(cluster: &mut DemoCluster, node: &str, token: u64, at: u64) -> Option<String> {
        say(cluster, node, MemberMessage::Led { role: name("scheduler"), token: Token::new(token), at })
    }

    fn left(cluster: &mut DemoCluster, node: &str, token: u64, reason: EndReason, at: u64) {
        say(
            cluster,
            node,
            MemberMessage::Left { role: name("scheduler"), token: Token::new(token), reason, at },
        );
    }

    fn causes(cluster: &DemoCluster) -> Vec<(Cause, u64)> {
        cluster.fail_overs().iter().map(|over| (over.cause, over.gap.as_millis() as u64)).collect()
    }

    #[test]
    fn a_crash_is_counted_from_the_kill() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 10 * MS);
        cluster.apply(50 * MS, DemoEvent::Killed { node: name("node-1") });
        assert!(cluster.leader().is_none());
        let text = led(&mut cluster, "node-2", 2, 58 * MS).unwrap();
        assert_eq!(text, "node-2 leads scheduler with token 2, 8.0 ms after the crash of node-1");
        assert_eq!(causes(&cluster), [(Cause::Crash, 8)]);
        assert!(cluster.apply(60 * MS, DemoEvent::Gone { node: name("node-1") }).is_none());
    }

    #[test]
    fn a_frozen_leader_holds_its_role_until_another_leads() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 0);
        cluster.apply(100 * MS, DemoEvent::Frozen { node: name("node-1") });
        assert!(cluster.leader().is_none());
        assert_eq!(cluster.held_by(&name("node-1")), [&name("scheduler")]);
        led(&mut cluster, "node-2", 2, 2_200 * MS);
        cluster.apply(3_000 * MS, DemoEvent::Woken { node: name("node-1") });
        left(&mut cluster, "node-1", 1, EndReason::LeaseExpired, 3_001 * MS);
        assert_eq!(causes(&cluster), [(Cause::Freeze, 2_100)]);
        assert!(cluster.held_by(&name("node-1")).is_empty());
    }

    #[test]
    fn a_frozen_leader_that_no_node_replaced_goes_on() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 0);
        cluster.apply(100 * MS, DemoEvent::Frozen { node: name("node-1") });
        say(&mut cluster, "node-1", MemberMessage::Lease { until: 2_000 * MS });
        assert!(cluster.leader().is_none(), "that was said before it was frozen");
        cluster.apply(200 * MS, DemoEvent::Woken { node: name("node-1") });
        say(&mut cluster, "node-1", MemberMessage::Lease { until: 2_150 * MS });
        assert_eq!(cluster.leader().unwrap().token, Token::new(1));
        assert!(cluster.fail_overs().is_empty());
    }

    #[test]
    fn reports_may_come_in_any_order() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 0);
        led(&mut cluster, "node-2", 2, 102 * MS);
        assert!(cluster.fail_overs().is_empty(), "the end of the first is not known yet");
        left(&mut cluster, "node-1", 1, EndReason::Transfer, 100 * MS);
        assert_eq!(causes(&cluster), [(Cause::HandOver, 2)]);
    }

    #[test]
    fn work_that_stopped_before_the_kill_did_not_crash() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 0);
        cluster.apply(100 * MS, DemoEvent::Killed { node: name("node-1") });
        left(&mut cluster, "node-1", 1, EndReason::Transfer, 99 * MS);
        led(&mut cluster, "node-2", 2, 101 * MS);
        assert_eq!(causes(&cluster), [(Cause::HandOver, 2)]);
    }
}
