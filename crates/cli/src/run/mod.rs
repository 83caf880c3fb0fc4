//! Being written.
use crate::exit::Exit;
/// Being written.
pub async fn main(_common: crate::args::Common, _args: crate::args::RunArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
