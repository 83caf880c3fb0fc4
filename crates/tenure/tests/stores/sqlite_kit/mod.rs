//! Other processes for the tests of the embedded store: this very test binary, told by its environment what to do.
#![allow(dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure::store::entropy::KernelEntropy;
use tenure::store::{
    Epoch, Key, Kind, LivenessLocks as _, Name, SessionId, Signal, Store, Value, Version, Write,
};
use tenure_core::Entropy;

pub const EPOCH: Epoch = Epoch::new(5);
const TASK: &str = "TENURE_TEST_TASK";
const FILE: &str = "TENURE_TEST_FILE";
/// Tells what a child says from what the test harness prints around it.
const MARK: &str = "child says: ";

/// The namespace that children write in.
#[allow(non_snake_case)]
pub fn SPACE() -> Name {
    Name::new("children").unwrap()
}

pub fn fresh_space() -> Name {
    Name::new(format!("test-{:x}", KernelEntropy.nonce())).unwrap()
}

pub fn node(name: &str) -> Key {
    Key::Named(EPOCH, Kind::Node, Name::new(name).unwrap())
}

pub fn put(key: &Key, expect: Option<Version>, number: u64) -> Write {
    let version = Version::new(KernelEntropy.nonce());
    Write {
        key: key.clone(),
        expect,
        put: Some((version, Value::of(&number, None))),
        notify: true,
        requires_lock: false,
    }
}

/// The next signal, or the end of the watch; fails if neither comes.
pub async fn answer(watch: &mut BoxStream<'static, Signal>) -> Option<Signal> {
    tokio::time::timeout(Duration::from_secs(180), watch.next()).await.expect("a signal must come")
}

/// What another process is to do.
#[derive(Clone, Copy)]
pub enum Task {
    /// Acquire the lock of a session, say its id, and wait.
    Hold(SessionId),
    /// Rewrite one register and say each number once it is acknowledged.
    WriteForEver,
    /// Write ten registers, and say so.
    WriteSome(u64),
    /// Open the file, and say what came of it.
    Open,
}

/// Another process; killed when dropped.
pub struct Child {
    process: std::process::Child,
    says: BufReader<ChildStdout>,
}

impl Child {
    pub fn start(file: &Path, task: Task) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), file, task)
    }

    /// As a user without any privilege, even if the test runs as root.
    pub fn start_unprivileged(program: &Path, file: &Path, task: Task) -> Self {
        Self::start_as(65534, program, file, task)
    }

    /// As that user, whose group is 65534, if the test runs as root.
    pub fn start_as(user: u32, program: &Path, file: &Path, task: Task) -> Self {
        let mut command = Command::new(program);
        if rustix_is_root() {
            command.uid(user).gid(65534);
        }
        Self::spawn(command, file, task)
    }

    fn spawn(mut command: Command, file: &Path, task: Task) -> Self {
        let task = match task {
            Task::Hold(session) => format!("hold {session}"),
            Task::WriteForEver => "write-for-ever".to_owned(),
            Task::WriteSome(seat) => format!("write-some {seat}"),
            Task::Open => "open".to_owned(),
        };
        command.args(["sqlite::helper_process", "--exact", "--nocapture"]).env(TASK, task).env(FILE, file);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let says = BufReader::new(process.stdout.take().unwrap());
        Self { process, says }
    }

    /// The next thing it says.
    pub fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "the child ended without a word");
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
        }
    }

    /// Kills it with -9 and waits until it is gone.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn rustix_is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
    std::io::stdout().flush().unwrap();
}

/// Does what the environment asks for; nothing if this is the test itself.
pub fn run_task() {
    let (Ok(task), Some(file)) = (std::env::var(TASK), std::env::var_os(FILE)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(carry_out(&task, Path::new(&file)));
}

async fn carry_out(task: &str, file: &Path) {
    // As in a URL, the path may say who shares the file.
    let store = match tenure::store::open(&format!("sqlite:{}", file.display())) {
        Ok(store) => store,
        Err(error) => return say(error),
    };
    match task.split_once(' ').unwrap_or((task, "")) {
        ("hold", session) => {
            let lock = store
                .liveness()
                .acquire_lock(&SPACE(), session.parse().unwrap(), tenure::Takeover::Strict)
                .await
                .unwrap()
                .unwrap();
            say(lock.id);
            wait_for_the_end();
        }
        ("write-for-ever", _) => write_for_ever(&*store).await,
        ("write-some", seat) => {
            for nth in 0..10 {
                store.write(&SPACE(), &[put(&node(&format!("n{seat}.{nth}")), None, nth)]).await.unwrap();
            }
            say("done");
        }
        _ => say("opened"),
    }
}

/// Until killed, or until the one who started it is gone.
fn wait_for_the_end() {
    let _ = std::io::stdin().lines().next();
}

async fn write_for_ever(store: &dyn Store) {
    let (key, mut expect) = (node("n"), None);
    for number in 1.. {
        let write = put(&key, expect, number);
        store.write(&SPACE(), std::slice::from_ref(&write)).await.unwrap();
        expect = write.put.map(|(version, _)| version);
        say(number);
    }
}
