//! `tenure schema`: the tables and the least rights, printed without asking any server.

use serde::Serialize;
use tenure::schema::SchemaRequest;

use crate::args::{Common, SchemaArgs};
use crate::exit::Exit;
use crate::output;

/// Prints what is to be set up. Of the URL only the scheme is looked at.
///
/// # Errors
/// If nothing has to be set up for such a store, or this build does not know it.
pub fn main(common: &Common, args: &SchemaArgs) -> Result<Exit, Exit> {
    let url = common.store_url();
    let known = tenure::schema::stores();
    let by_url = || tenure::store::backend_name(&url).filter(|kind| known.contains(kind)).map(str::to_owned);
    let store =
        args.kind.clone().or_else(by_url).ok_or_else(|| {
            Exit::Usage(format!("this store needs no tables; use --for {}", known.join(", ")))
        })?;
    let user = args.user.clone();
    let mut request = SchemaRequest::new(store, user, common.namespace());
    request.fence = args.fence;
    let text = request.text().ok_or_else(|| Exit::Usage(nothing_to_print(&request, &known)))?;
    if common.is_json() {
        output::json(&Document { schema: &text })?;
    } else {
        output::print(text.trim_end())?;
    }
    Ok(Exit::Done)
}

fn nothing_to_print(request: &SchemaRequest, known: &[&str]) -> String {
    if !request.fence {
        return "this build has no such store; use --fence to print the tables of fences".to_owned();
    }
    let has_fences = |name: &&&str| {
        let mut request = request.clone();
        request.store = (**name).to_owned();
        request.text().is_some()
    };
    let fenced: Vec<&str> = known.iter().filter(has_fences).copied().collect();
    let others = fenced.join(", ");
    format!("{} has no fences; use --for with the database that the work writes to: {others}", request.store)
}

/// For programs.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
}
