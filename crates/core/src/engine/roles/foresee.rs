//! A claim on a hint.
//!
//! A hint that names a role's register says nothing of what the register holds, and may be forged. But a standby that has
//! read the leader's claim knows under which version that leader would resign ([`Version::of_resignation`]). The first in
//! line does not read the register before it claims: it claims on top of that version. If the leader has resigned, the
//! claim is applied, and a round trip is saved. If it has not, nothing happens, and the refusal shows what a read would have
//! shown. The version says all that a claim rests on (the token, no holder, no successor); a role that is not for any
//! candidate to claim is resigned under a version that no node can foresee.

use super::{Resigning, RoleView, Stage, TrackedRole};
use crate::engine::ops::Purpose;
use crate::engine::{BATCHES_AWAITED, Engine, StepContext};
use crate::record::{EndReason, Role as RoleRecord};
use crate::{Kind, Name, Token, Version};

impl Resigning {
    /// The version under which standbys foresee it: none if it is not for any candidate to claim the role.
    pub(super) fn version(&self) -> Option<Version> {
        let for_any = !matches!(self.reason, EndReason::Transfer | EndReason::Paused | EndReason::Pinned);
        self.expect.of_resignation().filter(|_| for_any && self.successor.is_none())
    }
}

impl Engine {
    /// Whether a hint about that role is followed by a claim.
    pub(in crate::engine) fn claims_on_hint(&self, name: &Name) -> bool {
        self.roles.get(name).is_some_and(|role| self.foresee(name, role).is_some())
    }

    /// Claims a role that a hint names, as if its leader had resigned it; what cannot be claimed so is read.
    pub(super) fn claim_on_hint(&mut self, ctx: &mut StepContext<'_>) {
        let Some(name) = ctx.hinted_role.take() else { return };
        let foreseen = self.roles.get(&name).and_then(|role| self.foresee(&name, role));
        let Some((expect, former)) = foreseen else {
            return self.poll.hint_read(self.named(Kind::Role, &name));
        };
        let Some(claim) = self.compose_claim(&name, Some(expect), Some(&former), true, ctx) else { return };
        self.poll.hint_followed(self.rules.hint_poll_cost(true));
        ctx.claim = Some(self.send_writes(vec![claim], Purpose::Roles(vec![name]), ctx));
    }

    /// What the register holds if its leader has resigned, and under which version: if that is the case we come first.
    fn foresee(&self, name: &Name, role: &TrackedRole) -> Option<(Version, RoleRecord)> {
        let may_send = self.rules.resignations_are_foreseen()
            && self.poll.may_follow_hint(self.now.time)
            && self.ops.awaited_about_roles() < BATCHES_AWAITED;
        // First: to know who comes first takes a look at every node.
        if !may_send {
            return None;
        }
        let RoleView::Seen { version, record } = &role.view else { return None };
        let (holder, candidacy) = (record.holder.as_ref()?, role.candidacy.as_ref()?);
        let vacated = vacated(record);
        let mine = Some(holder.session) == self.session.own_id();
        // A role that operators hand to a node is resigned under another version.
        let comes_first = matches!(role.stage, Stage::Following)
            && !self.controls.hand_over(name)
            && !mine
            && !self.peers.is_over(holder.session)
            && role.highest_token == record.token
            && record.token < Token::MAX
            && self.could_claim(name, role)
            && role.not_before.max(self.may_claim_from(role)) <= self.now.time
            && self.delay_after(name, candidacy, Some(&vacated)).is_zero();
        let expect = self.rules.claimed_on_hint(*version)?;
        comes_first.then_some((expect, vacated))
    }

    /// Whether this node would claim the role without delay if its leader has given it up; also if too little is known to say.
    pub(in crate::engine) fn would_come_first(&self, name: &Name, role: &TrackedRole) -> bool {
        let Some(candidacy) = &role.candidacy else { return false };
        // The answer says more.
        if matches!(role.stage, Stage::Claiming { .. }) {
            return false;
        }
        let is_named = self.controls.names_successor(name, &self.node);
        is_named
            || role
                .record()
                .is_none_or(|record| self.delay_after(name, candidacy, Some(&vacated(record))).is_zero())
    }
}

/// What the register holds when its leader has given the role up.
fn vacated(record: &RoleRecord) -> RoleRecord {
    let Some(holder) = &record.holder else { return record.clone() };
    RoleRecord { holder: None, previous: Some(holder.node.clone()), successor: None, ..record.clone() }
}
