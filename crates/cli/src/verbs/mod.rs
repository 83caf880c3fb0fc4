//! The operator verbs: each reads or asks a store or an agent ([`source`]), and prints what came of it.

pub mod alerts;
pub mod ask;
pub mod audit;
pub mod check;
pub mod doctor;
pub mod history;
pub mod nodes;
pub mod peers;
pub mod probe;
pub mod schema;
pub mod shell;
pub mod source;
pub mod status;
pub mod task;
pub mod top;
pub mod watch;

pub(crate) mod nearest;

use serde::Serialize;
use tenure::operator::{Order, Snapshot};
use tenure::{Name, Operator};

use source::Source;

use crate::args::Common;
use crate::exit::Exit;
use crate::output::time::Stamp;

/// Opens the store that was named; a file that is missing is made.
pub(crate) fn operator(common: &Common) -> Result<Operator, Exit> {
    let store = tenure::store::visit(&common.store_url())?;
    Ok(Operator::new(store, common.namespace(), whoami()))
}

/// Who asks: `user@host`.
pub(crate) fn whoami() -> String {
    let named = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let named = named.chain(account(rustix::process::getuid().as_raw())).find(|name| !name.is_empty());
    let user = named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

/// The name of a user's account, where the machine itself knows it.
pub(crate) fn account(user: u32) -> Option<String> {
    let uid = user.to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = accounts.lines().map(|line| line.split(':'));
    fields.find_map(|mut line| {
        let name = line.next()?;
        (line.nth(1)? == uid).then(|| name.to_owned())
    })
}

/// An operator's order, for programs.
#[derive(Debug, Serialize)]
struct OrderView<'a> {
    by: &'a str,
    why: &'a str,
    at: Stamp,
}

impl<'a> From<&'a Order> for OrderView<'a> {
    fn from(order: &'a Order) -> Self {
        Self { by: &order.by, why: &order.why, at: Stamp(order.at) }
    }
}

/// What to do where nothing has happened yet.
fn nobody_yet(source: &Source) -> String {
    format!(
        "Nobody has stood for a role in namespace {} of {} yet.\n\n\
         \x20 tenure run --role scheduler -- COMMAND   runs a command only while it leads\n\
         \x20 tenure demo                              shows how that goes",
        source.namespace(),
        source.place()
    )
}

/// No such role, and which one may have been meant.
fn no_such_role(source: &Source, snapshot: &Snapshot, role: &Name) -> Exit {
    let names = snapshot.roles.iter().map(|report| report.role.as_str());
    let meant = nearest::nearest(role.as_str(), names);
    let namespace = source.namespace();
    Exit::No(match meant {
        Some(meant) => format!("there is no role {role} in namespace {namespace}; did you mean {meant}?"),
        None => {
            format!("there is no role {role} in namespace {namespace}; `tenure status` lists those there are")
        }
    })
}
