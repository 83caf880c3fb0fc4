//! The longest lease in the `cluster` register covers every leader: a newcomer on a store that forgets waits no longer.

use tenure_core::{Key, Record, Write};

use super::CheckResult;
use crate::world_state::WorldState;

pub(super) fn applied(before: &WorldState, write: &Write) -> CheckResult {
    let (Key::Cluster, Some((_, Record::Cluster(after)))) = (&write.key, &write.put) else { return Ok(()) };
    let Some((_, Record::Cluster(former))) = before.store.get(&write.key) else { return Ok(()) };
    if former.epoch != after.epoch || after.max_ttl >= former.max_ttl {
        return Ok(());
    }
    for pid in 0..before.processes.len() {
        let leads = before.settings.roles.iter().any(|role| before.leads(pid, role).is_some());
        let ttl = before.node(pid).timing.ttl;
        if leads && ttl > after.max_ttl {
            let name = &before.node(pid).name;
            return Err(format!(
                "{name} leads with a lease of {ttl:?}, and the longest is said to be {:?}",
                after.max_ttl
            ));
        }
    }
    Ok(())
}
