//! Mutants that need more than one wrong line. Unreachable without the feature `mutants`.

#[cfg(feature = "mutants")]
use super::RoleView;
use super::Stage;
use crate::engine::{Engine, StepContext};
#[cfg(feature = "mutants")]
use crate::record::{Record, SessionState};
#[cfg(feature = "mutants")]
use crate::{Entry, Hint, Key, Kind};
use crate::{Name, OpId, Outcome, Reply, Time};

impl Engine {
    /// "It is in my name, so I lead it."
    pub(in crate::engine) fn lead_again(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let (Some(record), Some(version)) = (role.view.record(), role.view.version()) else { return };
        let mine =
            record.holder.as_ref().is_some_and(|holder| Some(holder.session) == self.session.open_id());
        if mine && role.work.is_none() {
            role.stage = Stage::Verifying {
                after: Some(OpId::new(0)),
                ready_at: Time::from_nanos(0),
                seen: true,
                token: record.token,
                version,
            };
            self.elect(name, ctx);
        }
    }

    /// "It was applied, so I lead."
    pub(in crate::engine) fn believe_late_reply(
        &mut self,
        _op: OpId,
        reply: &Reply,
        ctx: &mut StepContext<'_>,
    ) {
        let Reply::Written(outcomes) = reply else { return };
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Applied)) {
            let names: Vec<Name> = self.roles.names().cloned().collect();
            for name in names {
                self.lead_again(&name, ctx);
            }
        }
    }

    /// A hint that says what a register holds.
    #[cfg(feature = "mutants")]
    pub(in crate::engine) fn forged(&mut self, entry: Entry, ctx: &mut StepContext<'_>) {
        if !self.rules.hints_say_nothing() {
            self.believe(&entry, ctx);
        }
        self.hinted(Hint::Changed(entry.key), ctx);
    }

    /// "A node wrote it, and the compare-and-set decides."
    #[cfg(feature = "mutants")]
    fn believe(&mut self, entry: &Entry, ctx: &mut StepContext<'_>) {
        match (&entry.key, &entry.value) {
            (Key::Session(_, id), Record::Session(record)) if record.state != SessionState::Live => {
                self.mark_over(*id, ctx);
            }
            (Key::Named(_, Kind::Role, name), Record::Role(_)) => {
                let idle = |role: &super::TrackedRole| matches!(role.stage, Stage::Following);
                if self.roles.get(name).is_some_and(idle) {
                    self.apply_view(name, RoleView::of(Some(entry)), ctx);
                    self.consider(name, ctx);
                }
            }
            _ => {}
        }
    }
}
