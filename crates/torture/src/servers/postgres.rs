//! PostgreSQL, private to a test, and pgbouncer in front of it.
//!
//! The server refuses to run as root; then it runs as the user that its package made. A prepared data directory is kept
//! beside the test programs and copied, because making one takes longer than most tests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

use super::database::{DatabaseKind, DatabaseServer};
use super::{Server, children, free_port, program, run, scratch, stat};

/// The user that the package makes.
const USER: &str = "postgres";

/// A running server.
pub type Postgres = DatabaseServer<PostgreSql>;

/// PostgreSQL, as Debian installs it.
#[derive(Debug)]
pub struct PostgreSql;

impl DatabaseServer<PostgreSql> {
    /// Its URL for that user and database, without parameters.
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port())
    }

    /// The URL of its superuser.
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.url(USER, USER)
    }

    /// What it has logged since it was last started.
    #[must_use]
    pub fn log(&self) -> String {
        self.file("server.log")
    }
}

impl DatabaseKind for PostgreSql {
    fn template() -> &'static Path {
        static MADE: OnceLock<PathBuf> = OnceLock::new();
        MADE.get_or_init(|| {
            let version = run(Command::new(binary("initdb")).arg("--version"));
            super::template("postgres", &version, make_data)
        })
    }

    fn launch(dir: TempDir, port: u16, settings: &[String]) -> Server {
        hand_over(dir.path());
        let data = dir.path().join("data");
        let mut command = unprivileged(&binary("postgres"));
        command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", dir.path().display())).current_dir("/");
        for setting in settings {
            command.args(["-c", setting]);
        }
        let _ = std::fs::remove_file(data.join("postmaster.pid"));
        let ready = |_: SocketAddr| {
            let status = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            status.lines().nth(7).is_some_and(|line| line.trim() == "ready")
        };
        Server::start("postgres", dir, port, &mut command, ready)
    }

    /// Its processes are not in one group: each child makes its own. The parent is stopped first, so that it starts no
    /// more of them, and its children are known before it dies and nothing tells whose they were.
    fn signal(server: &Server, signal: Signal) {
        let main = server.pid();
        let _ = kill_process(main, Signal::STOP);
        let children = children(main);
        for process in children.iter().chain([&main]) {
            let _ = kill_process(*process, signal);
        }
        // The next server cannot have the memory that they share before all of them are gone.
        while signal == Signal::KILL && children.iter().any(|child| is_running(*child)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill_children(server: &Server) {
        Self::signal(server, Signal::KILL);
    }
}

fn make_data(dir: &Path) -> PathBuf {
    hand_over(dir);
    let data = dir.join("data");
    let mut command = unprivileged(&binary("initdb"));
    command.arg("-D").arg(&data).args(["-A", "trust", "-U", USER, "--no-sync", "--wal-segsize=1"]);
    run(command.args(["-E", "UTF8", "--locale=C"]).current_dir("/"));
    data
}

/// A pooler in transaction mode, in front of a server.
///
/// # Panics
/// If it is not installed or does not come up.
#[must_use]
pub fn pgbouncer(postgres: &Postgres) -> Server {
    let (dir, port) = (scratch(), free_port());
    let (config, users) = (dir.path().join("pgbouncer.ini"), dir.path().join("users.txt"));
    let text = format!(
        "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\n\
         unix_socket_dir=\nauth_type=any\nauth_file={}\npool_mode=transaction\ndefault_pool_size=4\n",
        postgres.port(),
        users.display()
    );
    std::fs::write(&users, "\"postgres\" \"\"\n").expect("a file of users");
    std::fs::write(&config, text.replace("* = host", "postgres = user=postgres host"))
        .expect("its configuration");
    hand_over(dir.path());
    let mut command = unprivileged(&program("pgbouncer", "pgbouncer", &["/usr/sbin"]));
    command.arg(&config).current_dir("/");
    Server::start("pgbouncer", dir, port, &mut command, |address| {
        std::net::TcpStream::connect(address).is_ok()
    })
}

fn is_running(pid: Pid) -> bool {
    stat(pid).is_some_and(|fields| !matches!(fields.first().map(String::as_str), Some("Z" | "X")))
}

/// Gives a directory to the user that the server runs as.
fn hand_over(dir: &Path) {
    if getuid().is_root() {
        run(Command::new("chown").arg("-R").arg(format!("{USER}:")).arg(dir));
    }
}

fn unprivileged(program: &Path) -> Command {
    if !getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups", "--"])
        .arg(program);
    command
}

/// Debian puts the server's programs in a folder for each version.
fn binary(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> =
        versions.map(|version| version.path().join("bin").display().to_string()).collect();
    folders.sort();
    let folders: Vec<_> = folders.iter().rev().map(String::as_str).collect();
    program(name, "postgresql", &folders)
}
