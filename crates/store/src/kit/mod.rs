//! What stores have in common: for those who write one.
//!
//! | module | gives |
//! |---|---|
//! | [`handle`] | the handle on a server: a store writes only how the server is asked |
//! | [`watches`] | signals to every open watch of a namespace |
//! | [`rules`] | the clauses that every write is checked against |
//! | [`batch`] | batches on products that are asked for one write at a time |
//! | [`registers`] | registers in a map, for stores that keep them in memory |
//! | [`packed`] | a register as one text, for stores that keep keys and values |
//! | [`paths`] | the name of a register as one text |
//! | [`thread`] | work on a thread of its own, that ends when the store is closed; waiting longer after each failure |
//! | [`connection`] | a connection that is opened anew when it breaks, and notices another server behind it |
//! | [`listener`] | a second connection, on which changes of others arrive |
//! | [`liveness`] | locks that connections hold, and those of others that are watched |
//! | [`params`] | parameters of URLs: timeouts, TLS |
//! | [`http`] | servers that speak JSON over HTTP: connections kept open, TLS, streams of lines |
//! | [`servers`] | several such servers, of which one is asked until it fails |
//! | [`socket`] | servers whose protocol the store speaks itself: one connection to one of several of them |
//! | [`hosts`] | servers as URLs name them |
//! | [`plaintext`] | what to say about connections that are not encrypted |
//! | [`hash`] | numbers of locks |
//! | [`crypto`] | the provider of cryptography |

pub mod batch;
pub mod connection;
#[cfg(feature = "tls")]
pub mod crypto;
pub mod handle;
pub mod hash;
pub mod hosts;
#[cfg(feature = "http")]
pub mod http;
pub mod listener;
pub mod liveness;
pub mod packed;
#[cfg(feature = "tls")]
pub mod params;
pub mod paths;
pub mod plaintext;
pub mod registers;
pub mod rules;
#[cfg(feature = "http")]
pub mod servers;
#[cfg(feature = "socket")]
pub mod socket;
pub mod thread;
pub mod watches;
