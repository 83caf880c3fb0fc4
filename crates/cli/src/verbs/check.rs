//! Being written.

use crate::args::Common;
use crate::exit::Exit;

/// Being written.
pub fn main(_common: &Common, _args: &crate::args::TimingArgs) -> Result<Exit, Exit> {
    Ok(Exit::Done)
}
