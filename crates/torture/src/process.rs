//! Processes of this same binary that take part in a demo or a torture: started, signalled, and killed with the process
//! that started them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

use crate::Error;

/// A handle to signal a running process. Its [`Child`] is for those who wait for it; dropping that kills it.
#[derive(Debug, Clone)]
pub struct NodeProcess {
    /// A process id may be given to another process as soon as its owner is reaped; this handle never is.
    process: Arc<OwnedFd>,
}

impl NodeProcess {
    /// Starts a process under that name; its stderr is appended to a log.
    ///
    /// Call it on the main thread: a process that asks for it dies with the thread that started it.
    ///
    /// # Errors
    /// If no process can be started.
    pub fn start(name: &str, args: &[&str], log: &Path, output: Stdio) -> Result<(Self, Child), Error> {
        try_start(args, log, output).map_err(|error| {
            Error::Failed(format!(
                "{name} cannot be started: {error}; check that processes can be started here"
            ))
        })
    }

    /// One that is gone already cannot be signalled, and need not be.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.process, signal);
    }
}

/// Not in the terminal's foreground group: Ctrl-C is for the process that started it, which then ends it. What the environment says
/// about stores is not for it.
fn try_start(args: &[&str], log: &Path, output: Stdio) -> io::Result<(NodeProcess, Child)> {
    let mut command = Command::new("/proc/self/exe");
    tenure_process::environment::scrub(command.as_std_mut());
    command.args(args).process_group(0).kill_on_drop(true);
    let log = File::options().append(true).create(true).open(log)?;
    let child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn()?;
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
    let process = Arc::new(pidfd_open(pid, PidfdFlags::empty())?);
    Ok((NodeProcess { process }, child))
}

/// The last line of a process's log.
#[must_use]
pub fn last_line(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines().last().unwrap_or("no output").to_owned()
}
