//! Being written.
use crate::exit::Exit;
/// Being written.
pub async fn main(_args: crate::args::DemoArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
