//! Mistakes that need more than one wrong line. Unreachable without the feature `mutants`.

use super::Stage;
use crate::engine::{Cx, Engine};
use crate::{Name, OpId, Outcome, Reply};

impl Engine {
    /// "It is in my name, so I lead it."
    pub(in crate::engine) fn lead_again(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let (Some(record), Some(version)) = (role.view.record(), role.view.version()) else { return };
        let mine =
            record.holder.as_ref().is_some_and(|holder| Some(holder.session) == self.session.open_id());
        if mine && role.work.is_none() {
            role.stage = Stage::Verifying { after: OpId(0), token: record.token, version };
            self.elect(name, cx);
        }
    }

    /// "It was applied, so I lead."
    pub(in crate::engine) fn believe_late_reply(&mut self, _op: OpId, reply: &Reply, cx: &mut Cx<'_>) {
        let Reply::Written(outcomes) = reply else { return };
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Applied)) {
            let names: Vec<Name> = self.roles.keys().cloned().collect();
            for name in names {
                self.lead_again(&name, cx);
            }
        }
    }
}
