//! The command to run, and how the watchdog starts it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio};

use rustix::process::{
    Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid, setpriority_process,
};
use rustix::termios::tcsetpgrp;

use crate::gate::NOT_OPENED;
use crate::wire::Start;
use island::{fork, shed};

/// A program with its arguments, as the user wrote them.
#[derive(Debug, Clone, Default)]
pub struct Command {
    /// The program; looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Added to what children inherit; see [`environment`](super::environment).
    pub env: Vec<(OsString, OsString)>,
    /// Where to run it; the current directory at launch of the guard if none.
    pub cwd: Option<PathBuf>,
}

/// Starts the command in a group of its own, bound to the life of this process, with priority `nice`.
pub(crate) fn spawn(start: &Start, stdin: &OwnedFd, nice: i32) -> io::Result<Pid> {
    spawn_bound(&mut command_of(start, stdin.try_clone()?), nice)
}

/// The command, with its standard input, as the process that is to execute it sees it.
pub(crate) fn command_of(start: &Start, stdin: OwnedFd) -> StdCommand {
    let mut command = StdCommand::new(&start.program);
    command.args(&start.args).envs(start.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::from(stdin));
    if let Some(cwd) = &start.cwd {
        command.current_dir(cwd);
    }
    command
}

/// Starts a program in a group of its own, bound to the life of this process, with priority `nice`. The kernel keeps the
/// bond when the program executes another one.
pub(crate) fn spawn_bound(command: &mut StdCommand, nice: i32) -> io::Result<Pid> {
    let watchdog = getpid();
    before_exec(command.process_group(0), move || bind_to(watchdog, nice));
    Ok(Pid::from_child(&command.spawn()?))
}

/// Forks: the copy does `work`, in a group of its own, bound to the life of this process, with priority `nice`. It has
/// `kept`, and else only what a program has that this process executes.
pub(crate) fn fork_bound(nice: i32, kept: OwnedFd, work: impl FnOnce(OwnedFd)) -> io::Result<Pid> {
    let watchdog = getpid();
    let Some(copy) = fork()? else {
        // Nothing of the watchdog's may be unwound here.
        let done = catch_unwind(AssertUnwindSafe(|| {
            shed(&kept)?;
            setpgid(None, None)?;
            bind_to(watchdog, nice)?;
            work(kept);
            io::Result::Ok(())
        }));
        drop(done);
        std::process::exit(NOT_OPENED)
    };
    // Both say it, so that the group is there whichever comes first.
    let _ = setpgid(Some(copy), Some(copy));
    Ok(copy)
}

/// Dies with `watchdog`, and runs with that priority.
fn bind_to(watchdog: Pid, nice: i32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(watchdog) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // Fails only where the raise of the watchdog's own priority failed too.
    let _ = setpriority_process(None, nice);
    Ok(())
}

/// Gives the terminal from `group` to `owner`, on behalf of a watchdog in neither.
///
/// Only a member of the foreground group may do that without being stopped (SIGTTOU), so that a copy of this
/// process joins the group, does it, and is gone; there is nothing to execute.
pub(crate) fn pass_terminal(terminal: &OwnedFd, group: Pid, owner: Pid) -> io::Result<()> {
    let terminal = terminal.try_clone()?;
    let mut command = StdCommand::new("/proc/self/exe");
    command.process_group(group.as_raw_pid());
    before_exec(&mut command, move || {
        tcsetpgrp(terminal.as_fd(), owner)?;
        Err(io::ErrorKind::Interrupted.into())
    });
    // It "fails" by design, after the work is done, and is reaped by the failing call.
    let _ = command.spawn();
    Ok(())
}

/// What std and rustix offer no safe way to do.
mod island {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::process::Pid;

    use crate::signals;

    /// The copy's pid; none in the copy.
    #[allow(unsafe_code)]
    pub(super) fn fork() -> io::Result<Option<Pid>> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: with one thread the copy is consistent, and no lock is held by another one.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(Pid::from_raw(pid)),
        }
    }

    /// In the copy, what an exec would do: no signal runs a handler of the watchdog's any more, and nothing is open that
    /// belongs to the watchdog, but for `kept`. What was open before it, it leaves to the command.
    #[allow(unsafe_code)]
    pub(super) fn shed(kept: &OwnedFd) -> io::Result<()> {
        for number in signals::caught() {
            // SAFETY: no handler is set, only the default; numbers that may not be set are refused.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        for number in open.into_iter().filter(|number| *number != kept.as_raw_fd()) {
            // SAFETY: the copy never uses what it inherited, nor drops its owners: it executes another program or exits.
            // The one that listed the others is closed by now, and is refused.
            unsafe {
                if libc::fcntl(number, libc::F_GETFD) & libc::FD_CLOEXEC != 0 {
                    libc::close(number);
                }
            }
        }
        Ok(())
    }
}

/// Work between fork and exec: std has no other way to set the parent-death signal of a child.
///
/// A child that must die with the watchdog has to say so itself, between fork and exec. The alternative, an
/// intermediate program that says it and then executes the command, has no descriptor on which to report a
/// command that cannot be executed, and costs a second exec at every election.
#[allow(unsafe_code)]
fn before_exec(command: &mut StdCommand, work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the watchdog has one thread, so the copy is consistent and no lock is held by another; and the
    // two callers make only raw system calls: they neither allocate nor panic.
    unsafe { command.pre_exec(work) };
}
