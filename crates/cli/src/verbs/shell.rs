//! Being written.
use crate::exit::Exit;
/// Being written.
pub fn completions(_args: &crate::args::CompletionArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
/// Being written.
pub fn man() -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
