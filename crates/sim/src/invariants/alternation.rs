//! Grant and revoke alternate: what is led was elected once and is lost once.

use std::collections::BTreeMap;

use tenure_core::{Event, Name, Token};

use super::{CheckResult, PerProcess};
use crate::process::Pid;

/// What each process leads, by what it said.
#[derive(Debug, Clone, Default)]
pub(super) struct Alternation(PerProcess<BTreeMap<Name, Token>>);

impl Alternation {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.0.begun(pid, twin_of);
    }

    pub(super) fn event(&mut self, pid: Pid, event: &Event) -> CheckResult {
        let led = self.0.get(pid);
        match event {
            Event::Elected { role, token } => match led.insert(role.clone(), *token) {
                Some(before) => {
                    Err(format!("{role} was elected with token {token} while it led with {before}"))
                }
                None => Ok(()),
            },
            Event::Draining { role, token, .. } if led.get(role) != Some(token) => {
                Err(format!("{role} drains token {token}, which it does not lead"))
            }
            Event::Lost { role, token, .. } if led.remove(role) != Some(*token) => {
                Err(format!("{role} lost token {token}, which it did not lead"))
            }
            _ => Ok(()),
        }
    }
}
