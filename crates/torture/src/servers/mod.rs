//! Real servers, private to a test: on a free loopback port, in a temporary directory, gone with the test.
//!
//! A server that is not installed is a failure that says what to install, never a skip.

pub mod database;
pub mod disk;
pub mod etcd;
pub mod galera;
pub mod group;
pub mod kubernetes;
pub mod minio;
pub mod mysql;
pub mod nats;
pub mod postgres;
pub mod redis;
pub mod zookeeper;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// How long a server may take to come up, on a machine that does something else: a Galera member copies the data of another before.
const PATIENCE: Duration = Duration::from_secs(180);

/// A server process with its directory. Killed, with all its children, when dropped.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    child: Child,
    port: u16,
    dir: TempDir,
}

/// A temporary directory in memory, where there is one. What servers make durable is durable enough for those who kill
/// nothing but processes, and the tests do not wait for a disk that others keep busy.
///
/// # Panics
/// If there is no room.
#[must_use]
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made =
        if memory.is_dir() { TempDir::new_in(memory).or_else(|_| TempDir::new()) } else { TempDir::new() };
    made.expect("a temporary directory")
}

/// A port of the loopback interface that no other process gets as long as this one lives, even while its server is down:
/// a socket is bound to it that never listens. Servers may listen on it all the same, because they, as all do, set
/// `SO_REUSEADDR`; until one does, connections are refused.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    let keeper = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let keeper = keeper.expect("a socket");
    sockopt::set_socket_reuseaddr(&keeper, true).expect("a port can be kept");
    net::bind(&keeper, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a loopback port");
    let address = net::getsockname(&keeper).expect("a bound socket has an address");
    std::mem::forget(keeper);
    SocketAddr::try_from(address).expect("an address of the loopback interface").port()
}

/// Finds a program in `PATH` or in one of the folders where Debian puts servers.
///
/// # Panics
/// If it is not installed, with the package that has it.
#[must_use]
pub fn program(name: &str, package: &str, folders: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(folders.iter().map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: run ./test, or `apt-get install {package}`"))
}

/// The server that this variable of the environment names, to be started instead of the usual one of its kind: MySQL instead of
/// MariaDB, Valkey instead of Redis.
fn instead(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// A server that `./setup --stores` builds, or one that is installed.
fn built(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(beside().join("tools/bin")).chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: run ./setup --stores, which builds it"))
}

impl Server {
    /// Starts `command` in a process group of its own and waits until `ready` says yes. What it printed goes to a file
    /// in its directory, and into the panic if it does not come up.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(
        name: &'static str,
        dir: TempDir,
        port: u16,
        command: &mut Command,
        ready: impl Fn(SocketAddr) -> bool,
    ) -> Self {
        Self::start_within(PATIENCE, name, dir, port, command, ready)
    }

    /// The same for a server that may take so long to come up.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start_within(
        patience: Duration,
        name: &'static str,
        dir: TempDir,
        port: u16,
        command: &mut Command,
        ready: impl Fn(SocketAddr) -> bool,
    ) -> Self {
        let log = dir.path().join("server.log");
        let file = std::fs::File::create(&log).expect("a log can be written");
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let mut server = Self { name, child, port, dir };
        let started = Instant::now();
        while !ready(server.address()) {
            let ended = server.child.try_wait().expect("it can be waited for");
            if ended.is_some() || started.elapsed() > patience {
                panic!(
                    "{name} did not come up ({ended:?}):\n{}",
                    std::fs::read_to_string(&log).unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its main process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How long its processes have run on a core.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        cpu_of(self.pid())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Freezes or thaws every process of it: SIGSTOP, SIGCONT.
    ///
    /// # Panics
    /// If it is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Kills it as a power loss would, and gives its directory back so that it can be started again.
    #[must_use]
    pub fn crash(mut self) -> TempDir {
        self.kill();
        std::mem::replace(&mut self.dir, scratch())
    }

    fn kill(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::CONT);
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = kill_process(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long a process and those that it started, and of these also the ones that have ended, have run on a core.
#[must_use]
pub fn cpu_of(main: Pid) -> Duration {
    let own = ticks(main, 4);
    let living: u64 = children(main).into_iter().map(|child| ticks(child, 2)).sum();
    Duration::from_secs_f64((own + living) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The first so many of these times of a process: its own as user and as system, and those of its children that have ended.
fn ticks(pid: Pid, count: usize) -> u64 {
    let times = stat(pid).into_iter().flat_map(|fields| fields.into_iter().skip(11).take(count));
    times.filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Every process that this one started.
fn children(parent: Pid) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let parent = parent.as_raw_nonzero().to_string();
    pids.filter(|pid| stat(*pid).is_some_and(|fields| fields.get(1) == Some(&parent))).collect()
}

/// What the kernel tells of a process after its name, which may hold anything: its state first, then its parent.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

/// A data directory that was made once for this version of a server, beside the test programs: making one takes longer
/// than most tests. `make` is given a directory to work in and says where in it the result is. The first process wins;
/// all are the same.
fn template(server: &str, version: &str, make: impl FnOnce(&Path) -> PathBuf) -> PathBuf {
    let version: String = version.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    let place = beside().join(format!("{server}-template-{version}"));
    if !place.exists() {
        let dir = scratch();
        let made = make(dir.path());
        let new = place.with_extension(format!("new-{}", std::process::id()));
        copy(&made, &new);
        if std::fs::rename(&new, &place).is_err() {
            let _ = std::fs::remove_dir_all(&new);
        }
    }
    place
}

/// Where it is kept: in `target/`, with what was built; in the temporary directory if this program was installed.
fn beside() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| is_target(folder));
    target.map_or_else(std::env::temp_dir, Path::to_owned)
}

/// Cargo tags the directory as a cache only if it made the directory itself; what it knows of the compiler it writes in any case.
fn is_target(folder: &Path) -> bool {
    ["CACHEDIR.TAG", ".rustc_info.json"].iter().any(|mark| folder.join(mark).is_file())
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Runs a program to its end and gives what it printed.
fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}
