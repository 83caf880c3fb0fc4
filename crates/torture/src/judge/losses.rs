//! What the store lost of what it had acknowledged, and what that excuses.
//!
//! Each loss excuses what it can cause, in the register that it took, and no more: two leaders until every lease that was
//! acknowledged before has run out; a token that is given again, or a tick that is run again, if the loss lies between the two.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gaps::nanos;
use super::violation::{Violation, ViolationKind};
use super::{JudgeCase, JudgeTerms};
use crate::linearizability::chain::{self, ChainFault, Operation};
use crate::linearizability::lost::{LostWrite, without_lost};

/// What a fault takes of what the store had acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataLoss {
    /// Nothing.
    None,
    /// The newest writes, if there were any: what it took shows in the registers.
    Newest,
    /// Whatever there was.
    Everything,
}

/// One loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loss {
    /// Of which register, such as `role/scheduler`; without a name, of all.
    register: Option<String>,
    /// Since when what was acknowledged is lost, and when that was over.
    from: u64,
    to: u64,
}

impl Loss {
    fn took(&self, register: &str) -> bool {
        self.register.as_deref().is_none_or(|own| own == register)
    }

    /// Whether it took this register after the one instant, or as late before as a lease lasts, and before the other.
    pub(super) fn lies_between(&self, register: &str, since: u64, until: u64, terms: &JudgeTerms) -> bool {
        self.took(register) && self.from <= until && self.to.saturating_add(nanos(terms.lease)) >= since
    }

    fn excuses(&self, violation: &Violation, terms: &JudgeTerms) -> bool {
        let (since, (from, to)) = (violation.since, violation.span);
        let register = violation.register();
        match violation.wrong {
            ViolationKind::Token | ViolationKind::SharedToken => {
                !terms.tokens_rise && self.lies_between(&register, since, to, terms)
            }
            ViolationKind::TickTwice | ViolationKind::TickLost => {
                self.lies_between(&register, since, to, terms)
            }
            ViolationKind::TwoLeaders | ViolationKind::TwoWorkers => {
                self.lies_between(&register, since, from, terms)
                    && to <= self.to.saturating_add(nanos(terms.lease))
            }
            _ => false,
        }
    }
}

/// Whether the violation only shows what the store lost that had acknowledged it: no promise covers that.
pub(super) fn excuse(losses: &[Loss], violation: &Violation, terms: &JudgeTerms) -> bool {
    losses.iter().any(|loss| loss.excuses(violation, terms))
}

/// What the histories of registers tell.
#[derive(Debug, Default)]
pub(super) struct RegisterFindings {
    /// Every loss.
    pub(super) losses: Vec<Loss>,
    /// What it took of each register, for people.
    pub(super) taken: Vec<Violation>,
    /// What no loss explains.
    pub(super) violations: Vec<Violation>,
}

/// Looks at every register.
pub(super) fn find(case: &JudgeCase, registers: &BTreeMap<String, Vec<Operation>>) -> RegisterFindings {
    let (mut found, mut spans) = (RegisterFindings::default(), Vec::new());
    for fault in &case.injected {
        let (from, to) = (fault.from, fault.to);
        match fault.loses {
            DataLoss::None => {}
            DataLoss::Newest => spans.push((from, to)),
            DataLoss::Everything => {
                spans.push((0, to));
                found.losses.push(Loss { register: None, from, to });
            }
        }
    }
    for (name, history) in registers {
        match survivors(history, &spans) {
            Err(why) => {
                let violation = Violation::of(ViolationKind::Register, name, (why.from, why.to), why.text);
                found.violations.push(violation);
            }
            Ok(lost) => lost.iter().for_each(|write| found.lost(name, write)),
        }
    }
    found
}

/// What was lost of a register whose history is otherwise that of one register.
fn survivors(history: &[Operation], spans: &[(u64, u64)]) -> Result<Vec<LostWrite>, ChainFault> {
    if spans.is_empty() {
        return chain::check(history).map(|()| Vec::new());
    }
    let (left, lost) = without_lost(history, spans)?;
    chain::check(&left).map(|()| lost)
}

impl RegisterFindings {
    fn lost(&mut self, name: &str, write: &LostWrite) {
        let (from, to) = (write.called, write.gone);
        let text = format!("{} was acknowledged, and forgotten", write.put);
        self.taken.push(Violation::of(ViolationKind::Register, name, (from, to), text));
        // The life of the store is no part of what a register is called elsewhere.
        let register = name.split(' ').next().map(str::to_owned);
        self.losses.push(Loss { register, from, to });
    }
}
