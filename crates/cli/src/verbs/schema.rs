//! `tenure schema`: the tables and the least rights, printed without asking any server.

use serde::Serialize;
use tenure::schema::{Kind, Wanted};

use crate::args::{Common, SchemaArgs, StoreKind};
use crate::exit::Exit;
use crate::output;

/// Prints what is to be set up. Of the URL only the scheme is looked at.
///
/// # Errors
/// If nothing has to be set up for such a store, or this build does not know it.
pub fn main(common: &Common, args: &SchemaArgs) -> Result<Exit, Exit> {
    let kind = args.kind.map(Kind::from).or_else(|| Kind::of_url(&common.store_url())).ok_or_else(|| {
        Exit::Usage(
            "such a store needs no tables; name one with --for postgres, mysql, sqlite or redis".to_owned(),
        )
    })?;
    let wanted = Wanted { kind, user: args.user.clone(), namespace: common.namespace(), fence: args.fence };
    let text = wanted.text().ok_or_else(|| {
        Exit::Usage("this build has no such store; --fence prints what fences need in it".to_owned())
    })?;
    if common.is_json() {
        output::json(&Document { schema: &text })?;
    } else {
        output::print(text.trim_end())?;
    }
    Ok(Exit::Done)
}

/// For programs.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
}

impl From<StoreKind> for Kind {
    fn from(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Postgres => Self::Postgres,
            StoreKind::Mysql => Self::Mysql,
            StoreKind::Sqlite => Self::Sqlite,
            StoreKind::Redis => Self::Redis,
        }
    }
}
