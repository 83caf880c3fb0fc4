//! Whether what was seen of a compare-and-set register can have been one register.
//!
//! One property, two procedures, because each can do what the other cannot:
//!
//! | | [`chain`] | [`search`] |
//! |---|---|---|
//! | needs | unique versions, no deletion | nothing |
//! | cost | one pass, for 50 000 operations | a search, for short histories |
//! | a violation | names the two operations that contradict each other, and when | is the history itself |
//!
//! The judge of a torture uses the chain; the tests of peers, which delete registers, use the search. A test gives both the
//! same histories.

pub mod chain;
pub mod lost;
pub mod search;

#[cfg(test)]
mod tests;
