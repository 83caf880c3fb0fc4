//! Being written.

use crate::args::Common;
use crate::args::{AskArgs, TransferArgs};
use crate::exit::Exit;
/// Being written.
pub async fn transfer(_common: &Common, _args: &TransferArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
/// Being written.
pub async fn step_down(_common: &Common, _args: &AskArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
/// Being written.
pub async fn pause(_common: &Common, _args: &AskArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
/// Being written.
pub async fn resume(_common: &Common, _args: &AskArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
