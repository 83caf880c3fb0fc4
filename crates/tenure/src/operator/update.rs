//! Changes of one register: read it, decide, compare-and-set, and again while other writers are faster.

use tenure_core::{Key, Version};

use super::{Operator, with_new_version};
use crate::Error;
use crate::store::{Entry, Outcome, Value, Write};

/// Other writers may change the same register: this often a change is tried on top of theirs.
const MAX_ATTEMPTS: usize = 20;

/// What becomes of a register, and what its caller gets.
pub(super) enum Update<T> {
    /// It stays as it is.
    Keep(T),
    /// It gets this content; none deletes it.
    Put(Option<Value>, T),
}

impl Operator {
    /// Changes a register on top of whatever it holds. `change` is called again if another writer was faster.
    pub(super) async fn update<T>(
        &self,
        key: Key,
        mut change: impl FnMut(Option<&Entry>) -> Update<T>,
    ) -> Result<T, Error> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self.read_one(key.clone()).await?;
            let (value, result) = match change(found.as_ref()) {
                Update::Keep(result) => return Ok(result),
                Update::Put(value, result) => (value, result),
            };
            if self.put(key.clone(), found.map(|entry| entry.version), value).await? {
                return Ok(result);
            }
        }
        Err(Error::Contended(key.to_string()))
    }

    /// One compare-and-set; false if another writer was faster.
    pub(super) async fn put(
        &self,
        key: Key,
        expect: Option<Version>,
        value: Option<Value>,
    ) -> Result<bool, Error> {
        let write =
            Write { key, expect, put: value.map(with_new_version), notify: true, requires_lock: false };
        match self.store.write(&self.namespace, &[write]).await?.pop() {
            Some(Outcome::Applied) => Ok(true),
            Some(Outcome::Failed(error)) => Err(error.into()),
            Some(Outcome::Conflict(_)) | None => Ok(false),
        }
    }
}
