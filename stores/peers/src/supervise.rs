//! The life of a member: takes its directory, starts, runs, and begins again when its disk lets it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::STORE;
use super::frame::Answer;
use super::identity::{Identity, MemberDirectory};
use super::log::Log;
use super::member::{End, Input, Member};
use super::settings::refuse;
use super::shared::Shared;
use super::start::start;
use tenure_store::kit::watches::lock;
use tenure_store::{Retry, StoreError};

/// How long to wait before trying again to start, or to use the disk.
const PAUSE: Duration = Duration::from_millis(200);

const PANICKED: &str =
    "this member failed in a way that it should not, and begins again from its log; please report it";

/// Runs until it is told to stop.
pub(super) fn run(shared: &Arc<Shared>, me: &str, directory: &MemberDirectory, inputs: &Receiver<Input>) {
    let mut failed = false;
    loop {
        match open(shared, me, directory, failed).and_then(|(id, log)| member(shared, id, log)) {
            Ok(member) => {
                shared.set_trouble(None);
                match turn(member, inputs) {
                    Some(End::Stopped) => return,
                    Some(end) => shared.set_trouble(Some((told(&end), false))),
                    None => shared.set_trouble(Some((PANICKED.to_owned(), false))),
                }
                failed = true;
            }
            Err(error) => {
                let permanent = error.retry() == Retry::Never;
                shared.set_trouble(Some((error.message().to_owned(), permanent)));
            }
        }
        if wait(shared, inputs) {
            return;
        }
    }
}

/// Runs the member. None if it panicked: what it had in memory is gone, as after a crash, and the log is what counts.
fn turn(member: Member, inputs: &Receiver<Input>) -> Option<End> {
    std::panic::catch_unwind(AssertUnwindSafe(|| member.run(inputs))).ok()
}

fn told(end: &End) -> String {
    match end {
        End::Disk(fault) => format!("the log cannot be written: {fault}; this member goes on when it can be"),
        End::Raft(error) => format!("this member has stopped: {error}; please report it"),
        End::Stopped => "this member is closed".to_owned(),
    }
}

/// Opens the log. After a failed write it is written anew as a whole, because it is unknown what of it is on the disk.
fn open(
    shared: &Shared,
    me: &str,
    directory: &MemberDirectory,
    failed: bool,
) -> Result<(u64, Log), StoreError> {
    let (identity, mut log) = shared.runtime.block_on(start(&shared.settings, me, directory))?;
    if failed {
        log.rewrite().map_err(|fault| StoreError::not_applied(STORE, told(&End::Disk(fault))))?;
    }
    let id = identity.id;
    // What was noted about others since it was loaded must not be lost.
    let known: &mut Option<Identity> = &mut lock(&shared.identity);
    known.get_or_insert(identity);
    Ok((id, log))
}

fn member(shared: &Arc<Shared>, id: u64, log: Log) -> Result<Member, StoreError> {
    Member::new(log, id, shared.clone()).map_err(|end| refuse(&told(&end)))
}

/// Tells every client that asks meanwhile what the trouble is; true if it is to stop.
fn wait(shared: &Shared, inputs: &Receiver<Input>) -> bool {
    let until = Instant::now() + PAUSE;
    loop {
        let input = inputs.recv_timeout(until.saturating_duration_since(Instant::now()));
        if input.is_ok() {
            shared.taken();
        }
        match input {
            Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
            Ok(Input::Ask(_, _, reply)) => {
                let (why, permanent) = shared.trouble().unwrap_or_default();
                let error = StoreError::not_applied(STORE, why);
                let _ = reply.send(Answer::Failed(error.permanent_if(permanent)));
            }
            Ok(_) => {}
        }
    }
}
