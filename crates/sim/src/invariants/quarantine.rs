//! On a store that can forget, nobody claims a role that it has watched for less than the longest lease.

use tenure_core::Time;
use tenure_core::engine::Class;

use super::{Act, Sent, Verdict};
use crate::process::Pid;
use crate::scene::Scene;

/// When each process began, by its own clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Quarantine(Vec<Time>);

impl Quarantine {
    pub(super) fn begun(&mut self, scene: &Scene, pid: Pid) {
        self.0.truncate(pid);
        self.0.push(scene.local(pid));
    }

    pub(super) fn sent(&mut self, scene: &Scene, sent: Sent<'_>) -> Verdict {
        if scene.settings.class != Class::C || !sent.writes.iter().any(|write| Act::of(write) == Act::Claim) {
            return Ok(());
        }
        let timing = &scene.node(sent.pid).timing;
        let watched = sent.local.since(self.0[sent.pid]);
        let needed = timing.watch(timing.ttl);
        if watched < needed { Err(format!("a claim after {watched:?}, not {needed:?}")) } else { Ok(()) }
    }
}
