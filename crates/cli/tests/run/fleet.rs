//! Some `tenure run` processes on one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Anything that happens at all has happened by then; nothing is judged by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A directory, with a store in it if there is none elsewhere.
pub(crate) struct TestDir {
    dir: TempDir,
    store: String,
    /// Nodes whose URL of the store is one of their own.
    stores: BTreeMap<&'static str, String>,
    /// Which `tenure` is started from now on.
    pub(crate) binary: PathBuf,
}

/// A process that is killed when the test is over.
pub(crate) struct Process {
    child: Child,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        let mut dir = Self::on(String::new());
        dir.store = format!("sqlite:{}", dir.file("tenure.db").display());
        dir
    }

    /// The store is elsewhere.
    pub(crate) fn on(store: String) -> Self {
        let dir = TempDir::with_prefix("tenure-run-").expect("a temporary directory");
        Self { dir, store, stores: BTreeMap::new(), binary: env!("CARGO_BIN_EXE_tenure").into() }
    }

    /// That node has a URL of its own; commands of operators use the one for all.
    pub(crate) fn of_node(mut self, node: &'static str, store: String) -> Self {
        self.stores.insert(node, store);
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// `tenure` on the store here.
    pub(crate) fn tenure(&self) -> Command {
        self.tenure_on(&self.store)
    }

    fn tenure_on(&self, store: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_remove("TENURE_STORE").env("TENURE_LOG", "info");
        command.arg("--store").arg(store);
        command
    }

    /// `tenure run` for the role `job`, with these arguments.
    pub(crate) fn run(&self, node: &str, args: &[&str]) -> Command {
        let mut command = self.tenure_on(self.stores.get(node).unwrap_or(&self.store));
        command.args(["run", "--role", "job", "--node", node]).args(args);
        command
    }

    /// A `tenure run` whose command is a witness.
    pub(crate) fn worker(&self, node: &str, args: &[&str]) -> Process {
        let this = std::env::current_exe().expect("this test has a path");
        let mut command = self.run(node, args);
        command.arg("--").arg(this).args(["--exact", "node_process", "--nocapture"]);
        command.env("WITNESS_DIRECTORY", self.path());
        let log = std::fs::File::options().create(true).append(true).open(self.file(&format!("{node}.log")));
        command.stderr(log.expect("a log can be written")).stdout(Stdio::null());
        Process::spawn(&mut command)
    }

    /// Waits until a file has these words in it.
    pub(crate) fn wait_for(&self, name: &str, words: &str) -> String {
        wait_until(&format!("{words:?} in {name}"), || {
            std::fs::read_to_string(self.file(name)).ok().filter(|text| text.contains(words))
        })
    }
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self { child: command.spawn().expect("tenure starts") }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it can be signalled");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_until("the process to exit", || self.child.try_wait().expect("it can be waited for"))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }
}

impl Drop for TestDir {
    /// What happened is worth reading if a test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            println!("what was left behind: {}", self.dir.path().display());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something to become true; fails by name if it never does.
pub(crate) fn wait_until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
