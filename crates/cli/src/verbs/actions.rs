//! `tenure transfer`, `step-down`, `pause`, `resume`, `forget`, `pin`, `drain` and `eligible`: each acts, waits for the
//! outcome and prints it.

use std::time::{Duration, Instant};

use tenure::operator::{ClusterSnapshot, RoleReport, RoleState};
use tenure::{Leader, Name};
use tenure_agent::model::ActionOutcome;

use super::source::Source;
use crate::args::{AskArgs, Common, DrainArgs, EligibleArgs, ForgetArgs, PinArgs, Switch, TransferArgs};
use crate::exit::Exit;
use crate::output::{self, sanitize, time};

/// Hands a role to a node.
///
/// # Errors
/// If the store cannot be used, or the node cannot or did not take the role.
pub async fn transfer(common: &Common, args: &TransferArgs) -> Result<Exit, Exit> {
    let call = RoleCall::begin(common, &args.role).await?;
    call.check_target(&args.to)?;
    if let Some(at) = &args.at {
        let outcome = call.source.transfer_at(&args.role, &args.to, &args.why, args.wait, at).await?;
        return print(common, &outcome);
    }
    let taking = call.source.transfer(&args.role, &args.to, &args.why, args.wait);
    let leader = call.unless_interrupted(taking).await??;
    let changed = call.before.token != leader.token;
    let text = match (changed, &call.before.leader) {
        (true, Some(former)) => format!("{} leads {} now, after {former}", leader.node, args.role),
        (true, None) => format!("{} leads {} now", leader.node, args.role),
        (false, _) => format!("{} leads {} already", leader.node, args.role),
    };
    call.print_leader(common, "transfer", &leader, changed, &text)
}

/// Makes the leader of a role give it up.
///
/// # Errors
/// If the store cannot be used, or no node led or leads.
pub async fn step_down(common: &Common, args: &AskArgs) -> Result<Exit, Exit> {
    let call = RoleCall::begin(common, &args.role).await?;
    let taking = call.source.step_down(&args.role, &args.why, args.wait);
    let leader = call.unless_interrupted(taking).await??;
    let text = match &call.before.leader {
        Some(former) if *former == leader.node => {
            format!("{former} stepped down and leads {} again: no other node claimed it", args.role)
        }
        Some(former) => format!("{former} stepped down; {} leads {} now", leader.node, args.role),
        None => format!("{} leads {} now", leader.node, args.role),
    };
    call.print_leader(common, "step-down", &leader, true, &text)
}

/// Keeps a role without a leader.
///
/// # Errors
/// If the store cannot be used, or the leader has not given up in time.
pub async fn pause(common: &Common, args: &AskArgs) -> Result<Exit, Exit> {
    let call = RoleCall::begin(common, &args.role).await?;
    let role = &args.role;
    if let Some(leader) = call.source.pause(role, &args.why, args.wait).await? {
        let waited = time::span(args.wait);
        let silent = call.source.snapshot().await?.role(role).is_some_and(|r| r.state == RoleState::Silent);
        return Err(Exit::No(if silent {
            format!(
                "{role} is paused, but its leader {leader} is silent and its lease did not end within {waited}"
            )
        } else {
            format!(
                "{role} is paused, but {leader} has not stopped its work after {waited}; no node follows it"
            )
        }));
    }
    let resume = format!("run `tenure resume {role}` to end the pause");
    let text = match (&call.before.paused, &call.before.leader) {
        (Some(order), _) => format!("{role} was already paused, by {}; {resume}", sanitize(&order.by)),
        (None, Some(leader)) => format!("{role} is paused: {leader} resigned; {resume}"),
        (None, None) => format!("{role} is paused; {resume}"),
    };
    let outcome = ActionOutcome::new("pause", role, text);
    let former = call.before.leader.as_ref().map(ToString::to_string);
    call.print_state(common, ActionOutcome { changed: call.before.paused.is_none(), former, ..outcome })
}

/// Lets a paused role be led again.
///
/// # Errors
/// If the store cannot be used, or no candidate has taken the role in time.
pub async fn resume(common: &Common, args: &AskArgs) -> Result<Exit, Exit> {
    let call = RoleCall::begin(common, &args.role).await?;
    let role = &args.role;
    if !call.source.resume(role, &args.why).await? {
        let outcome = ActionOutcome::new("resume", role, format!("{role} was not paused"));
        return call.print_state(common, ActionOutcome { changed: false, ..outcome.led_as(&call.before) });
    }
    let report = call.wait_for_leader(args.wait).await?;
    let text = match &report.leader {
        Some(leader) if report.state == RoleState::Silent => {
            return Err(Exit::No(format!("{role} is resumed, but its leader {leader} is silent")));
        }
        Some(leader) => format!("{role} is resumed: {leader} leads it now, token {}", report.token),
        None if report.candidates.is_empty() => format!("{role} is resumed; it has no candidates now"),
        None => {
            let waited = time::span(args.wait);
            return Err(Exit::No(format!("{role} is resumed, but no node claimed it within {waited}")));
        }
    };
    call.print_state(common, ActionOutcome::new("resume", role, text).led_as(&report))
}

/// Takes a role without candidates out of sight.
///
/// # Errors
/// If the store cannot be used, or a node leads the role or stands for it.
pub async fn forget(common: &Common, args: &ForgetArgs) -> Result<Exit, Exit> {
    let call = RoleCall::begin(common, &args.role).await?;
    call.source.forget(&args.role, &args.why).await?;
    let text = format!("{} is forgotten; it is shown again when a node is a candidate for it", args.role);
    call.print_state(common, ActionOutcome::new("forget", &args.role, text))
}

/// Pins a role to a node, or unpins it.
///
/// # Errors
/// If the store cannot be used.
pub async fn pin(common: &Common, args: &PinArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let role = &args.role;
    source.pin(role, args.to.as_ref(), &args.why).await?;
    let outcome = match &args.to {
        Some(node) => {
            let message = format!("{role} is pinned to {node}; run `tenure pin {role}` to unpin it");
            ActionOutcome::new("pin", role, message).node(node)
        }
        None => ActionOutcome::new("unpin", role, format!("{role} is unpinned")),
    };
    print(common, &outcome)
}

/// Drains a node, or ends the drain.
///
/// # Errors
/// If the store cannot be used, or there is no such node.
pub async fn drain(common: &Common, args: &DrainArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let node = &args.node;
    if source.snapshot().await?.node(node).is_none() {
        return Err(Exit::No(format!("node \"{node}\" not found (run `tenure nodes` to list nodes)")));
    }
    source.drain(node, !args.undo, &args.why).await?;
    let (action, message) = match args.undo {
        true => ("undrain", format!("{node} is no longer drained")),
        false => (
            "drain",
            format!(
                "{node} is draining: it gives up its roles and claims none; run `tenure drain {node} --undo` to end \
                 the drain"
            ),
        ),
    };
    print(common, &ActionOutcome::new(action, node, message))
}

/// Sets whether the node of an agent claims a role.
///
/// # Errors
/// If no agent can be asked, or its node is not a candidate for the role.
pub async fn eligible(common: &Common, args: &EligibleArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    print(common, &source.eligible(&args.role, args.eligible == Switch::On, &args.why).await?)
}

fn print(common: &Common, outcome: &ActionOutcome) -> Result<Exit, Exit> {
    if common.is_json() {
        output::json(outcome)?;
    } else {
        output::print(&sanitize(&outcome.message))?;
    }
    Ok(Exit::Done)
}

/// A role, before an action on it.
struct RoleCall {
    source: Source,
    snapshot: ClusterSnapshot,
    before: RoleReport,
    started: Instant,
}

impl RoleCall {
    async fn begin(common: &Common, role: &Name) -> Result<Self, Exit> {
        let started = Instant::now();
        let source = Source::of(common).await?;
        let snapshot = source.snapshot().await?;
        match snapshot.role(role).cloned() {
            Some(before) => Ok(Self { source, snapshot, before, started }),
            None => Err(super::no_such_role(&source, &snapshot, role)),
        }
    }

    /// An operator who gives up waiting does not want it any more.
    async fn unless_interrupted<T>(&self, asking: impl Future<Output = T>) -> Result<T, Exit> {
        tokio::select! {
            answer = asking => Ok(answer),
            _ = tokio::signal::ctrl_c() => {
                let role = &self.before.role;
                let withdrawn = self.source.withdraw_request(role).await?;
                Err(Exit::No(if withdrawn {
                    format!("interrupted; the request for {role} was withdrawn")
                } else {
                    format!("interrupted; run `tenure status {role}` to see the outcome")
                }))
            }
        }
    }

    /// Says which node may have been meant, which the library cannot know.
    fn check_target(&self, to: &Name) -> Result<(), Exit> {
        if self.snapshot.node(to).is_some() {
            return Ok(());
        }
        let (role, names) = (&self.before.role, self.snapshot.nodes.iter().map(|node| node.node.as_str()));
        match super::nearest::nearest(to.as_str(), names) {
            Some(meant) => {
                Err(Exit::No(format!("cannot transfer {role} to {to}: no such node; did you mean {meant}?")))
            }
            None => Ok(()),
        }
    }

    /// A role with candidates has a leader soon.
    async fn wait_for_leader(&self, limit: Duration) -> Result<RoleReport, Exit> {
        let pause = Duration::from_millis(100);
        loop {
            let snapshot = self.source.snapshot().await?;
            let report = snapshot.role(&self.before.role).cloned().unwrap_or_else(|| self.before.clone());
            if report.leader.is_some() || report.candidates.is_empty() || self.started.elapsed() >= limit {
                return Ok(report);
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn took_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn print_leader(
        &self,
        common: &Common,
        action: &str,
        leader: &Leader,
        changed: bool,
        text: &str,
    ) -> Result<Exit, Exit> {
        let (took_ms, token) = (self.took_ms(), leader.token);
        let took = time::span(Duration::from_millis(took_ms));
        let tail = if changed { format!("token {token} (took {took})") } else { format!("token {token}") };
        let outcome = ActionOutcome::new(action, &self.before.role, format!("{text}, {tail}"));
        let outcome = outcome.leader(leader, self.before.leader.as_ref());
        print(common, &ActionOutcome { changed, took_ms: Some(took_ms), ..outcome })
    }

    fn print_state(&self, common: &Common, outcome: ActionOutcome) -> Result<Exit, Exit> {
        print(common, &ActionOutcome { took_ms: Some(self.took_ms()), ..outcome })
    }
}
