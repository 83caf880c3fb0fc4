//! Who owns the terminal: while a child runs, its group does, so that Ctrl-C and reads reach it.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, getpid, kill_current_process_group};
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp};

use crate::spawn::pass_terminal;
use crate::tree::Place;

/// This process's group, if it owns the terminal on its standard input and can therefore give it away.
pub(crate) fn owned() -> Option<Pid> {
    // A command that is started by a service manager does not wait for the rest.
    if !isatty(stdin()) {
        return None;
    }
    let group = Pid::from_raw(Place::of(getpid().as_raw_pid())?.group)?;
    (tcgetpgrp(stdin()) == Ok(group)).then_some(group)
}

/// Gives the terminal from its owner to a child's group.
pub(crate) fn give(terminal: &OwnedFd, owner: Pid, child: Pid) {
    pass(terminal, owner, child);
}

/// Whether a child that this signal stopped was merely faster than the terminal, which it was given meanwhile.
pub(crate) fn was_early(terminal: &OwnedFd, child: Pid, signal: i32) -> bool {
    [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal) && tcgetpgrp(terminal) == Ok(child)
}

/// Takes the terminal back from a dead child's group, which still exists because its leader is not reaped
/// yet.
pub(crate) fn take_back(terminal: &OwnedFd, child: Pid, owner: Pid) {
    pass(terminal, child, owner);
}

/// Whether a shell with job control started this process's group, and can continue what it sees stopped: an ancestor
/// of the same session, outside the group. (Without one the kernel ignores Ctrl-Z for the group.)
#[must_use]
pub fn has_shell() -> bool {
    let Some(own) = Place::of(getpid().as_raw_pid()) else { return false };
    let mut above = Place::of(own.parent);
    while let Some(place) = above
        && place.group == own.group
    {
        above = Place::of(place.parent);
    }
    above.is_some_and(|place| place.session == own.session)
}

/// Stops this process and its whole group, as the shell that started them expects. Returns when it goes on.
pub fn stop_own_group() {
    let _ = kill_current_process_group(Signal::STOP);
}

/// Passes the terminal on if `from` has it; if another group does, it keeps it.
fn pass(terminal: &OwnedFd, from: Pid, to: Pid) {
    if tcgetpgrp(terminal) == Ok(from) {
        let _ = pass_terminal(terminal, from, to);
    }
}
