//! What is kept about alerts: one register for each, so that the next leader that notifies people knows what was sent.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::{Key, Kind};

use super::Operator;
use super::update::Update;
use crate::store::{Entry, Value};
use crate::{Error, Name};

impl Operator {
    /// What is kept about every alert. What cannot be read is left out.
    pub async fn alerts<T: DeserializeOwned>(&self) -> Result<BTreeMap<Name, T>, Error> {
        let Some((_, found)) = self.read_kinds(&[Kind::Alert]).await? else { return Ok(BTreeMap::new()) };
        let read = |entry: Entry| match entry.key {
            Key::Named(_, _, name) => Some((name, entry.value.parse().ok()?)),
            _ => None,
        };
        Ok(found.into_iter().filter_map(read).collect())
    }

    /// Changes what is kept about an alert, on top of whatever that is. Returns what is kept afterwards; none if the
    /// change wants nothing to be written.
    pub async fn change_alert<T: Serialize + DeserializeOwned>(
        &self,
        alert: &Name,
        mut change: impl FnMut(Option<T>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let key = Key::Named(self.epoch_of(alert).await?, Kind::Alert, alert.clone());
        let changed = |found: Option<&Entry>| {
            let before = found.and_then(|entry| entry.value.parse::<T>().ok());
            match change(before) {
                Some(after) => Update::Put(Some(Value::of(&after, None)), Some(after)),
                None => Update::Keep(None),
            }
        };
        self.update(key, changed).await
    }
}
