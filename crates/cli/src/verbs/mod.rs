//! The operator verbs: each reads or asks through [`tenure::Operator`] and prints what came of it.

pub mod ask;
pub mod check;
pub mod doctor;
pub mod history;
pub mod nodes;
pub mod shell;
pub mod status;
pub mod watch;

use tenure::Operator;

use crate::args::Common;
use crate::exit::Exit;

/// Opens the store that was named.
pub(crate) fn operator(common: &Common) -> Result<Operator, Exit> {
    let store = tenure::store::open(&common.store)?;
    Ok(Operator::new(store, common.namespace.clone(), whoami()))
}

/// Who asks: `user@host`.
fn whoami() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}
