//! What must hold in every world at every instant: one file for each property.
//!
//! The checks follow the rules of `SAFETY.md` from outside: they see what every process sent and received, by its
//! true clock, and never ask an engine why it did something.

mod act;
mod alternation;
mod bounded;
mod expulsion;
mod grants;
mod hands_off;
mod identity;
pub mod liveness;
mod one_leader;
mod one_worker;
mod quarantine;
mod requests;
mod stop_first;
mod tokens;
mod validity;

pub use act::Act;

use tenure_core::{Event, Input, OpId, Output, Time, Write};

use crate::process::Pid;
use crate::scene::Scene;

/// What an invariant says: nothing, or what it found.
pub type Verdict = Result<(), String>;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: &'static str,
    /// What was found.
    pub what: String,
}

/// Which invariants are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    /// All of them: a broken rule is found where it is broken.
    #[default]
    Rules,
    /// Only those whose breach is the harm itself: two leaders, two workers, tokens that do not rise, a role that
    /// nobody leads any more. It takes more worlds, and shows that the rules are not there for their own sake.
    Harm,
}

/// The invariants whose breach is the harm itself.
const HARM: [&str; 4] =
    ["one valid leader", "no two workers of a role", "tokens rise", "no role is orphaned for ever"];

/// One batch of writes as it leaves a process.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// Who sends it.
    pub pid: Pid,
    /// What its clock really showed when it was decided.
    pub local: Time,
    /// Its name.
    pub op: OpId,
    /// What is to be written.
    pub writes: &'a [Write],
}

/// Every invariant, and the first one that broke.
#[derive(Debug, Clone, Default)]
pub struct Invariants {
    alternation: alternation::Alternation,
    bounded: bounded::Bounded,
    expulsion: expulsion::Expulsion,
    grants: grants::Grants,
    hands_off: hands_off::HandsOff,
    identity: identity::Identity,
    one_leader: one_leader::OneLeader,
    quarantine: quarantine::Quarantine,
    requests: requests::Requests,
    tokens: tokens::Tokens,
    validity: validity::Validity,
    focus: Focus,
    broken: Option<Violation>,
}

impl Invariants {
    /// Invariants of which these are looked at.
    #[must_use]
    pub fn new(focus: Focus) -> Self {
        Self { focus, ..Self::default() }
    }

    /// The first violation, if there was any.
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
    pub fn note(&mut self, invariant: &'static str, verdict: Verdict) {
        let seen = self.focus == Focus::Rules || HARM.contains(&invariant);
        if let (Err(what), None, true) = (verdict, &self.broken, seen) {
            self.broken = Some(Violation { invariant, what });
        }
    }

    /// A process began, perhaps as the twin of another.
    pub fn begun(&mut self, scene: &Scene, pid: Pid, twin_of: Option<Pid>) {
        self.validity.begun(pid, twin_of);
        self.hands_off.begun(pid, twin_of);
        self.alternation.begun(pid, twin_of);
        self.one_leader.begun(pid, twin_of);
        self.grants.begun(pid, twin_of);
        self.expulsion.begun(pid, twin_of);
        self.bounded.begun(pid, twin_of);
        self.identity.begun(pid, twin_of);
        self.quarantine.begun(scene, pid);
    }

    /// A process died.
    pub fn ended(&mut self, pid: Pid) {
        self.one_leader.ended(pid);
    }

    /// A process is about to be told something.
    pub fn received(&mut self, scene: &Scene, pid: Pid, input: &Input) {
        let local = scene.local(pid);
        self.validity.received(pid, local, input);
        self.grants.received(scene, pid, local, input);
        self.expulsion.received(pid, local, input);
        self.bounded.received(pid, input);
    }

    /// What a process answered, before it is carried out.
    pub fn answered(&mut self, scene: &Scene, pid: Pid, outputs: &[Output]) {
        self.bounded.abandoned(pid, outputs);
        let verdict = self.bounded.answered(scene, outputs);
        self.note("outputs are bounded", verdict);
        for output in outputs {
            match output {
                Output::Valid { until } => {
                    let verdict = self.validity.valid(scene, pid, *until);
                    self.note("only an acknowledged write extends validity", verdict);
                    let verdict = identity::no_two_twins(scene, pid);
                    self.note("a twin is noticed", verdict);
                }
                Output::Event(event) => self.event(scene, pid, event),
                _ => {}
            }
        }
        let verdict = self.one_leader.contested(scene, pid);
        self.note("one valid leader", verdict);
    }

    /// A batch of writes leaves a process.
    pub fn sent(&mut self, scene: &Scene, sent: Sent<'_>) {
        let verdict = self.validity.sent(scene, sent);
        self.note("no beat after the work was told to stop", verdict);
        self.grants.sent(sent);
        let verdict = self.hands_off.sent(sent);
        self.note("hands off what others hold", verdict);
        let verdict = self.expulsion.sent(scene, sent);
        self.note("expulsion only of a version watched for long enough", verdict);
        let verdict = self.bounded.sent(scene, sent);
        self.note("one awaited write per register, in batches", verdict);
        let verdict = self.identity.sent(scene, sent);
        self.note("a session is opened once, after the one before is over", verdict);
        let verdict = self.quarantine.sent(scene, sent);
        self.note("on a store that forgets, watch before claiming", verdict);
        let verdict = stop_first::sent(scene, sent);
        self.note("nothing is given up before its work has stopped", verdict);
    }

    /// A write was applied; `before` is the scene just before it. No process: an operator.
    pub fn applied(&mut self, before: &Scene, pid: Option<Pid>, write: &Write) {
        let verdict = self.tokens.applied(before, write);
        self.note("the token of a register never goes back", verdict);
        let verdict = self.hands_off.applied(before, pid, write);
        self.note("hands off what others hold", verdict);
        let verdict = self.expulsion.applied(before, pid, write);
        self.note("nobody valid is expelled", verdict);
        self.requests.applied(before, write);
    }

    /// Some work begins, or goes on after its process was frozen.
    pub fn working(&mut self, scene: &Scene, work: crate::work::WorkId) {
        self.note("no two workers of a role", one_worker::working(scene, work));
    }

    /// Whether a stopped process gave up everything.
    fn event(&mut self, scene: &Scene, pid: Pid, event: &Event) {
        let verdict = self.alternation.event(pid, event);
        self.note("grant and revoke alternate", verdict);
        self.validity.event(scene, pid, event);
        self.identity.event(pid, event);
        self.bounded.event(pid, event);
        let verdict = self.requests.event(scene, pid, event);
        self.note("a request fells only the tenure it names", verdict);
        if let Event::Elected { role, token } = event {
            let verdict = self.tokens.elected(scene, pid, role, *token);
            self.note("tokens rise", verdict);
            let verdict = self.grants.elected(scene, pid, role, *token);
            self.note("late replies are inert", verdict);
            let verdict = self.one_leader.elected(scene, pid, role);
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
