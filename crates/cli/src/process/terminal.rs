//! Who owns the terminal: while a child runs, its group does, so that Ctrl-C and reads reach it.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp};

use super::spawn::pass_terminal;

/// This process's group, if it owns the terminal on its standard input and can therefore give it away.
pub(super) fn owned() -> Option<Pid> {
    let group = getpgrp();
    (isatty(stdin()) && tcgetpgrp(stdin()) == Ok(group)).then_some(group)
}

/// Gives the terminal from its owner to a new child's group. A child that was faster and asked for input was
/// stopped for it, so that it is told to go on.
pub(super) fn give(terminal: &OwnedFd, owner: Pid, child: Pid) {
    pass(terminal, owner, child);
    let _ = kill_process_group(child, Signal::CONT);
}

/// Takes the terminal back from a dead child's group, which still exists because its leader is not reaped
/// yet.
pub(super) fn take_back(terminal: &OwnedFd, child: Pid, owner: Pid) {
    pass(terminal, child, owner);
}

/// Passes the terminal on if `from` has it; if somebody else does, it is theirs.
fn pass(terminal: &OwnedFd, from: Pid, to: Pid) {
    if tcgetpgrp(terminal) == Ok(from) {
        let _ = pass_terminal(terminal, from, to);
    }
}
