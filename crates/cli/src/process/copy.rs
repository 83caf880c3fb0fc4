//! Copies of this very binary that play a part in a demo or a torture: started, signalled, and gone with whoever started
//! them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

use crate::exit::Exit;

/// A running copy, for those who signal it. Its [`Child`] is for those who wait for it; dropping that kills it.
#[derive(Debug, Clone)]
pub struct Copy {
    /// A process id may be given to another process as soon as its owner is reaped; this handle never is.
    process: Arc<OwnedFd>,
}

impl Copy {
    /// Starts one under that name; what it says to people goes to the end of a log.
    ///
    /// To be called on the main thread: a copy that asks for it dies with the thread that started it.
    ///
    /// # Errors
    /// If no process can be started.
    pub fn start(name: &str, args: &[&str], log: &Path, output: Stdio) -> Result<(Self, Child), Exit> {
        try_start(args, log, output).map_err(|error| {
            Exit::Failed(format!("{name} could not be started: {error}; check that processes can be started"))
        })
    }

    /// One that is gone already cannot be signalled, and need not be.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.process, signal);
    }
}

/// Not in the terminal's foreground group: Ctrl-C is for whoever started it, who then ends it. What the environment says
/// about stores is not for it.
fn try_start(args: &[&str], log: &Path, output: Stdio) -> io::Result<(Copy, Child)> {
    let mut command = Command::new("/proc/self/exe");
    command.args(args).env_remove("TENURE_STORE").process_group(0).kill_on_drop(true);
    let log = File::options().append(true).create(true).open(log)?;
    let child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn()?;
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
    let process = Arc::new(pidfd_open(pid, PidfdFlags::empty())?);
    Ok((Copy { process }, child))
}

/// What a copy said on its way out, if it said anything.
#[must_use]
pub fn last_words(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines().last().unwrap_or("without a word").to_owned()
}
