//! The store: a set of linearizable compare-and-set registers, and nothing more.
//!
//! Safety is argued once, above this line, and not once per database: whatever keeps the clauses of [`Store`] can
//! carry elections. [`mod@conformance`] (a feature) has one test for each clause, for stores of your own too.
//!
//! A store depends on this crate, and on `tenure-core` for names, tokens and records: the contract is [`Store`], [`kit`] has what
//! stores of servers have in common, and [`Backend`] makes a store known by its URL.
//!
//! It runs on Linux, as all of Tenure does.

mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod entropy;
mod error;
mod guard;
pub mod kit;
mod layer;
mod liveness;
mod memory;
#[cfg(unix)]
pub mod trust;
mod value;

pub use backend::{Backend, OpenMode, Opening, ReadUrl, ServersInUrl, SetupRequest};
pub use error::{Retry, StoreError, with_causes};
pub use guard::{GuardBackend, GuardLock, Hold, OpenGuardLock, OpenedGuardLock, SharedGuardLock};
pub use kit::rules::{MAX_BATCH, MAX_VALUE};
pub use layer::Layer;
pub use liveness::LivenessLocks;
pub use memory::Memory;
pub use value::Value;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join;
use futures_util::stream::BoxStream;
pub use tenure_core::engine::Class;
pub use tenure_core::record::LivenessLock;
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

/// What [`Store::exchange`] or [`Store::write_then_read`] came to: each part as if it had been asked for alone.
#[derive(Debug)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Exchanged {
    pub written: Result<Vec<Outcome>, StoreError>,
    pub read: Result<Vec<Entry>, StoreError>,
}

impl Exchanged {
    /// Two operations at once, of which the write is begun first.
    pub async fn of_two(
        write: impl Future<Output = Result<Vec<Outcome>, StoreError>>,
        read: impl Future<Output = Result<Vec<Entry>, StoreError>>,
    ) -> Self {
        let (written, read) = join(write, read).await;
        Self { written, read }
    }

    /// A write, and once it is answered a read. If the write failed, nothing is read.
    pub async fn in_turn(
        write: impl Future<Output = Result<Vec<Outcome>, StoreError>>,
        read: impl Future<Output = Result<Vec<Entry>, StoreError>>,
    ) -> Self {
        match write.await {
            Ok(outcomes) => Self { written: Ok(outcomes), read: read.await },
            Err(error) => Self::failed(&error),
        }
    }

    /// Both parts failed in the same way.
    #[must_use]
    pub fn failed(error: &StoreError) -> Self {
        Self { written: Err(error.clone()), read: Err(error.clone()) }
    }
}

/// What a store tells without being asked.
#[derive(Debug, Clone)]
pub enum Signal {
    /// A register may have changed: read it. May be late, doubled, lost, or forged by any login that reaches the channel; so it
    /// says which register, and never what it holds.
    Changed(Key),
    /// Signals may have been missed.
    Resync,
    /// The store may have forgotten acknowledged writes: another server, an older state.
    Forgot,
    /// A process lives whose session, with this ttl, is not in these registers: the data was replaced under it.
    UnknownLease(std::time::Duration),
    /// Evidence that the owner of a session is gone.
    Evidence(Evidence),
}

/// What a store is, as it sees itself now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// What it can promise about acknowledged writes.
    pub class: Class,
    /// Which server or file this is; another identity means other data.
    pub identity: String,
    /// What it is, for people: product, version, place. Never a secret.
    pub about: String,
    /// Whether [`Store::watch`] tells of changes at once; otherwise they are found at the next beat.
    pub notifies: bool,
    /// Whether processes of this host hold liveness locks, so that others see them die.
    pub process_liveness_locks: bool,
    /// Whether connections hold liveness locks, so that others see them drop.
    pub connection_liveness_locks: bool,
    /// The file that it is kept in on this host, if it is kept in one.
    pub file: Option<PathBuf>,
    /// What is wrong with it, or weaker than it could be, each with what to do about it.
    pub remarks: Vec<String>,
}

impl Description {
    /// A store that notifies no other node, has no liveness locks, is in no file, and of which there is nothing to remark.
    pub fn new(class: Class, identity: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            class,
            identity: identity.into(),
            about: about.into(),
            notifies: false,
            process_liveness_locks: false,
            connection_liveness_locks: false,
            file: None,
            remarks: Vec::new(),
        }
    }
}

/// Linearizable compare-and-set registers, kept outside this process.
///
/// This is the least that a store must do; it is for those who write stores. Every operation names a *namespace*;
/// two namespaces never touch.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tenure_store::{Epoch, Key, Kind, Memory, Name, Outcome, Query, Store, Value, Version, Write};
///
/// let (store, namespace) = (Memory::new(), Name::new("default").unwrap());
/// let key = Key::Named(Epoch::new(1), Kind::History, Name::new("scheduler").unwrap());
///
/// // A version is a nonce that the writer draws. `expect: None` means: only if the register is absent.
/// let put = Some((Version::new(7), Value::of(&"hello", None)));
/// let write = Write { key: key.clone(), expect: None, put, notify: true, requires_lock: false };
/// let outcomes = store.write(&namespace, &[write.clone()]).await?;
/// assert!(matches!(outcomes[..], [Outcome::Applied]));
/// let outcomes = store.write(&namespace, &[write]).await?;
/// assert!(matches!(outcomes[..], [Outcome::Conflict(Some(_))]), "it is there already");
///
/// let found = store.read(&namespace, &Query { keys: vec![key], kinds: Vec::new() }).await?;
/// assert_eq!(found[0].version, Version::new(7));
/// # Ok::<(), tenure_store::StoreError>(()) }).unwrap();
/// ```
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
/// - **W9** A batch may have up to [`MAX_BATCH`] items, and values up to [`MAX_VALUE`] bytes, or fewer if the product has no
///   room for them; the store's page says how many. What is larger MUST be carried out too, or refused with
///   [`Fate::NotApplied`].
///
/// Exchanges
/// - **X1** Each part of [`Store::exchange`] and of [`Store::write_then_read`] has the outcome that it would have alone, by clauses R
///   and W: what becomes of the writes, a conflict or a refusal, MUST NOT keep the read from being answered, and an empty part is no
///   error. An error MAY be that of both parts.
/// - **X2** The read of [`Store::exchange`] MUST show what was there at some moment after the exchange was asked for. It MAY show the
///   registers that the exchange writes as they were before, or as they are after.
/// - **X3** The read of [`Store::write_then_read`] MUST show what was there at some moment after its writes were carried out, or fail:
///   its own applied writes, and whatever was committed before one of them was.
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
/// - **S1** If [`Description::notifies`], a committed write with `notify: true` MUST be signalled to every other open watch
///   of that namespace, normally at once, and not before a read would show it: as [`Signal::Changed`], or as
///   [`Signal::Resync`] if it was a deletion or one of very many. Several writes of one register MAY be signalled once, and
///   a watch MAY also signal this store's own writes. A write with `notify: false` MUST NOT cause a signal.
/// - **S2** A watch that may have missed signals MUST say [`Signal::Resync`]. A message that this store cannot have written
///   MUST NOT cause more than that, and SHOULD cause nothing; [`Signal::Forgot`], [`Signal::UnknownLease`] and [`Signal::Evidence`] MUST NOT follow
///   from what another login can send.
/// - **S3** Signals MUST NOT cross namespaces.
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

    /// Carries out some writes, and reads: a beat and the poll that goes with it. A store that can do so in one round trip should;
    /// this default sends both at once.
    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        Exchanged::of_two(self.write(namespace, writes), self.read(namespace, query)).await
    }

    /// Carries out some writes, and then reads: a claim and the look at what operators ask. A store that can do both in one round
    /// trip, in this order, should; this default sends the read when the write is answered.
    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        Exchanged::in_turn(self.write(namespace, writes), self.read(namespace, query)).await
    }

    /// Tells of changes, and of evidence, from the moment of this call until it is dropped.
    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal>;

    /// Its liveness locks, if it has any: clauses E1 to E7 are of that trait.
    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        None
    }

    /// The thread on which its connections live, if they have one of their own: a node that runs there waits for no other thread.
    fn thread(&self) -> Option<&kit::thread::ConnectionThread> {
        None
    }

    /// What this store is, as it sees itself now.
    async fn describe(&self) -> Result<Description, StoreError>;

    /// Lets go of every connection and watch. Liveness locks of this process that were not released stay held (E1).
    async fn close(&self);
}

/// A store shared by everything that uses it.
pub type SharedStore = Arc<dyn Store>;
