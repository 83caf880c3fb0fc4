//! Being written.
use crate::exit::Exit;
/// Being written.
pub async fn main(_common: &crate::args::Common, _args: &crate::args::BenchArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
