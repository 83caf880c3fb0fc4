//! What must hold in every world at every instant: one file for each property.
//!
//! The checks follow the rules of `SAFETY.md` from outside: they see what every process sent and received, by its
//! true clock, and never ask an engine why it did something.

mod alternation;
mod bounded;
mod expulsion;
mod forgotten;
mod grants;
mod hands_off;
mod identity;
mod leases;
pub mod liveness;
mod one_leader;
mod one_worker;
mod operators;
mod quarantine;
mod requests;
mod stop_first;
mod tokens;
mod validity;
mod write_kind;

pub use write_kind::WriteKind;

use tenure_core::{Event, Input, Key, OpId, Output, Time, Write};

use crate::process::Pid;
use crate::world_state::WorldState;

/// What an invariant found, if it is violated.
pub type CheckResult = Result<(), String>;

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub what: String,
}

/// Which invariants are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    /// All of them: a violated rule is found where it is violated.
    #[default]
    Rules,
    /// Only those whose breach is the harm itself: two leaders, two workers, tokens that do not rise, a role that
    /// no node leads any more. It takes more worlds, and shows that the rules are not there for their own sake.
    Harm,
}

/// The invariants whose breach is the harm itself.
const HARM: [&str; 4] =
    ["one valid leader", "no two workers of a role", "tokens rise", "no role is orphaned for ever"];

/// One batch of writes as it leaves a process.
#[derive(Debug, Clone, Copy)]
pub struct SentBatch<'a> {
    pub pid: Pid,
    /// What its clock really showed when it was decided.
    pub local: Time,
    pub op: OpId,
    pub writes: &'a [Write],
}

/// Every invariant, and the first violation.
#[derive(Debug, Clone, Default)]
pub struct Invariants {
    alternation: alternation::Alternation,
    bounded: bounded::Bounded,
    expulsion: expulsion::Expulsion,
    grants: grants::Grants,
    hands_off: hands_off::HandsOff,
    identity: identity::Identity,
    one_leader: one_leader::OneLeader,
    operators: operators::Operators,
    quarantine: quarantine::Quarantine,
    requests: requests::Requests,
    tokens: tokens::Tokens,
    validity: validity::Validity,
    focus: Focus,
    broken: Option<Violation>,
}

impl Invariants {
    /// Invariants of which these are checked.
    #[must_use]
    pub fn new(focus: Focus) -> Self {
        Self { focus, ..Self::default() }
    }

    #[must_use]
    pub fn broken(&self) -> Option<&Violation> {
        self.broken.as_ref()
    }

    /// How many expulsions rested on evidence alone.
    #[must_use]
    pub fn expelled_by_evidence(&self) -> u64 {
        self.expulsion.by_evidence
    }

    /// Takes note of what an invariant says.
    pub fn note(&mut self, invariant: &'static str, verdict: CheckResult) {
        let seen = self.focus == Focus::Rules || HARM.contains(&invariant);
        if let (Err(what), None, true) = (verdict, &self.broken, seen) {
            self.broken = Some(Violation { invariant, what });
        }
    }

    /// A process began, perhaps as the twin of another.
    pub fn begun(&mut self, state: &WorldState, pid: Pid, twin_of: Option<Pid>) {
        self.validity.begun(pid, twin_of);
        self.hands_off.begun(pid, twin_of);
        self.alternation.begun(pid, twin_of);
        self.one_leader.begun(pid, twin_of);
        self.grants.begun(pid, twin_of);
        self.expulsion.begun(pid, twin_of);
        self.bounded.begun(pid, twin_of);
        self.identity.begun(pid, twin_of);
        self.tokens.begun(pid, twin_of);
        self.operators.begun(pid, twin_of);
        self.quarantine.begun(state, pid, twin_of);
    }

    pub fn ended(&mut self, pid: Pid) {
        self.one_leader.ended(pid);
    }

    /// A process is about to get an input.
    pub fn received(&mut self, state: &WorldState, pid: Pid, input: &Input) {
        let local = state.local(pid);
        self.validity.received(pid, local, input);
        self.grants.received(state, pid, local, input);
        self.expulsion.received(pid, local, input);
        self.bounded.received(pid, input);
        self.operators.received(pid, input);
        self.tokens.received(state, pid, input);
        self.quarantine.received(state, pid, input);
    }

    /// A process has handled its input.
    pub fn told(&mut self, state: &WorldState, pid: Pid, forgot: bool) {
        self.note("a leader that hears of destroyed data leads no more", forgotten::told(state, pid, forgot));
    }

    /// The outputs of a process, before they are carried out.
    pub fn answered(&mut self, state: &WorldState, pid: Pid, outputs: &[Output]) {
        self.bounded.abandoned(pid, outputs);
        let verdict = self.bounded.answered(state, outputs);
        self.note("outputs are bounded", verdict);
        let verdict = self.bounded.read(state, pid, outputs);
        self.note("hints cause few reads", verdict);
        for output in outputs {
            match output {
                Output::Valid { until } => {
                    let verdict = self.validity.valid(state, pid, *until);
                    self.note("only an acknowledged write extends validity", verdict);
                    let verdict = identity::no_two_twins(state, pid);
                    self.note("a twin is noticed", verdict);
                }
                Output::Event(event) => self.event(state, pid, event),
                _ => {}
            }
        }
        let verdict = self.one_leader.contested(state, pid);
        self.note("one valid leader", verdict);
    }

    pub fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) {
        let verdict = self.validity.sent(state, sent);
        self.note("no beat after the work was told to stop", verdict);
        self.grants.sent(sent);
        let verdict = self.hands_off.sent(sent);
        self.note("hands off what others hold", verdict);
        let verdict = self.expulsion.sent(state, sent);
        self.note("expulsion only of a version watched for long enough", verdict);
        let verdict = self.bounded.sent(state, sent);
        self.note("one awaited write per register, in batches", verdict);
        let verdict = self.identity.sent(state, sent);
        self.note("a session is opened once, after the one before is over", verdict);
        let verdict = self.quarantine.sent(state, sent);
        self.note("on a store that forgets, watch before claiming", verdict);
        let verdict = self.operators.sent(state, sent);
        self.note("what an operator asks holds", verdict);
        let verdict = self.tokens.sent(state, sent);
        self.note("the highest token seen goes on", verdict);
        let verdict = stop_first::sent(state, sent);
        self.note("nothing is given up before its work has stopped", verdict);
    }

    /// A write was applied; `before` is the state just before it. No process: an operator.
    pub fn applied(&mut self, before: &WorldState, pid: Option<Pid>, write: &Write) {
        let verdict = self.tokens.applied(before, write);
        self.note("the token of a register never goes back", verdict);
        let verdict = self.hands_off.applied(before, pid, write);
        self.note("hands off what others hold", verdict);
        let verdict = self.expulsion.applied(before, pid, write);
        self.note("no valid session is expelled", verdict);
        let verdict = leases::applied(before, write);
        self.note("the longest lease covers every leader", verdict);
        self.requests.applied(before, write);
    }

    /// The store lost the last writes of these registers; `after` is the state after it.
    pub fn lost(&mut self, after: &WorldState, lost: &[Key]) {
        self.tokens.lost(after, lost);
    }

    /// Some work begins, or goes on after its process was frozen.
    pub fn working(&mut self, state: &WorldState, work: crate::work::WorkId) {
        self.note("no two workers of a role", one_worker::working(state, work));
    }

    fn event(&mut self, state: &WorldState, pid: Pid, event: &Event) {
        let verdict = self.alternation.event(pid, event);
        self.note("grant and revoke alternate", verdict);
        self.validity.event(state, pid, event);
        self.identity.event(pid, event);
        self.bounded.event(pid, event);
        self.operators.event(state, pid, event);
        let verdict = self.requests.event(state, pid, event);
        self.note("a request fells only the tenure it names", verdict);
        if let Event::Elected { role, token } = event {
            let verdict = self.tokens.elected(state, pid, role, *token);
            self.note("tokens rise", verdict);
            let verdict = self.quarantine.elected(state, pid, role, *token);
            self.note("on a store that forgets, a claim settles before it is led", verdict);
            let verdict = self.grants.elected(state, pid, role, *token);
            self.note("late replies are inert", verdict);
            let verdict = self.one_leader.elected(state, pid, role);
            self.note("one valid leader", verdict);
        }
        if let Event::Lost { role, .. } = event {
            self.one_leader.lost(pid, role);
        }
    }
}

/// One value for each process, by its number.
#[derive(Debug, Clone)]
struct PerProcess<T>(Vec<T>);

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default + Clone> PerProcess<T> {
    fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        let value = twin_of.map(|twin| self.0[twin].clone()).unwrap_or_default();
        self.0.truncate(pid);
        self.0.push(value);
    }

    fn get(&mut self, pid: Pid) -> &mut T {
        &mut self.0[pid]
    }
}
