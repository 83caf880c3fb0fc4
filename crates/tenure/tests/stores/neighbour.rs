//! A neighbour on the same server without any grant on our registers: what it can hear, and what it can do by telling
//! lies to every node that listens.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::postgres_kit::OneServer;
use crate::server_kit::{get, name, soon};
use async_trait::async_trait;
use futures_util::StreamExt;
use redis::AsyncCommands;
use tenure::store::{
    Entry, Epoch, Fate, Key, Kind, Layer, LivenessLocks as _, Outcome, Query, SessionId, SharedStore, Store,
    StoreError, Takeover, Value, Write, open,
};
use tenure::{Candidate, Name, Node, Token};
use tenure_torture::servers::{Server, redis as redis_server};
use tokio::sync::mpsc;

/// Reads of one beat that notifications may cause, if they tell nothing new; the engine has the same figure.
const HINTED: u64 = 8;
const FORGERIES: usize = 10_000;

/// A server with our registers and with another login on it.
#[async_trait]
trait Place: Sized {
    async fn start() -> Self;
    fn store(&self) -> SharedStore;
    /// What the neighbour has heard so far, on every channel it may listen to.
    fn heard(&mut self) -> Vec<String>;
    /// The neighbour says this to every node that listens. It is told where; it could not know.
    async fn shout(&self, payloads: Vec<String>);
    /// Lies about a register, in every form that any version of ours ever wrote or writes.
    fn forms(&self, entry: &Entry) -> Vec<String>;
}

struct OnPostgres {
    server: OneServer,
    /// What it listens to by itself, and where we tell each other of changes, as the test has told it.
    channels: Vec<String>,
    stranger: tokio_postgres::Client,
    heard: mpsc::UnboundedReceiver<String>,
}

#[async_trait]
impl Place for OnPostgres {
    async fn start() -> Self {
        let server = OneServer::new();
        server.admin().await.batch_execute("CREATE ROLE stranger LOGIN").await.unwrap();
        let url = server.server().url("stranger", "postgres");
        let (stranger, mut connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it may log in");
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut messages = futures_util::stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let tokio_postgres::AsyncMessage::Notification(told) = message {
                    let _ = tell.send(told.payload().to_owned());
                }
            }
        });
        stranger.batch_execute("LISTEN tenure").await.unwrap();
        server.store().describe().await.expect("the tables are made");
        let id = server.admin().await.query_one("SELECT id FROM tenure_schema", &[]).await.unwrap();
        let channels = vec!["tenure".to_owned(), format!("tenure_{}", id.get::<_, &str>(0))];
        assert!(stranger.query("SELECT id FROM tenure_schema", &[]).await.is_err(), "it has no grant");
        Self { server, channels, stranger, heard }
    }

    fn store(&self) -> SharedStore {
        self.server.store()
    }

    fn heard(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }

    async fn shout(&self, payloads: Vec<String>) {
        let notify = "SELECT pg_notify(channel, payload) FROM unnest($1::text[]) AS p (payload), unnest($2::text[]) AS c (channel)";
        self.stranger.execute(notify, &[&payloads, &self.channels]).await.expect("every login may notify");
    }

    fn forms(&self, Entry { key, version, value }: &Entry) -> Vec<String> {
        let place = format!("default\n{}\n{}\n{}", key.epoch().get(), key.kind().as_str(), key.name());
        let token = value.token.map(|token| token.to_string()).unwrap_or_default();
        vec![format!("{place}\n{version}\n{token}\n{}", value.json), place]
    }
}

struct OnRedis {
    server: Server,
    stranger: redis::aio::MultiplexedConnection,
    heard: mpsc::UnboundedReceiver<String>,
}

#[async_trait]
impl Place for OnRedis {
    async fn start() -> Self {
        let server = redis_server::durable();
        let rights = ["ACL", "SETUSER", "stranger", "on", ">lies", "allchannels", "+publish", "+psubscribe"];
        redis_server::command(server.address(), &rights);
        let client = redis::Client::open(format!("redis://stranger:lies@{}/", server.address())).unwrap();
        let mut ear = client.get_async_pubsub().await.expect("it may log in");
        ear.psubscribe("*").await.expect("it may listen");
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut messages = ear.into_on_message();
            while let Some(message) = messages.next().await {
                let _ = tell.send(message.get_payload().unwrap_or_default());
            }
        });
        let stranger = client.get_multiplexed_async_connection().await.expect("it may log in");
        Self { server, stranger, heard }
    }

    fn store(&self) -> SharedStore {
        open(&format!("redis://{}/0", self.server.address())).unwrap()
    }

    fn heard(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }

    async fn shout(&self, payloads: Vec<String>) {
        let mut stranger = self.stranger.clone();
        for payload in payloads {
            stranger.publish::<_, _, ()>("tenure:{default}", payload).await.expect("it may publish");
        }
    }

    fn forms(&self, Entry { key, version, value }: &Entry) -> Vec<String> {
        let place =
            format!("tenure:{{default}}:{}:{} {}", key.epoch().get(), key.kind().as_str(), key.name());
        let token = value.token.map_or("-".repeat(16), |token| format!("{:016}", token.get()));
        vec![format!("{place} {version} {token} {}", value.json), place]
    }
}

/// Counts reads, and beats.
#[derive(Debug)]
struct Counted {
    inner: SharedStore,
    reads: AtomicU64,
    beats: AtomicU64,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Counted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let beats = writes.iter().filter(|write| write.key.kind() == Kind::Session).count();
        self.beats.fetch_add(beats as u64, Ordering::Relaxed);
        self.inner.write(namespace, writes).await
    }
}

/// A leader and a standby of the role `job`, and the standby's store.
struct Stage {
    leader: Candidate,
    standby: Candidate,
    nodes: [Node; 2],
    counted: Arc<Counted>,
    token: Token,
}

async fn stage(place: &impl Place) -> (Stage, tenure::Tenure) {
    let first = Node::builder_with_store(place.store()).name("first").start().await.unwrap();
    let leader = first.candidate("job").await.unwrap();
    let tenure = soon(leader.elected()).await.expect("it is elected");
    let counted = Counted { inner: place.store(), reads: AtomicU64::new(0), beats: AtomicU64::new(0) };
    let counted = Arc::new(counted);
    let second = Node::builder_with_store(counted.clone()).name("second").start().await.unwrap();
    let standby = second.candidate("job").await.unwrap();
    let token = tenure.token();
    knows(&standby, token).await;
    (Stage { leader, standby, nodes: [first, second], counted, token }, tenure)
}

async fn knows(candidate: &Candidate, token: Token) {
    let known = async {
        while candidate.leader().is_none_or(|leader| leader.token != token) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(known).await;
}

impl Stage {
    /// Waits until the standby has taken in whatever was shouted before: what is told later is known.
    async fn taken_in(&self, role: &str) {
        let other = self.nodes[0].candidate(role).await.unwrap();
        let observer = self.nodes[1].observer(role).await.unwrap();
        let tenure = soon(other.elected()).await.expect("no other node campaigns for it");
        let known = async {
            while observer.leader().is_none_or(|leader| leader.token != tenure.token()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(known).await;
    }

    async fn register(&self) -> Entry {
        let store = &self.counted.inner;
        let cluster = get(&**store, &name("default"), &Key::Cluster).await.unwrap();
        let cluster: serde_json::Value = serde_json::from_str(&cluster.value.json).unwrap();
        let epoch = Epoch::new(cluster["epoch"].as_u64().unwrap());
        let key = Key::Named(epoch, Kind::Role, name("job"));
        get(&**store, &name("default"), &key).await.unwrap()
    }
}

/// The register as it is not: with another token, and held by no session or by one that there is not.
fn forged(real: &Entry, token: u64, holder: serde_json::Value) -> Entry {
    let mut record: serde_json::Value = serde_json::from_str(&real.value.json).unwrap();
    record["token"] = token.into();
    record["holder"] = holder;
    Entry { value: Value::of(&record, Some(Token::new(token))), ..real.clone() }
}

/// It heard every register that is notified, and so learnt the version of a role's register.
async fn hears_no_content<P: Place>() {
    let mut place = P::start().await;
    let (stage, tenure) = stage(&place).await;
    stage.taken_in("other").await;
    stage.leader.set_eligible(false);
    drop(tenure);
    let tenure = soon(stage.standby.elected()).await.expect("the standby follows");
    let register = stage.register().await;
    // Whatever was notified before arrives before this.
    place.shout(vec!["the end".to_owned()]).await;
    let mut heard = place.heard();
    let ended = async {
        while !heard.iter().any(|payload| payload == "the end") {
            tokio::time::sleep(Duration::from_millis(5)).await;
            heard.extend(place.heard());
        }
    };
    soon(ended).await;
    for payload in &heard {
        assert!(!payload.contains(&register.version.to_string()), "a version: {payload}");
        assert!(!payload.contains('"'), "content: {payload}");
    }
    drop(tenure);
}

/// The version is the real one, the content is not: a compare-and-set on it would succeed.
async fn deposes_no_leader<P: Place>() {
    let place = P::start().await;
    let (stage, tenure) = stage(&place).await;
    let real = stage.register().await;
    let stranger = serde_json::json!({"session": "00000000000000000000000000000007", "node": "missing"});
    let unknown =
        Entry { version: tenure::store::Version::new(7), ..forged(&real, stage.token.get() + 1, stranger) };
    let vacant = forged(&real, Token::MAX.get() - 3, serde_json::Value::Null);
    for lie in [unknown, vacant] {
        place.shout(place.forms(&lie)).await;
    }
    stage.taken_in("other").await;
    assert!(tenure.check(), "the leader leads");
    assert_eq!(stage.register().await.version, real.version, "no node touched its register");
    stage.leader.set_eligible(false);
    drop(tenure);
    let next = soon(stage.standby.elected()).await.expect("the standby follows");
    assert_eq!(next.token(), Token::new(stage.token.get() + 1), "the forged token was learnt by no node");
}

/// Registers that there are and that there are not, of every kind, again and again.
async fn a_flood_costs_few_reads<P: Place>() {
    let place = P::start().await;
    let (stage, tenure) = stage(&place).await;
    let real = stage.register().await;
    let holder: serde_json::Value = serde_json::from_str(&real.value.json).unwrap();
    let session = holder["holder"]["session"].as_str().unwrap();
    let keys = |nth: usize| {
        let epoch = real.key.epoch();
        match nth % 4 {
            0 => real.key.clone(),
            1 => Key::from_parts(epoch, Kind::Session, session).unwrap(),
            2 => Key::from_parts(epoch, Kind::Session, &format!("{nth:032x}")).unwrap(),
            _ => Key::Named(epoch, Kind::RoleControl, name("job")),
        }
    };
    let count = || {
        let Counted { reads, beats, .. } = &*stage.counted;
        (reads.load(Ordering::Relaxed), beats.load(Ordering::Relaxed))
    };
    let before = count();
    for hundred in 0..FORGERIES / 100 {
        for nth in hundred * 100..(hundred + 1) * 100 {
            let lie = Entry { key: keys(nth), ..real.clone() };
            place.shout(place.forms(&lie)).await;
        }
    }
    let after = count();
    let (reads, beats) = (after.0 - before.0, after.1 - before.1);
    let most = (beats + 2) * (1 + HINTED) + HINTED;
    assert!(reads <= most, "{reads} reads in {beats} beats");
    // A hand-over under it costs a beat more at most, and no more than that.
    stage.leader.set_eligible(false);
    drop(tenure);
    let next = soon(stage.standby.elected()).await.expect("the standby follows");
    assert_eq!(next.token(), Token::new(stage.token.get() + 1));
}

macro_rules! neighbour {
    ($($module:ident: $place:ty),*) => { $(
        mod $module {
            #[tokio::test]
            async fn a_neighbour_hears_no_content() {
                super::hears_no_content::<$place>().await;
            }

            #[tokio::test]
            async fn a_neighbour_deposes_no_leader_and_raises_no_token() {
                super::deposes_no_leader::<$place>().await;
            }

            #[tokio::test]
            async fn a_flood_of_forged_notifications_costs_few_reads() {
                super::a_flood_costs_few_reads::<$place>().await;
            }
        }
    )* };
}

neighbour!(on_postgres: super::OnPostgres, on_redis: super::OnRedis);

/// A PostgreSQL server with our tables, a login with our grants, and a stranger who has a schema of its own.
async fn two_schemas() -> (OneServer, String, tokio_postgres::Client) {
    let server = OneServer::new();
    server.store().describe().await.expect("the tables are made");
    let setup = "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON tenure_registers TO app;
        GRANT SELECT ON tenure_schema, tenure_leaders TO app; CREATE ROLE stranger LOGIN;
        CREATE SCHEMA stranger AUTHORIZATION stranger";
    server.admin().await.batch_execute(setup).await.unwrap();
    let [app, stranger] = ["app", "stranger"].map(|login| server.server().url(login, "postgres"));
    let stranger = crate::postgres_kit::sql(&stranger).await;
    (server, app, stranger)
}

/// It made a table of our name in its own schema, for every login to see, and no node could start again: "in several
/// schemas: say which".
#[tokio::test]
async fn a_neighbours_tables_of_our_names_stop_no_node() {
    let (server, app, stranger) = two_schemas().await;
    let decoy =
        "CREATE TABLE stranger.tenure_schema AS SELECT true AS one, 1 AS version, 'decoy'::text AS id;
        GRANT USAGE ON SCHEMA stranger TO PUBLIC; GRANT SELECT ON stranger.tenure_schema TO PUBLIC";
    let before = server.store().describe().await.unwrap().identity;
    stranger.batch_execute(decoy).await.unwrap();
    for url in [app, server.url()] {
        let after = open(&url).unwrap().describe().await.expect("it is our own that counts");
        assert_eq!(after.identity, before, "{url}");
    }
}

/// The lock under which nodes make their tables has a number that every login can know: a login that held it kept the first
/// node from starting, for ever.
#[tokio::test]
async fn a_neighbour_keeps_no_node_from_making_the_tables() {
    let server = OneServer::new();
    server.admin().await.batch_execute("CREATE ROLE stranger LOGIN").await.unwrap();
    let stranger = server.server().url("stranger", "postgres");
    let stranger = crate::postgres_kit::sql(&stranger).await;
    stranger.batch_execute(&format!("SELECT pg_advisory_lock({})", 0x66b5_1047_2736_f6f3_i64)).await.unwrap();
    let (one, other) = (server.store(), server.store());
    let (one, other) = soon(async { tokio::join!(works(&*one), works(&*other)) }).await;
    assert_eq!(one, other, "one memory");
}

/// Eight nodes that used a database first at the same moment, and could not wait for their turn, disturbed each other in the
/// catalog: some of their first operations failed ("tuple concurrently updated").
#[tokio::test]
async fn nodes_that_make_the_tables_at_once_all_find_them() {
    let server = OneServer::new();
    let hold = format!("SELECT pg_advisory_lock({})", 0x66b5_1047_2736_f6f3_i64);
    let holder = server.admin().await;
    holder.batch_execute(&hold).await.unwrap();
    let nodes: Vec<SharedStore> = (0..8).map(|_| server.store()).collect();
    let first_uses = nodes.iter().map(|node| node.describe());
    let described = soon(futures_util::future::join_all(first_uses)).await;
    let identities: Vec<String> =
        described.into_iter().map(|one| one.expect("its first use").identity).collect();
    assert!(identities.iter().all(|identity| *identity == identities[0]), "one memory: {identities:?}");
}

/// The identity of a store, once it can be asked.
async fn works(store: &dyn Store) -> String {
    crate::server_kit::until_it_works(store).await;
    store.describe().await.expect("it works").identity
}

/// Every login sees which advisory locks are held, and may wait for them. One that proved a connection of a node to be there
/// proved it on when that was gone and the stranger had the lock; and since it could let go of it for a moment, others took
/// the session for lost while its owner went on.
#[tokio::test]
async fn a_lock_that_a_neighbour_took_proves_no_connection() {
    let (server, app, stranger) = two_schemas().await;
    let (admin, store, space) = (server.admin().await, open(&app).unwrap(), name("locks"));
    let session = SessionId::new(7);
    let key = Key::Session(Epoch::new(5), session);
    store.liveness().acquire_lock(&space, session, Takeover::OnDisconnect).await.unwrap().expect("a lock");
    let beat = |expect| Write { requires_lock: true, ..crate::server_kit::put(&key, expect, "beat") };
    let first = crate::server_kit::must(&*store, &space, beat(None)).await;
    let held = "SELECT (classid::bigint << 32) | objid::bigint, pid FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'";
    let lock = stranger.query_one(held, &[]).await.expect("every login sees it");
    let (number, owner): (i64, i32) = (lock.get(0), lock.get(1));
    let wait = async { stranger.batch_execute(&format!("SELECT pg_advisory_lock({number})")).await.unwrap() };
    let cut = async {
        let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        while admin.query(waits, &[]).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        admin.query_one("SELECT pg_terminate_backend($1)", &[&owner]).await.unwrap();
    };
    soon(async { tokio::join!(wait, cut) }).await;
    let next = store.write(&space, &[beat(Some(crate::server_kit::version(&first)))]).await.unwrap();
    assert!(matches!(&next[..], [Outcome::Failed(error)] if error.fate() == Fate::Severed), "{next:?}");
}
