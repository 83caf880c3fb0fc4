//! What the tests of MySQL share: a private server, and SQL by hand.
#![allow(dead_code, unreachable_pub)]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Row};
use tenure::conformance::Harness;
use tenure::store::{Mysql, SharedStore};
use tenure_torture::servers::mysql::{DATABASE, Mysql as Server, PASSWORD, dialect};

/// A server of its own for each test.
pub struct OneServer(pub Mutex<Server>);

impl OneServer {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(settings: &[&str]) -> Self {
        Self(Mutex::new(Server::start(settings)))
    }

    pub fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.0.lock().expect("no test panicked with the server in hand")
    }

    pub fn url(&self) -> String {
        self.server().url("app")
    }

    pub fn store(&self) -> SharedStore {
        Arc::new(Mysql::open(&patient(&self.url())).expect("the URL can be read"))
    }

    /// A connection of the superuser, for SQL by hand.
    pub async fn admin(&self) -> Conn {
        let url = self.server().admin_url();
        connect(&url).await
    }
}

/// A URL with a generous timeout: a machine that has much else to do is no failure.
pub fn patient(url: &str) -> String {
    let more = if url.contains('?') { '&' } else { '?' };
    if url.contains("timeout=") { url.to_owned() } else { format!("{url}{more}timeout=20s") }
}

/// Runs a script as the superuser, in the client: a script may change its delimiter on the way, which only the client
/// understands.
pub fn run_script(server: &Server, script: &str) {
    let mut client = Command::new("mariadb")
        .args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root"])
        .arg(format!("--port={}", server.port()))
        .arg(DATABASE)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the client comes with mariadb-server");
    client.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
    assert!(client.wait().expect("it ends").success());
}

/// A connection for SQL by hand.
pub async fn connect(url: &str) -> Conn {
    Conn::new(Opts::from_url(url).expect("a URL")).await.expect("it connects")
}

/// What makes a server follow the one at that port.
pub fn replicate(port: u16) -> String {
    let (change, one) = dialect(("MASTER", "MASTER"), ("REPLICATION SOURCE", "SOURCE"));
    format!("CHANGE {change} TO {one}_HOST = '127.0.0.1', {one}_PORT = {port}, {one}_USER = 'root'")
}

/// Ends every connection of a user, and tells how many there were.
pub async fn kill_connections(admin: &mut Conn, user: &str) -> usize {
    let ids = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}'");
    let ids: Vec<u64> = admin.query(ids).await.expect("a list of connections");
    for id in &ids {
        let _ = admin.query_drop(format!("KILL {id}")).await;
    }
    ids.len()
}

/// The one row that a question has for an answer, as texts.
pub async fn row(admin: &mut Conn, ask: &str) -> Vec<Option<String>> {
    let row: Row = admin.query_first(ask).await.expect("an answer").expect("a row");
    (0..row.len()).map(|nth| row.get::<Option<String>, _>(nth).flatten()).collect()
}

#[async_trait]
impl Harness for OneServer {
    async fn open(&self) -> SharedStore {
        self.store()
    }

    async fn restart(&self) {
        self.server().crash_and_restart();
    }

    async fn severable(&self) -> Option<(SharedStore, BoxFuture<'static, ()>)> {
        let url = self.server().url("other");
        let admin = self.server().admin_url();
        let store = Arc::new(Mysql::open(&patient(&url)).expect("the URL can be read"));
        let cut = async move {
            kill_connections(&mut connect(&admin).await, "other").await;
        };
        Some((store, Box::pin(cut)))
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }
}
