//! A batch of writes as transactions: one for each write, all of them inside one transaction.

use std::collections::BTreeSet;

use super::keys::Keys;
use super::messages::{Compare, Op, OpAnswer, Range, Txn, TxnAnswer};
use super::rows::Look;
use super::{STORE, connection};
use connection::{Effect, Members, path};
use tenure_store::kit::packed::{entry, pack, replaceable};
use tenure_store::kit::paths::register_path;
use tenure_store::kit::rules::{WriteDecision, decide, refused_outright};
use tenure_store::{Exchanged, Name, Outcome, Query, StoreError, Write};

/// Writes in one transaction. etcd takes 128 operations (`--max-txn-ops`), and counts with those of the outer transaction the
/// most that one inner transaction has, which is two.
const ITEMS: usize = 100;

/// Bytes of values in one transaction. etcd takes requests of 1.5 MiB (`--max-request-bytes`); one value has 1 MiB at most.
const BYTES: usize = 1 << 20;

/// Carries out a batch, transaction by transaction. What follows one that failed is not sent.
pub(super) async fn write(
    members: &Members,
    keys: &Keys,
    namespace: &Name,
    writes: &[Write],
) -> Vec<Outcome> {
    let mut outcomes: Vec<Option<Outcome>> =
        writes.iter().map(|write| refused_outright(STORE, write).map(Outcome::Failed)).collect();
    let sent: Vec<usize> = (0..writes.len()).filter(|nth| outcomes[*nth].is_none()).collect();
    let mut failed = None;
    for part in parts(writes, &sent) {
        let question = transaction(keys, namespace, part.iter().map(|nth| &writes[*nth]));
        let answer = match &failed {
            Some(error) => Err(not_sent(error)),
            None => {
                members
                    .ask_latest(Effect::Writes, path::TXN, &question, |answer: &TxnAnswer| answer.header)
                    .await
            }
        };
        let answer = answer.map(|answer| if part.len() == 1 { vec![answer] } else { inner(answer) });
        for (place, nth) in part.iter().enumerate() {
            outcomes[*nth] = Some(match &answer {
                Ok(answers) => {
                    answers.get(place).map_or_else(silent, |answer| outcome(&writes[*nth], answer))
                }
                Err(error) => Outcome::Failed(error.clone()),
            });
        }
        failed = failed.or(answer.err());
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(silent)).collect()
}

/// Carries out a small batch and then reads, in one transaction of which each write is one of its own. None: it does not fit in one.
pub(super) async fn write_then_read(
    members: &Members,
    keys: &Keys,
    namespace: &Name,
    writes: &[Write],
    query: &Query,
) -> Option<Exchanged> {
    let look = Look::new(keys, namespace, query);
    let plain = writes.iter().all(|write| refused_outright(STORE, write).is_none());
    let sent: Vec<usize> = (0..writes.len()).collect();
    let fits = parts(writes, &sent).len() == 1 && writes.len() + look.ranges.len() <= ITEMS;
    if !plain || !fits {
        return None;
    }
    let items = writes.iter().enumerate().map(|(place, write)| Op::Txn(item(keys, namespace, place, write)));
    let ranges = look.ranges.iter().cloned().map(Op::Range);
    let question = Txn { success: items.chain(ranges).collect(), ..Txn::default() };
    let answer =
        members.ask_latest(Effect::Writes, path::TXN, &question, |answer: &TxnAnswer| answer.header).await;
    let mut answers = match answer {
        Ok(answer) => answer.responses,
        Err(error) => return Some(Exchanged::failed(&error)),
    };
    if answers.len() != writes.len() + look.ranges.len() {
        let error = StoreError::unknown(STORE, "the server left parts of a question unanswered");
        return Some(Exchanged::failed(&error));
    }
    let found = look.found(answers.split_off(writes.len()));
    let told = answers.into_iter().map(|answer| answer.response_txn.unwrap_or_default());
    let outcomes = writes.iter().zip(told).map(|(write, answer)| outcome(write, &answer)).collect();
    Some(Exchanged { written: Ok(outcomes), read: Ok(found) })
}

/// Which writes go together: not too many, not too long, and none on the same key, which etcd refuses.
fn parts(writes: &[Write], sent: &[usize]) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let (mut there, mut bytes) = (BTreeSet::new(), 0);
    for nth in sent {
        let write = &writes[*nth];
        let length = write.put.as_ref().map_or(0, |(_, value)| value.json.len());
        let full = parts.last().is_none_or(|part| part.len() >= ITEMS);
        if full || bytes + length > BYTES || there.contains(&write.key) {
            parts.push(Vec::new());
            there.clear();
            bytes = 0;
        }
        there.insert(&write.key);
        bytes += length;
        parts.last_mut().expect("one was just begun").push(*nth);
    }
    parts
}

fn transaction<'a>(keys: &Keys, namespace: &Name, part: impl Iterator<Item = &'a Write>) -> Txn {
    let mut items: Vec<Txn> =
        part.enumerate().map(|(place, write)| item(keys, namespace, place, write)).collect();
    match items.len() {
        1 => items.remove(0),
        _ => Txn { success: items.into_iter().map(Op::Txn).collect(), ..Txn::default() },
    }
}

/// One compare-and-set. The version is what a packed value begins with, and the token comes next: two comparisons of texts
/// prove that the version is the expected one and that the token does not fall.
fn item(keys: &Keys, namespace: &Name, place: usize, write: &Write) -> Txn {
    let key = keys.register(namespace, &write.key);
    let token = write.put.as_ref().and_then(|(_, value)| value.token);
    let compare = match (write.expect, &write.put) {
        (None, _) => vec![Compare::absent(&key)],
        (Some(version), Some(_)) => Compare::between(&key, replaceable(version, token)).into(),
        (Some(version), None) => {
            Compare::between(&key, (format!("{version} "), format!("{version}!"))).into()
        }
    };
    let change = match (&write.put, write.expect) {
        (Some((version, value)), _) => {
            Some(Op::Put { key: key.as_str().into(), value: pack(*version, value).into(), lease: None })
        }
        (None, Some(_)) => Some(Op::Delete { key: key.as_str().into() }),
        (None, None) => None,
    };
    let notify = write.notify.then(|| Op::Put {
        key: keys.change(place).into(),
        value: register_path(namespace, &write.key).into(),
        lease: None,
    });
    Txn {
        compare,
        success: change.into_iter().chain(notify).collect(),
        failure: vec![Op::Range(Range::one(&key))],
    }
}

/// The answers to the transactions inside one.
fn inner(answer: TxnAnswer) -> Vec<TxnAnswer> {
    answer.responses.into_iter().map(|response| response.response_txn.unwrap_or_default()).collect()
}

fn outcome(write: &Write, answer: &TxnAnswer) -> Outcome {
    if answer.succeeded {
        return Outcome::Applied;
    }
    let [OpAnswer { response_range: Some(found), .. }] = &answer.responses[..] else { return silent() };
    let Some(there) = found.kvs.first() else { return Outcome::Conflict(None) };
    let there = entry(&write.key, &there.value.0);
    match decide(STORE, write, Some((there.version, there.value.token))) {
        WriteDecision::Refuse(why) => Outcome::Failed(why),
        WriteDecision::Conflict => Outcome::Conflict(Some(there)),
        // The comparison said no, and the content says yes: its token is not written as this version writes it.
        WriteDecision::Apply => Outcome::Failed(StoreError::not_applied(
            STORE,
            format!("{} was changed by another program: run `tenure repair`", write.key),
        )),
    }
}

fn not_sent(error: &StoreError) -> StoreError {
    StoreError::not_applied(
        STORE,
        format!("not sent, because the writes before it failed: {}", error.message()),
    )
}

fn silent() -> Outcome {
    Outcome::Failed(StoreError::unknown(STORE, "the server said nothing of this write"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::{Epoch, Key, Kind, Value, Version};

    fn write(name: &str, length: usize) -> Write {
        let value = Value { token: None, json: "x".repeat(length).into() };
        let key = Key::Named(Epoch::new(1), Kind::Node, Name::new(name).unwrap());
        Write { key, expect: None, put: Some((Version::new(1), value)), notify: true, requires_lock: false }
    }

    #[test]
    fn what_goes_together_is_neither_too_much_nor_twice_the_same() {
        let many: Vec<_> = (0..250).map(|nth| write(&format!("n{nth}"), 1)).collect();
        let sent: Vec<_> = (0..many.len()).collect();
        let lengths: Vec<_> = parts(&many, &sent).iter().map(Vec::len).collect();
        assert_eq!(lengths, [100, 100, 50]);
        let long = [write("a", 600_000), write("b", 600_000), write("c", 1)];
        assert_eq!(parts(&long, &[0, 1, 2]), [vec![0], vec![1, 2]]);
        let twice = [write("a", 1), write("b", 1), write("a", 1), write("b", 1)];
        assert_eq!(parts(&twice, &[0, 1, 2, 3]), [vec![0, 1], vec![2, 3]]);
    }
}
