//! Endings: the work is told to stop, then the role is given up; or the session ends and everything is lost at once.

use super::{Resigning, Stage, View};
use crate::engine::{Cx, Engine, Run};
use crate::io::Cause;
use crate::record::{Reason, Record, Role as RoleRecord};
use crate::{Event, Kind, Mutant, Name, Outcome, Version, Write};
use std::time::Duration;

impl Engine {
    /// Tells the work to stop. The role is given up once it has.
    pub(in crate::engine) fn drain(
        &mut self,
        name: &Name,
        reason: Reason,
        successor: Option<Name>,
        cx: &mut Cx<'_>,
    ) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Leading { token, version, .. } = role.stage else { return };
        role.stage = Stage::Draining { token, version, reason, successor };
        let working = role.work.is_some();
        if working {
            cx.event(Event::Draining { role: name.clone(), token, reason, forced: false });
        }
        self.tell_state(name, cx);
        if !working || self.mutated(Mutant::ReleaseBeforeStopped) {
            self.resign_drained(name, cx);
        }
    }

    /// The lease runs out: whatever has not stopped by the deadline must be killed.
    pub(in crate::engine) fn drain_forced(&mut self, reason: Reason, cx: &mut Cx<'_>) {
        for name in self.led() {
            let Some(role) = self.roles.get_mut(&name) else { continue };
            let (Stage::Leading { token, version, .. } | Stage::Draining { token, version, .. }) = role.stage
            else {
                continue;
            };
            role.stage = Stage::Draining { token, version, reason, successor: None };
            cx.event(Event::Draining { role: name.clone(), token, reason, forced: true });
            self.tell_state(&name, cx);
        }
    }

    /// From the decision to resign the tenure is invalid here, before the write is sent.
    pub(in crate::engine) fn resign_drained(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Stage::Draining { token, version, reason, successor } = role.stage.clone() else { return };
        self.begin_resigning(name, version, reason, successor);
        cx.event(Event::Lost { role: name.clone(), token, reason });
        self.consider(name, cx);
    }

    pub(in crate::engine) fn begin_resigning(
        &mut self,
        name: &Name,
        expect: Version,
        reason: Reason,
        successor: Option<Name>,
    ) {
        // When everything stops, one write that closes the session frees all roles; it gets a moment's precedence.
        let hold = if self.run == Run::Stopping { Duration::from_millis(20) } else { Duration::ZERO };
        let retry_at = self.now.time.after(hold);
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Resigning(Resigning {
                expect,
                writing: None,
                unsure: Vec::new(),
                retry_at,
                reason,
                successor,
            });
        }
    }

    pub(in crate::engine) fn resign(&mut self, name: &Name, cx: &mut Cx<'_>) -> Option<Write> {
        let (op, version) = (self.ops.upcoming(), cx.version());
        let (key, wall, node) = (self.named(Kind::Role, name), self.now.wall, self.config.node.clone());
        let role = self.roles.get_mut(name)?;
        let token = role.view.record().map_or(role.highest, |record| record.token);
        let Stage::Resigning(resigning) = &mut role.stage else { return None };
        let record = RoleRecord {
            token,
            holder: None,
            since: wall,
            reason: resigning.reason,
            previous: Some(node),
            successor: resigning.successor.clone(),
        };
        resigning.writing = Some((op, version, record.clone()));
        Some(Write {
            key,
            expect: Some(resigning.expect),
            put: Some((version, Record::Role(record))),
            ring: true,
            witnessed: false,
        })
    }

    pub(in crate::engine) fn resigned(&mut self, name: &Name, outcome: Outcome, cx: &mut Cx<'_>) {
        let retry = self.now.time.after(self.retry_delay());
        let clobber = self.mutated(Mutant::UnconditionalRelease);
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Resigning(resigning) = &mut role.stage else { return };
        let Some((_, version, record)) = resigning.writing.take() else { return };
        match outcome {
            Outcome::Applied => self.given_up(name, View::Seen { version, record, hinted: false }, cx),
            Outcome::Conflict(Some(entry)) if clobber => {
                (resigning.expect, resigning.retry_at) = (entry.version, retry)
            }
            Outcome::Conflict(found) => {
                let view = View::of(found.as_ref(), false);
                let ours = view.version().is_some_and(|v| resigning.unsure.contains(&v) || v == version);
                if ours {
                    self.given_up(name, view, cx);
                } else {
                    role.stage = Stage::Following;
                    self.learn(name, view, cx);
                }
            }
            Outcome::Failed(_) => {
                resigning.unsure.push(version);
                resigning.retry_at = retry;
            }
        }
    }

    pub(in crate::engine) fn given_up(&mut self, name: &Name, view: View, cx: &mut Cx<'_>) {
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Following;
        }
        self.count_freed(name);
        self.learn(name, view, cx);
    }

    /// The session ends: claims and resignations made under it are of no use any more.
    pub(in crate::engine) fn abandon_claims(&mut self, cx: &mut Cx<'_>) {
        let credited = self.mutated(Mutant::AckCreditedToLaterSession);
        let names: Vec<Name> = self.roles.keys().cloned().collect();
        for name in names {
            let Some(role) = self.roles.get_mut(&name) else { continue };
            role.maybe_stray = false;
            if credited && matches!(role.stage, Stage::Claiming { .. }) {
                continue;
            }
            match role.stage {
                Stage::Claiming { .. } => {
                    role.stage = Stage::Following;
                    self.learn(&name, View::Unknown, cx);
                    self.look_again(self.named(Kind::Role, &name));
                    cx.event(Event::ElectionFailed { role: name.clone(), cause: Cause::SessionOver });
                }
                Stage::Resigning(_) => {
                    role.stage = Stage::Following;
                    self.learn(&name, View::Unknown, cx);
                    self.look_again(self.named(Kind::Role, &name));
                }
                Stage::Verifying { .. } => {
                    role.stage = Stage::Following;
                    cx.event(Event::ElectionFailed { role: name.clone(), cause: Cause::SessionOver });
                }
                _ => continue,
            }
            self.consider(&name, cx);
            self.forget_withdrawn(&name);
        }
    }

    /// Every tenure is over, now.
    pub(in crate::engine) fn lose_all(&mut self, reason: Reason, cx: &mut Cx<'_>) {
        for name in self.led() {
            self.lose(&name, reason, cx);
        }
    }

    pub(in crate::engine) fn lose(&mut self, name: &Name, reason: Reason, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let Some(token) = role.stage.tenure() else { return };
        role.stage = Stage::Following;
        cx.event(Event::Lost { role: name.clone(), token, reason });
        self.consider(name, cx);
        self.tell_leader(name, cx);
        self.forget_withdrawn(name);
    }
}
