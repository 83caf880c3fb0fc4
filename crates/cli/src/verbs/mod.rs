//! The operator verbs: each reads or asks a store or an agent ([`source`]), and prints what came of it.

pub mod actions;
pub mod alerts;
pub mod audit;
pub mod check;
pub mod doctor;
pub mod history;
pub mod nodes;
pub mod peers;
pub mod probe;
pub mod repair;
pub mod schema;
pub mod shell;
pub mod source;
pub mod status;
pub mod task;
pub mod top;
pub mod watch;

use tenure::operator::ClusterSnapshot;
use tenure::{Name, Operator};
pub(crate) use tenure_agent::identity::whoami;
use tenure_agent::nearest;

use source::Source;

use crate::args::Common;
use crate::exit::Exit;

/// Opens the store that was named; a file that is missing is made.
pub(crate) fn operator(common: &Common) -> Result<Operator, Exit> {
    let store = tenure::store::open_as_client(&common.store_url())?;
    Ok(Operator::new(store, common.namespace(), whoami()))
}

/// What to do where nothing has happened yet.
fn no_roles_yet(source: &Source) -> String {
    format!(
        "No roles in namespace {} of {} yet.\n\n\
         \x20 tenure run --role scheduler -- COMMAND   runs a command only while it leads\n\
         \x20 tenure demo                              shows how that goes",
        source.namespace(),
        source.location()
    )
}

/// No such role, and which one may have been meant.
fn no_such_role(source: &Source, snapshot: &ClusterSnapshot, role: &Name) -> Exit {
    let names = snapshot.roles.iter().map(|report| report.role.as_str());
    let meant = nearest::nearest(role.as_str(), names);
    let namespace = source.namespace();
    Exit::No(match meant {
        Some(meant) => {
            format!("role \"{role}\" not found in namespace \"{namespace}\"; did you mean {meant}?")
        }
        None => {
            format!(
                "role \"{role}\" not found in namespace \"{namespace}\" (run `tenure status` to list roles)"
            )
        }
    })
}
