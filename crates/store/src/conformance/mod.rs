//! One test for each clause of the contracts of [`Store`](crate::Store) and
//! [`LivenessLocks`](crate::LivenessLocks), for stores of your own too.
//!
//! ```
//! use std::sync::Arc;
//! use tenure_store::{Memory, SharedStore};
//!
//! /// Yours would connect to a server.
//! struct Mine(Memory);
//!
//! #[async_trait::async_trait]
//! impl tenure_store::conformance::Harness for Mine {
//!     async fn open(&self) -> SharedStore {
//!         Arc::new(self.0.clone())
//!     }
//! }
//!
//! tenure_store::conformance!(Mine(Memory::new()));
//! # fn main() {
//! # let harness = Mine(Memory::new());
//! # tenure_store::conformance::run(tenure_store::conformance::w2_one_winner_per_version(&harness));
//! # }
//! ```
//!
//! makes one `#[test]` for each clause, so that a store cannot forget one. Every clause works in a random namespace
//! of its own; nothing is wiped. What a store can do is asked of
//! [`Store::describe`](crate::Store::describe). Nothing sleeps: waiting is for a signal, with a
//! generous limit that fails.

mod connections;
mod exchanges;
mod failure;
mod kit;
mod liveness;
mod reads;
mod signals;
mod writes;

pub use connections::*;
pub use exchanges::*;
pub use failure::*;
pub use liveness::*;
pub use reads::*;
pub use signals::*;
pub use writes::*;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::{LivenessLock, Name, SessionId, SharedStore};

/// How the suite gets at a store.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Another handle on the same store, as another process would have. Panics if there is none, and says why.
    async fn open(&self) -> SharedStore;

    /// Lets every client and the server die and come back, as far as the store's class promises to survive it. By
    /// default nothing dies but the handles, which the suite has closed by then.
    async fn restart(&self) {}

    /// Another process that holds the liveness lock of this session, and can be killed. A store whose processes hold
    /// liveness locks needs it.
    async fn holder(&self, _namespace: &Name, _session: SessionId) -> Option<Box<dyn Holder>> {
        None
    }

    /// A handle, and what drops its connections as a network or the server would, so that it has to open others. A store
    /// whose connections hold liveness locks needs it.
    async fn severable(&self) -> Option<(SharedStore, BoxFuture<'static, ()>)> {
        None
    }

    /// The longest value that the store takes, if the product behind it has less room than [`MAX_VALUE`](crate::MAX_VALUE).
    fn longest_value(&self) -> usize {
        crate::MAX_VALUE
    }

    /// What no message may show: passwords that the store was opened with.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A process that holds a liveness lock.
#[async_trait]
pub trait Holder: Send {
    /// What acquiring it gave.
    fn lock(&self) -> LivenessLock;

    /// Kills it, without a chance to clean up.
    async fn kill(self: Box<Self>);
}

/// Runs one clause to its end, on a runtime of its own.
///
/// # Panics
/// If the clause is broken.
pub fn run(clause: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime for one test").block_on(clause);
}

/// The names of all clauses.
pub const CLAUSES: &[&str] = crate::conformance!(@with __clause_names);

/// Makes one `#[test]` for each clause of the contract of a store. The argument is an expression that makes a
/// [`Harness`](crate::conformance::Harness), once for each test.
#[macro_export]
macro_rules! conformance {
    (@with $then:ident $($argument:tt)*) => {
        $crate::$then! { [$($argument)*]
            r1_reads_return_what_was_asked_for_and_exists
            r2_reads_return_only_what_was_committed
            r3_an_empty_query_returns_nothing
            w1_a_conflict_changes_nothing_and_shows_what_is_there
            w2_one_winner_per_version
            w3_items_of_a_batch_are_independent
            w4_versions_never_match_absence
            w5_roles_are_never_deleted
            w6_tokens_never_fall
            w7_versions_and_values_come_back_as_given
            w8_acknowledged_writes_survive
            w9_large_batches_and_values_fit
            x1_the_parts_of_an_exchange_are_independent
            x2_an_exchange_reads_what_was_there_when_it_was_asked
            x3_a_read_after_writes_misses_nothing_older
            f1_an_error_never_hides_what_happened
            f2_what_was_not_applied_never_comes_later
            f3_an_abandoned_operation_does_no_harm
            f4_a_closed_store_refuses_and_its_watches_end
            f5_secrets_are_never_shown
            s1_notifying_writes_are_signalled_and_beats_are_not
            s2_a_watch_that_missed_signals_says_so
            s3_signals_stay_in_their_namespace
            n1_namespaces_and_names_differ_by_every_byte
            e1_a_lock_is_held_once_acquired
            e2_evidence_comes_with_death_only
            e3_without_liveness_locks_nothing_is_acquired
            e4_a_lock_is_taken_once
            e5_writes_that_require_a_lock_need_it
            e6_evidence_comes_with_the_end_of_the_connection
            e7_strict_sessions_do_not_depend_on_connections
        }
    };
    ($harness:expr) => {
        $crate::conformance!(@with __clause_tests $harness);
    };
}

/// The names, as a slice of texts.
#[doc(hidden)]
#[macro_export]
macro_rules! __clause_names {
    ([] $($clause:ident)*) => { &[$(stringify!($clause)),*] };
}

/// One `#[test]` for each name.
#[doc(hidden)]
#[macro_export]
macro_rules! __clause_tests {
    ([$harness:expr] $($clause:ident)*) => { $(
        #[test]
        fn $clause() {
            let harness = $harness;
            $crate::conformance::run($crate::conformance::$clause(&harness));
        }
    )* };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers in the documentation of the trait and those of the suite are the same.
    #[test]
    fn every_clause_of_the_contract_has_its_test() {
        let documented: Vec<String> = [include_str!("../lib.rs"), include_str!("../liveness.rs")]
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| line.strip_prefix("/// - **")?.split_once("**"))
            .map(|(number, _)| number.to_lowercase())
            .collect();
        let tested: Vec<&str> = CLAUSES.iter().filter_map(|name| name.split('_').next()).collect();
        assert_eq!(documented, tested);
    }
}
