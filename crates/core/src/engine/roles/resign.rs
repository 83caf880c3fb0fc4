//! The end of tenures: the work is told to stop, then the node resigns the role; or the session ends and every tenure is
//! lost at once.

use super::{Resigning, RoleView, Stage};
use crate::engine::{Engine, Lifecycle, StepContext};
use crate::io::ElectionFailure;
use crate::record::{EndReason, Record, Role as RoleRecord};
use crate::{Event, Kind, Name, Outcome, Version, Write};
use std::time::Duration;

impl Engine {
    /// Tells the work to stop. The role is given up once it has.
    pub(in crate::engine) fn drain(
        &mut self,
        name: &Name,
        reason: EndReason,
        successor: Option<Name>,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Leading { token, version, .. } = role.stage else { return };
        role.stage = Stage::Draining { token, version, reason, successor };
        let working = role.work.is_some();
        if working {
            ctx.event(Event::Draining { role: name.clone(), token, reason, forced: false });
        }
        self.report_state(name, ctx);
        if self.rules.may_give_up(working) {
            self.resign_drained(name, ctx);
        }
    }

    /// The lease runs out: whatever has not stopped by the deadline must be killed.
    pub(in crate::engine) fn drain_forced(&mut self, reason: EndReason, ctx: &mut StepContext<'_>) {
        for name in self.led_roles() {
            let Some(role) = self.roles.get_mut(&name) else { continue };
            let (Stage::Leading { token, version, .. } | Stage::Draining { token, version, .. }) = role.stage
            else {
                continue;
            };
            role.stage = Stage::Draining { token, version, reason, successor: None };
            ctx.event(Event::Draining { role: name.clone(), token, reason, forced: true });
            self.report_state(&name, ctx);
        }
    }

    /// From the decision to resign the tenure is invalid here, before the write is sent.
    pub(in crate::engine) fn resign_drained(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Stage::Draining { token, version, reason, successor } = role.stage.clone() else { return };
        if self.rules.backs_off_after(reason) {
            self.back_off(name);
        }
        self.begin_resigning(name, version, reason, successor);
        ctx.event(Event::Lost { role: name.clone(), token, reason });
        self.consider(name, ctx);
    }

    pub(in crate::engine) fn begin_resigning(
        &mut self,
        name: &Name,
        expect: Version,
        reason: EndReason,
        successor: Option<Name>,
    ) {
        // When everything stops, one write that closes the session frees all roles; it gets a moment's precedence.
        let hold =
            if self.lifecycle == Lifecycle::Stopping { Duration::from_millis(20) } else { Duration::ZERO };
        let (retry_at, since) = (self.now.time.after(hold), self.now.wall);
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Resigning(Resigning {
                expect,
                since,
                writing: None,
                unacknowledged: Vec::new(),
                retry_at,
                reason,
                successor,
            });
        }
    }

    pub(in crate::engine) fn resign_write(
        &mut self,
        name: &Name,
        ctx: &mut StepContext<'_>,
    ) -> Option<Write> {
        let (op, fresh) = (self.ops.next_id(), ctx.version());
        let (key, node) = (self.named(Kind::Role, name), self.node.clone());
        let foreseeable = self.rules.resignations_are_foreseen();
        let role = self.roles.get_mut(name)?;
        let token = role.view.record().map_or(role.highest_token, |record| record.token);
        let Stage::Resigning(resigning) = &mut role.stage else { return None };
        let record = RoleRecord {
            token,
            holder: None,
            since: resigning.since,
            reason: resigning.reason.into(),
            previous: Some(node),
            successor: resigning.successor.clone(),
        };
        let version = resigning.version().filter(|_| foreseeable).unwrap_or(fresh);
        resigning.writing = Some((op, version, record.clone()));
        Some(Write {
            key,
            expect: Some(resigning.expect),
            put: Some((version, Record::Role(record))),
            notify: true,
            requires_lock: false,
        })
    }

    pub(in crate::engine) fn resign_answered(
        &mut self,
        name: &Name,
        outcome: Outcome,
        ctx: &mut StepContext<'_>,
    ) {
        let retry = self.now.time.after(self.rules.retry_delay());
        let clobber = !self.rules.resigns_only_own_version();
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Resigning(resigning) = &mut role.stage else { return };
        let Some((_, version, record)) = resigning.writing.take() else { return };
        match outcome {
            Outcome::Applied => self.mark_resigned(name, RoleView::Seen { version, record }, ctx),
            Outcome::Conflict(Some(entry)) if clobber => {
                (resigning.expect, resigning.retry_at) = (entry.version, retry)
            }
            Outcome::Conflict(found) => {
                let view = RoleView::of(found.as_ref());
                let ours =
                    view.version().is_some_and(|v| resigning.unacknowledged.contains(&v) || v == version);
                if ours {
                    self.mark_resigned(name, view, ctx);
                } else {
                    role.stage = Stage::Following;
                    // A read may have been stale: giving back at once what it shows, and reading anew, would go on for as long
                    // as reads are.
                    role.resign_from = retry;
                    self.note_loss(name, &view, ctx);
                    self.apply_view(name, view, ctx);
                }
            }
            Outcome::Failed(_) => {
                if !resigning.unacknowledged.contains(&version) {
                    resigning.unacknowledged.push(version);
                }
                resigning.retry_at = retry;
            }
        }
    }

    pub(in crate::engine) fn mark_resigned(
        &mut self,
        name: &Name,
        view: RoleView,
        ctx: &mut StepContext<'_>,
    ) {
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Following;
        }
        self.count_freed(name);
        self.apply_view(name, view, ctx);
    }

    /// The session ends: claims and resignations made under it are of no use any more.
    pub(in crate::engine) fn abandon_claims(&mut self, ctx: &mut StepContext<'_>) {
        let survives = !self.rules.claim_ends_with_session();
        let names: Vec<Name> = self.roles.names().cloned().collect();
        for name in names {
            let Some(role) = self.roles.get_mut(&name) else { continue };
            (role.maybe_stray, role.claimed_in_session) = (false, false);
            if survives && matches!(role.stage, Stage::Claiming { .. }) {
                continue;
            }
            match role.stage {
                Stage::Claiming { on_hint, .. } => {
                    role.stage = Stage::Following;
                    self.apply_view(&name, RoleView::Unknown, ctx);
                    self.reread_if_relevant(self.named(Kind::Role, &name));
                    if !on_hint {
                        let cause = ElectionFailure::SessionOver;
                        ctx.event(Event::ElectionFailed { role: name.clone(), cause });
                    }
                }
                Stage::Resigning(_) => {
                    role.stage = Stage::Following;
                    self.apply_view(&name, RoleView::Unknown, ctx);
                    self.reread_if_relevant(self.named(Kind::Role, &name));
                }
                Stage::Restamping | Stage::Verifying { .. } => {
                    role.stage = Stage::Following;
                    ctx.event(Event::ElectionFailed {
                        role: name.clone(),
                        cause: ElectionFailure::SessionOver,
                    });
                }
                _ => {}
            }
            self.consider(&name, ctx);
            self.forget_withdrawn(&name);
        }
    }

    /// Every tenure is over, now.
    pub(in crate::engine) fn lose_all(&mut self, reason: EndReason, ctx: &mut StepContext<'_>) {
        for name in self.led_roles() {
            self.lose(&name, reason, ctx);
        }
    }

    pub(in crate::engine) fn lose(&mut self, name: &Name, reason: EndReason, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let Some(token) = role.stage.tenure() else { return };
        role.stage = Stage::Following;
        ctx.event(Event::Lost { role: name.clone(), token, reason });
        self.consider(name, ctx);
        self.report_leader(name, ctx);
        self.forget_withdrawn(name);
    }
}
