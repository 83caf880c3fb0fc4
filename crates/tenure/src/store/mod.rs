//! The store: a set of linearizable compare-and-set registers, and nothing more.
//!
//! Safety is argued once, above this line, and not once per database: whatever keeps the clauses of [`Store`] can
//! carry elections. `tenure::conformance` (a feature) has one test for each clause, for stores of your own too.

#[cfg(any(feature = "mysql", feature = "redis"))]
mod crypto;
mod error;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod hash;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod hearing;
mod hub;
mod layer;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod link;
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod params;
#[cfg(feature = "peers")]
mod peers;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod registers;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod room;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;
mod url;
mod value;

pub use error::{Retry, StoreError};
pub use layer::Layer;
pub use memory::Memory;
#[cfg(feature = "mysql")]
pub use mysql::Mysql;
#[cfg(feature = "peers")]
pub use peers::{Group, Peers, Seat};
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use rules::{MAX_BATCH, MAX_VALUE};
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
pub use url::{check, look, open, visit};
pub use value::Value;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
pub use tenure_core::engine::Class;
pub use tenure_core::record::Witness;
pub use tenure_core::{Epoch, Evidence, Fate, Key, Kind, Name, Query, SessionId, Takeover, Version};

/// A register as it was found, its content not yet read.
pub type Entry = tenure_core::Entry<Value>;
/// One compare-and-set.
pub type Write = tenure_core::Write<Value>;

/// What became of one [`Write`] of a batch.
#[derive(Debug)]
pub enum Outcome {
    /// The register had the expected version and has the new value now.
    Applied,
    /// It had another version; nothing was changed. What it holds, or nothing if it is absent.
    Conflict(Option<Entry>),
    /// It failed; [`StoreError::fate`] says what may be assumed.
    Failed(StoreError),
}

/// What a store tells without being asked.
#[derive(Debug, Clone)]
pub enum Signal {
    /// A register may have changed to this. May be late, doubled or lost.
    Changed(Entry),
    /// Signals may have been missed.
    Resync,
    /// The store may have forgotten acknowledged writes: another server, an older state.
    Forgot,
    /// A witness saw something.
    Witnessed(Evidence),
}

/// What a store is, as it sees itself now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// What it can promise about acknowledged writes.
    pub class: Class,
    /// Which server or file this is; another identity means another memory.
    pub identity: String,
    /// What it is, for people: product, version, place. Never a secret.
    pub about: String,
    /// Whether [`Store::watch`] tells of changes at once; otherwise they are found at the next beat.
    pub rings: bool,
    /// Whether it can witness deaths on this host.
    pub witnesses_death: bool,
    /// Whether it can witness dropped connections.
    pub witnesses_disconnect: bool,
    /// What is wrong with it, or weaker than it could be, each with what to do about it.
    pub remarks: Vec<String>,
}

/// Linearizable compare-and-set registers, kept by somebody else.
///
/// This is the least that a store must do; it is for those who write stores. Every operation names a *namespace*;
/// two namespaces never touch.
///
/// # Contract
///
/// Reads
/// - **R1** A read MUST return every register of the query that exists, once, with the version and the very
///   bytes of one committed value; it MUST NOT return anything else. A key that is not returned is absent.
/// - **R2** A read MUST NOT return a value that was never committed, or that was rolled back. It MAY return an
///   older committed value only if the store is of [`Class::C`].
/// - **R3** An empty query returns nothing and is not an error.
///
/// Writes
/// - **W1** A write whose `expect` is not the current version MUST change nothing and MUST answer
///   [`Outcome::Conflict`] with what the register holds, or none if it is absent.
/// - **W2** Of many writes against one version, or against absence, exactly one MUST be applied.
/// - **W3** The items of a batch are independent: a conflict of one MUST NOT keep another from being applied. There
///   is one outcome for each item, in order.
/// - **W4** `expect: None` matches only absence; `expect: Some(v)` MUST NOT match absence, not even after the
///   register that had `v` was deleted.
/// - **W5** `put: None` deletes. Deleting a role register MUST be refused, with [`Outcome::Failed`] and
///   [`Fate::NotApplied`], or with a conflict if its version is another: tokens never go back.
/// - **W6** A write that lowers the token of a register, or takes it away, MUST be refused in the same way, whatever
///   version it expects.
/// - **W7** The version stored is the one given in `put`, bit for bit; the value comes back byte for byte.
/// - **W8** An acknowledged write MUST survive what [`Description::class`] promises: on class B the death of every
///   client and of the server.
/// - **W9** A batch may have up to [`MAX_BATCH`] items, and values up to [`MAX_VALUE`] bytes. What is larger MUST be
///   carried out too, or refused with [`Fate::NotApplied`].
///
/// Failure
/// - **F1** An error MUST carry [`Fate::Unknown`] unless it is proven that the write neither happened nor will.
/// - **F2** After [`Fate::NotApplied`] the write MUST NOT take effect later.
/// - **F3** Dropping the future of an operation abandons the answer, never half an operation; the store stays
///   usable.
/// - **F4** After [`Store::close`] every operation MUST fail at once with [`Fate::NotApplied`], and
///   [`Store::watch`] streams end, as they do when the store is dropped.
/// - **F5** No error, `Debug` or `Display` may show a secret.
///
/// Signals
/// - **S1** If [`Description::rings`], a committed write with `ring: true` MUST be signalled to every other open watch
///   of that namespace, normally at once: as [`Signal::Changed`], or as [`Signal::Resync`] if it was a deletion or
///   one of very many. Several writes of one register MAY be signalled as the last of them, and a watch MAY also
///   signal this store's own writes. A write with `ring: false` MUST NOT cause a signal.
/// - **S2** A watch that may have missed signals MUST say [`Signal::Resync`].
/// - **S3** Signals MUST NOT cross namespaces.
///
/// Witnesses
/// - **E1** [`Store::attest`] MUST have taken hold of the witness before it returns. A witness of death
///   ([`Description::witnesses_death`]) MUST be held until [`Store::release`] or the death of the process; neither
///   [`Store::close`] nor dropping the store lets go of it, because the work may still be running.
/// - **E2** After [`Store::attend`], [`Evidence::Dead`] MUST come once the holder died, and MUST NOT come while
///   anybody holds the witness. It need not come after [`Store::release`]. A witness that cannot be found, or is not
///   the one named, is no evidence.
/// - **E3** A store without witnesses answers `None` to `attest`, and nothing ever to `attend`.
///
/// Connections as witnesses ([`Description::witnesses_disconnect`]), for sessions that are
/// [`Takeover::OnDisconnect`]. The witness of a session is a lock that a connection holds for as long as it lives.
/// - **E4** The lock is taken once for each session id and never again: a second `attest`, also after the connection
///   was lost or the witness released, MUST NOT give a witness, on this handle or, while it is held, on another one.
/// - **E5** A write with [`Write::witnessed`] MUST be applied only if the connection that took the lock of the session
///   whose register it writes holds it still, proven in the same step as the compare-and-set. Otherwise it MUST
///   change nothing and answer [`Outcome::Failed`] with [`Fate::Severed`], whatever version it expects, and so MUST
///   every later one of that session. That the handle has another connection by then changes nothing.
/// - **E6** After [`Store::attend`], [`Evidence::Disconnected`] MUST come soon once the lock is free: the connection
///   was lost, the handle closed or the process killed; also if that was before `attend`. It MUST NOT come while the
///   lock is held, nor for a witness that is not the one named. **Once it has come, no witnessed write of that session
///   is begun that will ever be applied.** It need not come after [`Store::release`].
/// - **E7** A strict session pays for none of this: `attest` MAY answer `None` to it and `attend` MAY do nothing, and
///   a write that is not `witnessed` MUST NOT be refused because a lock was lost. What cannot keep E4 to E6 (a pooler
///   stands between) MUST answer `None`, and its description say why.
///
/// Namespaces
/// - **N1** Registers of one namespace are invisible in another, and names differ by every byte: `Node-A`,
///   `node-a` and `node-a.` are three.
#[async_trait]
pub trait Store: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Reads some registers by name, and all of some kinds.
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError>;

    /// Carries out some writes, each independent of the others.
    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError>;

    /// Tells of changes, and of what witnesses saw, from the moment of this call until it is dropped.
    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal>;

    /// Takes hold of a witness for a session of this process that is about to be opened, if there is any that is of use
    /// to a session of that kind.
    async fn attest(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<Witness>, StoreError>;

    /// Lets go of the witness of a session that is over.
    fn release(&self, namespace: &Name, session: SessionId);

    /// Tells, through every open watch of the namespace, when the witness of that session lets go. `takeover` is what
    /// its record says: to a strict session a dropped connection means nothing.
    fn attend(&self, namespace: &Name, session: SessionId, witness: &str, takeover: Takeover);

    /// Undoes [`Store::attend`]; evidence may still come.
    fn ignore(&self, namespace: &Name, session: SessionId);

    /// A duplicate of the descriptor by which this handle holds the witness of a session, if it holds it so. Whoever
    /// is given it holds the witness too: a watchdog, until the last child is reaped.
    fn witness_fd(&self, _namespace: &Name, _session: SessionId) -> Option<OwnedFd> {
        None
    }

    /// What this store is, as it sees itself now.
    async fn describe(&self) -> Result<Description, StoreError>;

    /// Lets go of every connection and watch. Witnesses that were not released stay held (E1).
    async fn close(&self);
}

/// A store shared by everything that uses it.
pub type SharedStore = Arc<dyn Store>;
