//! What every store decides in the same way before it changes a register.

use tenure_core::Token;

use crate::{Kind, StoreError, Value, Version, Write};

/// The most writes in one batch.
pub const MAX_BATCH: usize = tenure_core::engine::BATCH;
/// The longest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;

/// What is to become of a write.
#[derive(Debug)]
pub enum WriteDecision {
    /// It is carried out.
    Apply,
    /// The register has another version.
    Conflict,
    /// No version would do.
    Refuse(StoreError),
}

/// Refuses a batch that no store has to carry.
pub fn check_batch(store: &'static str, writes: &[Write]) -> Result<(), StoreError> {
    if writes.len() <= MAX_BATCH {
        return Ok(());
    }
    let count = writes.len();
    Err(refusal(
        store,
        format!("a batch of {count} writes is too long: split it into batches of at most {MAX_BATCH}"),
    ))
}

/// Decides about one write, given the version and token that the register has now (none: it is absent). The version
/// is looked at first: a writer that is out of date learns what is there. A store whose connections hold liveness locks proves the
/// lock first, and asks here about the write without its flag; to the others no lock was ever taken.
#[must_use]
pub fn decide(
    store: &'static str,
    write: &Write,
    current: Option<(Version, Option<Token>)>,
) -> WriteDecision {
    if write.requires_lock {
        return WriteDecision::Refuse(StoreError::severed(store));
    }
    if write.expect != current.map(|(version, _)| version) {
        return WriteDecision::Conflict;
    }
    let token = current.and_then(|(_, token)| token);
    let key = &write.key;
    match &write.put {
        None if key.kind() == Kind::Role => WriteDecision::Refuse(refusal(
            store,
            format!("{key} cannot be deleted: its token must never go back; resign the role instead"),
        )),
        Some((_, value)) => match fault(value, token) {
            Some(why) => WriteDecision::Refuse(refusal(store, format!("{key} cannot be written: {why}"))),
            None => WriteDecision::Apply,
        },
        None => WriteDecision::Apply,
    }
}

/// Why a write can never be applied, whatever the register holds: too large a value or token, the deletion of a role. On a
/// server it would take the rest of its batch down with it, so that it is not sent.
#[must_use]
pub fn refused_outright(store: &'static str, write: &Write) -> Option<StoreError> {
    match decide(store, write, write.expect.map(|version| (version, None))) {
        WriteDecision::Refuse(why) => Some(why),
        WriteDecision::Apply | WriteDecision::Conflict => None,
    }
}

fn fault(value: &Value, current: Option<Token>) -> Option<String> {
    if value.json.len() > MAX_VALUE {
        return Some(format!("its value has {} bytes, and at most {MAX_VALUE} are kept", value.json.len()));
    }
    match (current, value.token) {
        (_, Some(token)) if token > Token::MAX => Some(format!("token {token} is beyond {}", Token::MAX)),
        (Some(old), Some(new)) if new < old => Some(format!("its token would go back from {old} to {new}")),
        (Some(old), None) => Some(format!("it would lose its token, {old}")),
        _ => None,
    }
}

fn refusal(store: &'static str, message: String) -> StoreError {
    StoreError::not_applied(store, message).permanent()
}
