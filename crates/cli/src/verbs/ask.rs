//! `tenure transfer`, `step-down`, `pause`, `resume`, `pin`, `drain` and `eligible`: asking, waiting until it is done, and saying what came of it.

use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::operator::{RoleReport, RoleState, Snapshot};
use tenure::{Leader, Name, Token};

use super::source::Source;
use crate::args::{AskArgs, Common, DrainArgs, EligibleArgs, PinArgs, Switch, TransferArgs};
use crate::exit::Exit;
use crate::output::{self, tame, time};

/// Hands a role to a node.
///
/// # Errors
/// If the store cannot be used, or the node cannot or did not take the role.
pub async fn transfer(common: &Common, args: &TransferArgs) -> Result<Exit, Exit> {
    let asked = Asked::begin(common, &args.role).await?;
    asked.check_target(&args.to)?;
    if let Some(at) = &args.at {
        let done = asked.source.transfer_at(&args.role, &args.to, &args.why, args.wait, at).await?;
        return asked.tell_state(common, true, "scheduled", asked.before.leader.as_ref(), &done);
    }
    let taking = asked.source.transfer(&args.role, &args.to, &args.why, args.wait);
    let leader = asked.unless_interrupted(taking).await??;
    let changed = asked.before.token != leader.token;
    let text = match (changed, &asked.before.leader) {
        (true, Some(former)) => format!("{} leads {} now, after {former}", leader.node, args.role),
        (true, None) => format!("{} leads {} now", leader.node, args.role),
        (false, _) => format!("{} leads {} already", leader.node, args.role),
    };
    asked.tell_leader(common, &leader, changed, &text)
}

/// Makes the leader of a role give it up.
///
/// # Errors
/// If the store cannot be used, or nobody led or leads.
pub async fn step_down(common: &Common, args: &AskArgs) -> Result<Exit, Exit> {
    let asked = Asked::begin(common, &args.role).await?;
    let taking = asked.source.step_down(&args.role, &args.why, args.wait);
    let leader = asked.unless_interrupted(taking).await??;
    let text = match &asked.before.leader {
        Some(former) if *former == leader.node => {
            format!("{former} stepped down and leads {} again: nobody else took it", args.role)
        }
        Some(former) => format!("{former} stepped down; {} leads {} now", leader.node, args.role),
        None => format!("{} leads {} now", leader.node, args.role),
    };
    asked.tell_leader(common, &leader, true, &text)
}

/// Lets nobody lead a role.
///
/// # Errors
/// If the store cannot be used, or the leader has not given up in time.
pub async fn pause(common: &Common, args: &AskArgs) -> Result<Exit, Exit> {
    let asked = Asked::begin(common, &args.role).await?;
    let role = &args.role;
    if let Some(leader) = asked.source.pause(role, &args.why, args.wait).await? {
        let waited = time::span(args.wait);
        let silent = asked.source.snapshot().await?.role(role).is_some_and(|r| r.state == RoleState::Silent);
        return Err(Exit::No(if silent {
            format!(
                "{role} is paused, but its leader {leader} is silent, and was not replaced within {waited}"
            )
        } else {
            format!(
                "{role} is paused, but {leader} is still winding its work down after {waited}; nobody follows it"
            )
        }));
    }
    let resume = format!("`tenure resume {role}` lets it be led again");
    let text = match (&asked.before.paused, &asked.before.leader) {
        (Some(order), _) => format!("{role} is paused already, by {}; {resume}", tame(&order.by)),
        (None, Some(leader)) => format!("{role} is paused: {leader} gave it up; {resume}"),
        (None, None) => format!("{role} is paused; {resume}"),
    };
    asked.tell_state(common, asked.before.paused.is_none(), "paused", None, &text)
}

/// Lets a paused role be led again.
///
/// # Errors
/// If the store cannot be used, or nobody has taken the role in time although somebody stands for it.
pub async fn resume(common: &Common, args: &AskArgs) -> Result<Exit, Exit> {
    let asked = Asked::begin(common, &args.role).await?;
    let role = &args.role;
    if !asked.source.resume(role, &args.why).await? {
        let leader = asked.before.leader.clone();
        return asked.tell_state(
            common,
            false,
            "resumed",
            leader.as_ref(),
            &format!("{role} was not paused"),
        );
    }
    let report = asked.wait_for_leader(args.wait).await?;
    let text = match &report.leader {
        Some(leader) if report.state == RoleState::Silent => {
            return Err(Exit::No(format!("{role} is resumed, but its leader {leader} is silent")));
        }
        Some(leader) => format!("{role} is resumed: {leader} leads it now, token {}", report.token),
        None if report.candidates.is_empty() => format!("{role} is resumed; nobody stands for it now"),
        None => {
            let waited = time::span(args.wait);
            return Err(Exit::No(format!("{role} is resumed, but nobody has taken it within {waited}")));
        }
    };
    asked.tell_state(common, true, "resumed", report.leader.as_ref(), &text)
}

/// Ties a role to a node, or unties it.
///
/// # Errors
/// If the store cannot be used.
pub async fn pin(common: &Common, args: &PinArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    source.pin(&args.role, args.to.as_ref(), &args.why).await?;
    let text = match &args.to {
        Some(node) => format!("{} is tied to {node}; `tenure pin {0}` unties it", args.role),
        None => format!("{} is not tied to a node", args.role),
    };
    told(common, &text)
}

/// Makes a node give up its roles and stand for none, or lets it stand again.
///
/// # Errors
/// If the store cannot be used, or there is no such node.
pub async fn drain(common: &Common, args: &DrainArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let node = &args.node;
    if source.snapshot().await?.node(node).is_none() {
        return Err(Exit::No(format!("there is no node {node}; `tenure nodes` lists those there are")));
    }
    source.drain(node, !args.undo, &args.why).await?;
    told(
        common,
        &match args.undo {
            false => format!(
                "{node} gives its roles up and stands for none; `tenure drain {node} --undo` lets it again"
            ),
            true => format!("{node} stands again"),
        },
    )
}

/// Makes an agent's node claim a role, or only follow.
///
/// # Errors
/// If no agent can be asked, or it does not stand for the role.
pub async fn eligible(common: &Common, args: &EligibleArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    told(common, &source.eligible(&args.role, args.eligible == Switch::On, &args.why).await?)
}

fn told(common: &Common, text: &str) -> Result<Exit, Exit> {
    #[derive(Serialize)]
    struct Told<'a> {
        done: &'a str,
    }
    if common.is_json() {
        output::json(&Told { done: text })?;
    } else {
        output::print(text)?;
    }
    Ok(Exit::Done)
}

/// A role about which something is asked.
struct Asked {
    source: Source,
    snapshot: Snapshot,
    before: RoleReport,
    started: Instant,
}

/// Who leads after a transfer or a step-down, for programs.
#[derive(Serialize)]
struct Taken<'a> {
    role: &'a Name,
    leader: &'a Name,
    token: Token,
    address: Option<&'a str>,
    former: Option<&'a Name>,
    changed: bool,
    took_ms: u64,
}

/// How a role fares after pause or resume, for programs.
#[derive(Serialize)]
struct Ordered<'a> {
    role: &'a Name,
    state: &'static str,
    leader: Option<&'a Name>,
    changed: bool,
    took_ms: u64,
}

impl Asked {
    async fn begin(common: &Common, role: &Name) -> Result<Self, Exit> {
        let started = Instant::now();
        let source = Source::of(common).await?;
        let snapshot = source.snapshot().await?;
        match snapshot.role(role).cloned() {
            Some(before) => Ok(Self { source, snapshot, before, started }),
            None => Err(super::no_such_role(&source, &snapshot, role)),
        }
    }

    /// Whoever gives up waiting does not want it any more.
    async fn unless_interrupted<T>(&self, asking: impl Future<Output = T>) -> Result<T, Exit> {
        tokio::select! {
            answer = asking => Ok(answer),
            _ = tokio::signal::ctrl_c() => {
                let role = &self.before.role;
                let withdrawn = self.source.withdraw_request(role).await?;
                Err(Exit::No(if withdrawn {
                    format!("interrupted; the request about {role} was withdrawn")
                } else {
                    format!("interrupted; `tenure status {role}` shows what came of the request")
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
            Some(meant) => Err(Exit::No(format!(
                "{to} cannot take {role}: there is no such node; did you mean {meant}?"
            ))),
            None => Ok(()),
        }
    }

    /// A role that somebody stands for has a leader soon.
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

    fn tell_leader(&self, common: &Common, leader: &Leader, changed: bool, text: &str) -> Result<Exit, Exit> {
        let took_ms = self.took_ms();
        if common.is_json() {
            let (role, former) = (&self.before.role, self.before.leader.as_ref());
            let Leader { node, token, address } = leader;
            let (leader, address, token) = (node, address.as_deref(), *token);
            output::json(&Taken { role, leader, token, address, former, changed, took_ms })?;
        } else {
            let took = time::span(Duration::from_millis(took_ms));
            let token = leader.token;
            let tail =
                if changed { format!("token {token} (took {took})") } else { format!("token {token}") };
            output::print(&format!("{text}, {tail}"))?;
        }
        Ok(Exit::Done)
    }

    fn tell_state(
        &self,
        common: &Common,
        changed: bool,
        state: &'static str,
        leader: Option<&Name>,
        text: &str,
    ) -> Result<Exit, Exit> {
        if common.is_json() {
            let (role, took_ms) = (&self.before.role, self.took_ms());
            output::json(&Ordered { role, state, leader, changed, took_ms })?;
        } else {
            output::print(text)?;
        }
        Ok(Exit::Done)
    }
}
