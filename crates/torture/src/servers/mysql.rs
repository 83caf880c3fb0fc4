//! MariaDB, private to a test.
//!
//! A prepared data directory is kept beside the test programs and copied.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Signal, getuid};
use tempfile::TempDir;

use super::{Server, copy, free_port, program, run, scratch};

const PACKAGE: &str = "mariadb-server";

/// The database that tests use; it is empty.
pub const DATABASE: &str = "tenure_test";

/// Users who may do everything in that database and nothing else; their password is [`PASSWORD`].
pub const USERS: [&str; 2] = ["app", "other"];

/// Never to be seen in any message.
pub const PASSWORD: &str = "hunter2";

/// Small, so that it is copied and started in a moment.
const SMALL: [&str; 6] = [
    "--innodb-log-file-size=8M",
    "--innodb-data-file-path=ibdata1:12M:autoextend",
    "--innodb-undo-tablespaces=0",
    "--innodb-buffer-pool-size=16M",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=1M",
];

/// A running server. Frozen, killed and started again with everything that belongs to it.
#[derive(Debug)]
pub struct Mysql {
    server: Option<Server>,
    settings: Vec<String>,
    port: u16,
}

impl Mysql {
    /// Starts one with these settings, such as `--max-connections=500`.
    ///
    /// # Panics
    /// If it is not installed or does not come up.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        Self::start_in(scratch(), settings)
    }

    /// As [`start`](Self::start), in an empty folder that somebody has made.
    ///
    /// # Panics
    /// If it is not installed or does not come up.
    #[must_use]
    pub fn start_in(dir: TempDir, settings: &[&str]) -> Self {
        copy(template(), &dir.path().join("data"));
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut mysql = Self { server: None, settings, port: free_port() };
        mysql.launch(dir);
        mysql
    }

    /// Its URL for that user with [`PASSWORD`], without parameters.
    #[must_use]
    pub fn url(&self, user: &str) -> String {
        format!("mysql://{user}:{PASSWORD}@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// The URL of its superuser, who has no password.
    #[must_use]
    pub fn admin_url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// Its port, which it keeps over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What its general log has, if it was told to write one: `--general-log-file=general.log`.
    #[must_use]
    pub fn general_log(&self) -> String {
        let log = self.server.as_ref().map(|server| std::fs::read(server.dir().join("data/general.log")));
        log.and_then(Result::ok).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.server.as_mut().is_none_or(Server::has_ended)
    }

    /// Freezes it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it at once, as a power loss would, and starts it again on the same port.
    ///
    /// # Panics
    /// If it does not come up again.
    pub fn crash_and_restart(&mut self) {
        let dir = self.crash();
        self.launch(dir);
    }

    /// Kills it at once; its directory is kept for [`Mysql::launch`].
    ///
    /// # Panics
    /// If there is no room for temporary files.
    #[must_use]
    pub fn crash(&mut self) -> TempDir {
        let running = self.server.take().map(Server::crash);
        running.unwrap_or_else(scratch)
    }

    /// Starts it in that directory.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn launch(&mut self, dir: TempDir) {
        let init = dir.path().join("init.sql");
        std::fs::write(&init, USERS.map(make_user).concat()).expect("a file of users");
        self.give_away(dir.path());
        let mut command = Command::new(program("mariadbd", PACKAGE, &["/usr/sbin"]));
        command.arg("--no-defaults").arg(format!("--datadir={}", dir.path().join("data").display()));
        command.arg(format!("--init-file={}", init.display()));
        command.arg(format!("--port={}", self.port)).arg("--bind-address=127.0.0.1");
        command.arg(format!("--socket={}", dir.path().join("s").display()));
        command.arg(format!("--tmpdir={}", dir.path().display())).arg("--skip-name-resolve");
        // Of two users the first counts.
        command.args(SMALL).args(&self.settings).args(as_root());
        let ready = |address: SocketAddr| greets(address);
        self.server = Some(Server::start("mariadbd", dir, self.port, &mut command, ready));
    }

    /// The folder belongs to the user that the settings name.
    fn give_away(&self, dir: &Path) {
        let user = self.settings.iter().find_map(|setting| setting.strip_prefix("--user="));
        if let Some(user) = user {
            run(Command::new("chown").args(["-R", user]).arg(dir));
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(server) = &self.server {
            server.signal(signal);
        }
    }
}

fn make_user(user: &str) -> String {
    format!(
        "CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON {DATABASE}.* TO '{user}'@'%';\n"
    )
}

/// Whether it says hello; a server that is starting accepts connections without a word.
fn greets(address: SocketAddr) -> bool {
    use std::io::Read;
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(1)));
    stream.read_exact(&mut [0; 5]).is_ok()
}

/// A data directory that was made once, for this version of the server.
fn template() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let version = run(Command::new(program("mariadbd", PACKAGE, &["/usr/sbin"])).arg("--version"));
        super::template("mariadb", &version, |dir| {
            let data = dir.join("data");
            let mut command = Command::new(program("mariadb-install-db", PACKAGE, &["/usr/bin"]));
            command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
            command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
            run(command.args(SMALL).args(as_root()));
            std::fs::create_dir(data.join(DATABASE)).expect("a database is a folder");
            data
        })
    })
}

/// It wants to be told if it is to run as root.
fn as_root() -> Option<&'static str> {
    getuid().is_root().then_some("--user=root")
}
