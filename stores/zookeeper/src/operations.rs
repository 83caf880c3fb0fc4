//! The connection for everything, transactions on it, and the tokens of versions that were seen.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tenure_core::Token;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::ZooKeeperConnection;
use super::error::{self, code};
use super::keys::{Keys, parent};
use super::settings::ZooKeeperSettings;
use super::wire::{ANY, Answer, FailedStep, LONGEST_QUESTION, Question, Reply, Step, op, rights};
use super::{PRODUCT, STORE};
use tenure_store::kit::connection::{ManagedConnection, OpenedConnection, ServerAddress};
use tenure_store::kit::socket::ServersInTurn;
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Key, Signal, StoreError, Version};

/// Registers whose token is remembered; more than any node works with at once.
const REMEMBERED: usize = 50_000;

/// The operations of one handle.
#[derive(Debug)]
pub(super) struct Operations {
    pub(super) settings: Arc<ZooKeeperSettings>,
    pub(super) keys: Keys,
    managed: ManagedConnection<ZooKeeperConnection>,
    watches: Arc<Watches>,
    /// The rights of the znode at the top, which everything that is made gets; none if it is not there.
    rights: Arc<Mutex<Option<Bytes>>>,
    /// What registers were last seen to hold. A version has one token for ever, so that this need not be up to date.
    known: Mutex<HashMap<String, (Version, Option<Token>)>>,
    /// The registers of each kind, by the path of the kind, that were there when they were last listed: what to ask for together
    /// with the next list.
    listed: Mutex<HashMap<String, Vec<Key>>>,
    /// The last transaction that this handle knows of.
    highest: AtomicI64,
}

/// A change that was sent, and the last transaction that was known before.
pub(super) struct SentChange {
    before: i64,
    reply: oneshot::Receiver<Reply>,
}

impl Operations {
    /// The operations, and what keeps their connection open until dropped.
    pub(super) fn new(
        settings: Arc<ZooKeeperSettings>,
        watches: Arc<Watches>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let keys = Keys::new(&settings.root);
        let server = ServerAddress { store: STORE, name: settings.to_string(), patience: settings.timeout };
        let rights = Arc::<Mutex<Option<Bytes>>>::default();
        let turn =
            ServersInTurn::new(PRODUCT, settings.servers.clone(), settings.timeout, settings.suspicion());
        let opening = Arc::new((settings.clone(), keys.clone(), rights.clone(), turn));
        let open = move || {
            let opening = opening.clone();
            async move {
                let (settings, keys, rights, turn) = &*opening;
                turn.open(|server| use_server(settings, keys, rights, server)).await
            }
        };
        let (managed, keep) = ManagedConnection::new(server, watches.clone(), open);
        let (known, listed, highest) = (Mutex::default(), Mutex::default(), AtomicI64::new(0));
        (Self { settings, keys, managed, watches, rights, known, listed, highest }, keep)
    }

    /// Until when an operation that begins now may take.
    pub(super) fn until(&self) -> Instant {
        self.managed.until()
    }

    /// The open connection; if there is none, nothing was sent.
    pub(super) async fn connection(&self, until: Instant) -> Result<Arc<ZooKeeperConnection>, StoreError> {
        self.managed.reached(until, self.managed.connection()).await
    }

    /// The answer to a question. A server that says nothing is asked whether it is there.
    pub(super) async fn answer(
        &self,
        connection: &Arc<ZooKeeperConnection>,
        reply: oneshot::Receiver<Reply>,
        until: Instant,
    ) -> Result<Reply, StoreError> {
        let reply = async { reply.await.ok() };
        let answer = connection.link.answer(reply, self.settings.suspicion(), until).await;
        answer.map_err(|unanswered| unanswered.error)
    }

    /// Carries out steps, all or none of them.
    pub(super) async fn transaction(
        &self,
        connection: &Arc<ZooKeeperConnection>,
        steps: &[Step],
        until: Instant,
    ) -> Result<Result<(), FailedStep>, StoreError> {
        let sent = self.send_transaction(connection, steps)?;
        self.outcome(connection, sent, until).await
    }

    /// What became of the steps that [were sent](Self::send_transaction).
    pub(super) async fn outcome(
        &self,
        connection: &Arc<ZooKeeperConnection>,
        sent: SentChange,
        until: Instant,
    ) -> Result<Result<(), FailedStep>, StoreError> {
        let reply = self.reply(connection, sent, until).await?;
        match Answer::new(reply.body).transaction() {
            Ok(done) => Ok(done),
            Err(_) if reply.code != code::OK => Err(error::of_code(&connection.link.place, reply.code)),
            Err(_) => Err(PRODUCT.strange(&connection.link.place)),
        }
    }

    /// Sends steps of which all are carried out or none.
    pub(super) fn send_transaction(
        &self,
        connection: &ZooKeeperConnection,
        steps: &[Step],
    ) -> Result<SentChange, StoreError> {
        self.send(connection, Question::transaction(steps, &self.rights()))
    }

    /// Makes a znode, and those that it is in.
    pub(super) async fn make(
        &self,
        connection: &Arc<ZooKeeperConnection>,
        path: &str,
        until: Instant,
    ) -> Result<(), StoreError> {
        let mut missing = vec![path];
        while let Some(path) = missing.last() {
            if *path == self.keys.root && !self.settings.create {
                return Err(unused(&self.settings));
            }
            let question = Question::new(op::CREATE).create(path, "", &self.rights());
            let sent = self.send(connection, question)?;
            match (self.reply(connection, sent, until).await?.code, parent(path)) {
                (code::OK | code::NODE_EXISTS, _) => drop(missing.pop()),
                (code::NO_NODE, Some(parent)) => missing.push(parent),
                (code, _) => return Err(error::of_code(&connection.link.place, code)),
            }
        }
        Ok(())
    }

    /// Asks for a change. What is asked after it on the same connection is answered from a state that has everything that was
    /// acknowledged before.
    fn send(&self, connection: &ZooKeeperConnection, question: Question) -> Result<SentChange, StoreError> {
        if question.len() > LONGEST_QUESTION {
            return Err(error::too_long());
        }
        let before = self.highest.load(Ordering::Acquire);
        Ok(SentChange { before, reply: connection.ask(question) })
    }

    /// The answer to a change, if it comes from where the others came from.
    async fn reply(
        &self,
        connection: &Arc<ZooKeeperConnection>,
        sent: SentChange,
        until: Instant,
    ) -> Result<Reply, StoreError> {
        let reply = self.answer(connection, sent.reply, until).await?;
        self.acknowledged(sent.before, &reply)?;
        Ok(reply)
    }

    /// Sends a write of nothing, before questions that follow no other. They count once it [has passed](Self::passed).
    pub(super) fn barrier(&self, connection: &ZooKeeperConnection) -> Result<SentChange, StoreError> {
        self.send(connection, Question::about(op::SET_DATA, &self.keys.root).text("").int(ANY))
    }

    /// Waits until a majority has a barrier. What a client may not write, and what is not there, is refused by a majority too.
    pub(super) async fn passed(
        &self,
        connection: &Arc<ZooKeeperConnection>,
        barrier: SentChange,
        until: Instant,
    ) -> Result<(), StoreError> {
        let reply = self.reply(connection, barrier, until).await?;
        match reply.code {
            code::OK | code::NO_NODE | code::NO_RIGHTS => Ok(()),
            code => Err(error::of_code(&connection.link.place, code)),
        }
    }

    /// Transactions are numbered upwards, those too that change nothing: one that is not above what was known before it was asked
    /// for comes from other data.
    fn acknowledged(&self, before: i64, reply: &Reply) -> Result<(), StoreError> {
        use code::{BAD_VERSION, NO_NODE, NO_RIGHTS, NODE_EXISTS, NOT_EMPTY, OK};
        if ![OK, NO_NODE, NO_RIGHTS, BAD_VERSION, NODE_EXISTS, NOT_EMPTY].contains(&reply.code) {
            return Ok(());
        }
        if reply.zxid > before {
            self.highest.fetch_max(reply.zxid, Ordering::AcqRel);
            return Ok(());
        }
        self.highest.store(reply.zxid, Ordering::Release);
        self.watches.send_all(&Signal::Forgot);
        let message = "the servers have an older state than before: look whether it was written";
        Err(StoreError::unknown(STORE, message))
    }

    /// The rights of what is made now.
    fn rights(&self) -> Bytes {
        lock(&self.rights).clone().unwrap_or_else(|| self.settings.own_rights())
    }

    /// What a register was last seen to hold.
    pub(super) fn recall(&self, path: &str) -> Option<(Version, Option<Token>)> {
        lock(&self.known).get(path).copied()
    }

    /// The registers of a kind that were there when they were last listed.
    pub(super) fn listed(&self, place: &str) -> Vec<Key> {
        lock(&self.listed).get(place).cloned().unwrap_or_default()
    }

    pub(super) fn remember_listed(&self, place: String, keys: Vec<Key>) {
        lock(&self.listed).insert(place, keys);
    }

    /// What a register was seen to hold.
    pub(super) fn remember(&self, path: &str, content: Option<(Version, Option<Token>)>) {
        let mut known = lock(&self.known);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        match content {
            Some(content) => drop(known.insert(path.to_owned(), content)),
            None => drop(known.remove(path)),
        }
    }
}

impl ZooKeeperSettings {
    /// The rights of what is made where nothing is: for this login alone, or for all if there is none.
    fn own_rights(&self) -> Bytes {
        if self.login.is_some() { rights("auth", "") } else { rights("world", "anyone") }
    }
}

fn unused(settings: &ZooKeeperSettings) -> StoreError {
    StoreError::unused(STORE, &format!("there is no znode {} at {settings}", settings.root))
}

/// Opens a connection, and looks which rights the znode at the top has.
async fn use_server(
    settings: &ZooKeeperSettings,
    keys: &Keys,
    rights: &Mutex<Option<Bytes>>,
    server: (String, u16),
) -> Result<OpenedConnection<ZooKeeperConnection>, StoreError> {
    let (connection, mut work) = ZooKeeperConnection::open(settings, &server).await?;
    let hung_up = || PRODUCT.unreachable(&connection.link.place, "it hung up");
    let asked = connection.ask(Question::about(op::GET_ACL, &keys.root));
    let reply = tokio::select! {
        reply = asked => reply.map_err(|_| hung_up())?,
        () = &mut work => return Err(hung_up()),
    };
    let found = match reply.code {
        code::OK => {
            Some(Answer::new(reply.body).acl().map_err(|_| PRODUCT.stranger(&connection.link.place))?)
        }
        code::NO_NODE if settings.create => None,
        code::NO_NODE => return Err(unused(settings)),
        code => return Err(error::of_code(&connection.link.place, code).only_looked()),
    };
    *lock(rights) = found;
    Ok((connection, work))
}
