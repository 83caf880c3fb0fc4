//! Every descendant of this process, found under `/proc`: also those that left their group or session.
//!
//! It relies on the process being a child subreaper: a descendant whose parent dies becomes its child, so
//! that nothing can leave the tree, and a process without children has no living descendants.

use std::collections::BTreeSet;
use std::fs;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

/// Whom a signal is not for.
#[derive(Debug, Default)]
pub(crate) struct SignalExceptions {
    /// These children and everything below them.
    pub(crate) other_children: BTreeSet<i32>,
    /// The members of this group.
    pub(crate) group: Option<Pid>,
}

/// Sends `signal` to every living descendant of this process, with exceptions.
///
/// A pid read from `/proc` may by now belong to a stranger: the descriptor is opened first, and then the
/// parent is looked at again.
pub(crate) fn signal_all(signal: Signal, except: &SignalExceptions) {
    let family = descendants(&except.other_children);
    let excepted = except.group.map(Pid::as_raw_pid);
    let root = getpid().as_raw_pid();
    for pid in &family {
        let Some(target) = Pid::from_raw(*pid) else { continue };
        let Ok(handle) = pidfd_open(target, PidfdFlags::empty()) else { continue };
        let Some(place) = Place::of(*pid) else { continue };
        if (place.parent == root || family.contains(&place.parent)) && Some(place.group) != excepted {
            // A failure means that it is gone, or not ours to kill; the caller looks again either way.
            let _ = pidfd_send_signal(&handle, signal);
        }
    }
}

/// Kills and reaps every descendant except those below `other_children`, and returns when there is none left.
///
/// For a process with other children than the tree, which therefore must not wait for just any child.
pub(crate) fn kill_all(other_children: BTreeSet<i32>) {
    let except = SignalExceptions { other_children, group: None };
    loop {
        // The kernel's list may leave out a child while another goes; that there is none is believed of the
        // scan only.
        let me = getpid().as_raw_pid();
        let mut children = children(me);
        children.retain(|child| !except.other_children.contains(child));
        if children.is_empty() {
            children = children_by_scan(me);
            children.retain(|child| !except.other_children.contains(child));
        }
        if children.is_empty() {
            return;
        }
        signal_all(Signal::KILL, &except);
        for child in children {
            reap_one(child);
        }
    }
}

/// The children of this process now.
pub(crate) fn own_children() -> BTreeSet<i32> {
    children(getpid().as_raw_pid()).into_iter().collect()
}

fn reap_one(child: i32) {
    let Some(pid) = Pid::from_raw(child) else { return };
    while matches!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
}

fn descendants(other_children: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut next = vec![getpid().as_raw_pid()];
    while let Some(pid) = next.pop() {
        for child in children(pid) {
            if !other_children.contains(&child) && found.insert(child) {
                next.push(child);
            }
        }
    }
    found
}

/// The children of `pid`, living or not yet reaped. Most kernels list them; on the others every process is
/// asked for its parent.
fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            Err(_) if task.path().exists() => return children_by_scan(pid),
            Err(_) => {}
        }
    }
    found
}

fn children_by_scan(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|candidate| Place::of(*candidate).is_some_and(|place| place.parent == pid)).collect()
}

/// Where a process stands among the others.
///
/// 0 stands for what the PID namespace of this process has no number for, such as the session that started a container.
/// (The system calls answer 0 too; `rustix` takes that for a pid, which no process has.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
}

impl Place {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may contain anything, so that the fields count from its end.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut numbers = fields.split_ascii_whitespace().skip(1).map(|field| field.parse().ok());
        Some(Self { parent: numbers.next()??, group: numbers.next()??, session: numbers.next()?? })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_list_and_the_scan_agree_on_a_child() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(own_children().contains(&pid));
        assert!(children_by_scan(getpid().as_raw_pid()).contains(&pid));
        assert_eq!(Place::of(pid).unwrap().parent, getpid().as_raw_pid());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!own_children().contains(&pid));
    }

    #[test]
    fn a_name_may_contain_anything_and_a_namespace_has_no_number_for_what_is_outside() {
        let place = Place::parse("7 (a) S 9 (b) S 1 0 0 34816 7 4194304").unwrap();
        assert_eq!(place, Place { parent: 1, group: 0, session: 0 });
    }
}
