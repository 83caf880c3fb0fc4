//! MariaDB, or MySQL if `TENURE_TEST_MYSQLD` names its server, private to a test.
//!
//! A prepared data directory is kept beside the test programs and copied.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::getuid;
use tempfile::TempDir;

use super::database::{DatabaseKind, DatabaseServer};
use super::{Server, instead, program, run};

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

const SMALL_MYSQL: [&str; 6] = [
    "--innodb-redo-log-capacity=8M",
    "--innodb-buffer-pool-size=16M",
    "--key-buffer-size=1M",
    "--disable-log-bin",
    "--mysqlx=OFF",
    "--secure-file-priv=",
];

/// MySQL knows its superuser by the name of the host alone, and its databases by what was created.
const PREPARE_MYSQL: &str = "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS tenure_test;
";

/// The server of MySQL, if that is to be started instead of MariaDB's.
fn mysqld() -> Option<PathBuf> {
    instead("TENURE_TEST_MYSQLD")
}

/// Whether servers are MySQL's, and not MariaDB's.
#[must_use]
pub fn is_mysql() -> bool {
    mysqld().is_some()
}

/// What the server understands, where MariaDB and MySQL have other words for the same.
#[must_use]
pub fn dialect<T>(mariadb: T, mysql: T) -> T {
    if is_mysql() { mysql } else { mariadb }
}

fn server() -> PathBuf {
    mysqld().unwrap_or_else(|| program("mariadbd", PACKAGE, &["/usr/sbin"]))
}

/// A running server.
pub type Mysql = DatabaseServer<MariaDb>;

/// MariaDB, as Debian installs it.
#[derive(Debug)]
pub struct MariaDb;

impl DatabaseServer<MariaDb> {
    /// Its URL for that user with [`PASSWORD`], without parameters.
    #[must_use]
    pub fn url(&self, user: &str) -> String {
        url(user, self.address())
    }

    /// The URL of its superuser, who has no password.
    #[must_use]
    pub fn admin_url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{DATABASE}", self.port())
    }

    /// What its general log has, if it was told to write one: `--general-log-file=general.log`.
    #[must_use]
    pub fn general_log(&self) -> String {
        self.file("data/general.log")
    }
}

impl DatabaseKind for MariaDb {
    fn template() -> &'static Path {
        static MADE: OnceLock<PathBuf> = OnceLock::new();
        MADE.get_or_init(|| {
            let version = run(Command::new(server()).arg("--version"));
            match mysqld() {
                Some(_) => super::template("mysql", &version, make_mysql_data),
                None => super::template("mariadb", &version, make_data),
            }
        })
    }

    fn launch(dir: TempDir, port: u16, settings: &[String]) -> Server {
        let init = dir.path().join("init.sql");
        let (users, first) = (USERS.map(make_user).concat(), dialect("", PREPARE_MYSQL));
        // Each server makes them itself, also one that replicates another.
        std::fs::write(&init, format!("SET SESSION sql_log_bin = 0;\n{first}{users}"))
            .expect("a file of users");
        // The folder belongs to the user that the settings name.
        if let Some(user) = settings.iter().find_map(|setting| setting.strip_prefix("--user=")) {
            run(Command::new("chown").args(["-R", user]).arg(dir.path()));
        }
        let mut command = Command::new(server());
        command.arg("--no-defaults").arg(format!("--datadir={}", dir.path().join("data").display()));
        command.arg(format!("--init-file={}", init.display()));
        command.arg(format!("--port={port}")).arg("--bind-address=127.0.0.1");
        command.arg(format!("--socket={}", dir.path().join("s").display()));
        command.arg(format!("--tmpdir={}", dir.path().display())).arg("--skip-name-resolve");
        // Of two users the first counts.
        command.args(dialect(SMALL, SMALL_MYSQL)).args(settings).args(as_root());
        Server::start(dialect("mariadbd", "mysqld"), dir, port, &mut command, greets)
    }
}

fn make_user(user: &str) -> String {
    format!(
        "CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON {DATABASE}.* TO '{user}'@'%';\n"
    )
}

/// The URL of a server, or of what leads to one, for that user with [`PASSWORD`].
#[must_use]
pub fn url(user: &str, address: SocketAddr) -> String {
    format!("mysql://{user}:{PASSWORD}@{address}/{DATABASE}")
}

/// Whether it says hello; a server that is starting accepts connections without a word.
fn greets(address: SocketAddr) -> bool {
    use std::io::Read;
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(1)));
    stream.read_exact(&mut [0; 5]).is_ok()
}

fn make_data(dir: &Path) -> PathBuf {
    let data = dir.join("data");
    let mut command = Command::new(program("mariadb-install-db", PACKAGE, &["/usr/bin"]));
    command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run(command.args(SMALL).args(as_root()));
    std::fs::create_dir(data.join(DATABASE)).expect("a database is a folder");
    data
}

fn make_mysql_data(dir: &Path) -> PathBuf {
    let data = dir.join("data");
    let mut command = Command::new(server());
    command.args(["--no-defaults", "--initialize-insecure"]).arg(format!("--datadir={}", data.display()));
    run(command.args(SMALL_MYSQL).args(as_root()));
    // Its name: each copy draws one of its own when it starts.
    std::fs::remove_file(data.join("auto.cnf")).expect("a server has a name");
    data
}

/// It wants to be told if it is to run as root.
fn as_root() -> Option<&'static str> {
    getuid().is_root().then_some("--user=root")
}
