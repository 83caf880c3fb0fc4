//! Batches on products that are asked for one write at a time.

use std::collections::BTreeMap;
use std::future::Future;

use futures_util::{StreamExt as _, stream};

use super::rules::refused_outright;
use crate::{Key, Outcome, StoreError, Write};

/// Carries out a batch: writes of different registers beside each other, so many at once, those of one register one after the
/// other. `send` is not asked for what is refused outright.
pub async fn write_each<'a, F>(
    store: &'static str,
    at_once: usize,
    writes: &'a [Write],
    send: impl Fn(&'a Write) -> F,
) -> Vec<Outcome>
where
    F: Future<Output = Result<Outcome, StoreError>>,
{
    let mut registers: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
    for (nth, write) in writes.iter().enumerate() {
        registers.entry(&write.key).or_default().push(nth);
    }
    let send = &send;
    let one = |same: Vec<usize>| async move {
        let mut outcomes = Vec::with_capacity(same.len());
        for nth in same {
            let outcome = match refused_outright(store, &writes[nth]) {
                Some(why) => Err(why),
                None => send(&writes[nth]).await,
            };
            outcomes.push((nth, outcome.unwrap_or_else(Outcome::Failed)));
        }
        outcomes
    };
    let each: Vec<_> = registers.into_values().map(one).collect();
    let mut outcomes = stream::iter(each).buffer_unordered(at_once).concat().await;
    outcomes.sort_unstable_by_key(|(nth, _)| *nth);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}
