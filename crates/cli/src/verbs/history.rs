//! Being written.

use crate::args::Common;
use crate::exit::Exit;

/// Being written.
pub async fn main(_common: &Common, _args: &crate::args::HistoryArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
