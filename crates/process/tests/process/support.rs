//! A test's view: the stage with its elector, children that leave a trace, and facts about processes.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use tempfile::TempDir;
use tenure_process::Exit;
use tenure_process::clock::lease_now;

use crate::elector::{Answer, Ask};

/// Long enough for any machine; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(180);

/// A heart: writes its pid and the lease clock's time into `$HEART` every other millisecond.
pub(crate) fn beat_for_ever() {
    let mut file =
        OpenOptions::new().append(true).create(true).open(std::env::var("HEART").unwrap()).unwrap();
    loop {
        // One write per beat, so that a beat is recorded whole or not at all.
        file.write_all(format!("{} {}\n", std::process::id(), lease_now()).as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process around an elector, in the same terminal session, that inherits the elector's orphans and reaps
/// them.
pub(crate) fn reaper() {
    set_child_subreaper(Some(getpid())).unwrap();
    let elector = Command::new(actor())
        .args(["--exact", "actor", "--nocapture"])
        .env("TENURE_TEST_ACTOR", "elector")
        .process_group(0)
        .spawn();
    drop(elector.unwrap());
    while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    std::process::exit(0);
}

/// What a shell runs to become a heart.
pub(crate) const HEART: &str = "TENURE_TEST_ACTOR=heart exec \"$ACTOR\" --exact actor --nocapture";

/// What a shell runs to leave a heart behind that left group, session and parent, and ignores SIGTERM.
pub(crate) const DAEMON: &str = "setsid sh -c 'trap \"\" TERM; \
    (TENURE_TEST_ACTOR=heart \"$ACTOR\" --exact actor --nocapture &)' & ";

/// An elector with a guard, a directory, and the socket to speak to it.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) elector: Child,
    socket: BufReader<UnixStream>,
    pub(crate) watchdog: i32,
}

impl Fixture {
    /// An elector whose guard is up, with the margins given in milliseconds.
    pub(crate) fn new(stop_grace_ms: u64, kill_slack_ms: u64) -> Self {
        Self::with(stop_grace_ms, kill_slack_ms, |_| {})
    }

    /// The same, with the elector's own standard streams set up by `adjust`.
    pub(crate) fn with(stop_grace_ms: u64, kill_slack_ms: u64, adjust: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(actor());
        command.args(["--exact", "actor", "--nocapture"]).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("TENURE_TEST_ACTOR", "elector");
        adjust(&mut command);
        Self::run(stop_grace_ms, kill_slack_ms, command)
    }

    /// The same, with a command of the test's own that ends up being the elector.
    pub(crate) fn run(stop_grace_ms: u64, kill_slack_ms: u64, mut command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        command.env("TENURE_TEST_SOCKET", &path);
        let elector = command.spawn().unwrap();
        let socket = BufReader::new(listener.accept().unwrap().0);
        let mut fixture = Self { dir, elector, socket, watchdog: 0 };
        fixture.launch(stop_grace_ms, kill_slack_ms);
        fixture
    }

    /// Launches a guard, the first or another one.
    pub(crate) fn launch(&mut self, stop_grace_ms: u64, kill_slack_ms: u64) {
        let Answer::Launched { watchdog } = self.ask(&Ask::Launch { stop_grace_ms, kill_slack_ms }) else {
            panic!("the guard did not come up")
        };
        self.watchdog = watchdog;
    }

    pub(crate) fn ask(&mut self, ask: &Ask) -> Answer {
        self.say(ask);
        self.hear()
    }

    pub(crate) fn say(&mut self, ask: &Ask) {
        writeln!(self.socket.get_mut(), "{}", serde_json::to_string(ask).unwrap()).unwrap();
    }

    pub(crate) fn hear(&mut self) -> Answer {
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Takes the lock as a session would, and gives it to the watchdog too.
    pub(crate) fn lock(&mut self) -> PathBuf {
        let path = self.dir.path().join("lock");
        assert_eq!(self.ask(&Ask::Lock { path: path.to_str().unwrap().into() }), Answer::Done);
        path
    }

    /// Has the watchdog prepare for a start; returns the process that waits at the gate.
    pub(crate) fn prepare(&mut self) -> i32 {
        assert_eq!(self.ask(&Ask::Prepare), Answer::Done);
        let list = format!("/proc/{0}/task/{0}/children", self.watchdog);
        let mut waiting = None;
        eventually("a process waits at the gate", || {
            let children = fs::read_to_string(&list).unwrap_or_default();
            waiting =
                children.split_whitespace().find_map(|pid| pid.parse().ok().filter(|pid| is_gated(*pid)));
            waiting.is_some()
        });
        waiting.unwrap()
    }

    /// Runs a shell script as the child; returns its pid and the deadline.
    pub(crate) fn start(&mut self, script: &str, ttl_ms: u64) -> (i32, u64) {
        match self.ask(&self.script(script, ttl_ms)) {
            Answer::Started { pid, deadline } => (pid, deadline),
            other => panic!("not started: {other:?}"),
        }
    }

    pub(crate) fn script(&self, script: &str, ttl_ms: u64) -> Ask {
        let env = [("ACTOR", actor()), ("HEART", self.heart()), ("DIR", self.dir.path().into())];
        Ask::Start {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: env.map(|(name, path)| (name.into(), path.to_str().unwrap().into())).into(),
            cwd: None,
            ttl_ms,
        }
    }

    fn heart(&self) -> PathBuf {
        self.dir.path().join("heart")
    }

    /// All beats so far: pid and time.
    pub(crate) fn beats(&self) -> Vec<(i32, u64)> {
        let text = fs::read_to_string(self.heart()).unwrap_or_default();
        let parse = |line: &str| {
            let (pid, time) = line.split_once(' ')?;
            Some((pid.parse().ok()?, time.parse().ok()?))
        };
        text.lines().filter_map(parse).collect()
    }

    /// Waits until `count` different processes have beaten.
    pub(crate) fn hearts(&self, count: usize) -> Vec<i32> {
        let mut pids = Vec::new();
        eventually("hearts beat", || {
            pids = self.beats().iter().map(|(pid, _)| *pid).collect();
            pids.sort_unstable();
            pids.dedup();
            pids.len() >= count
        });
        pids
    }

    /// Waits for a file that a script writes, whole lines only.
    pub(crate) fn written(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        let mut text = String::new();
        eventually(name, || {
            text = fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n')
        });
        text
    }

    /// The elector is what the watchdog is a child of; what the test started may be a process around it.
    pub(crate) fn elector_pid(&self) -> i32 {
        stat(self.watchdog, 4).unwrap().parse().unwrap()
    }

    pub(crate) fn kill_elector(&mut self) {
        self.elector.kill().unwrap();
        self.elector.wait().unwrap();
    }
}

impl Drop for Fixture {
    /// A frozen elector or watchdog must not outlive a failed test.
    fn drop(&mut self) {
        let _ = self.elector.kill();
        let _ = self.elector.wait();
    }
}

/// This binary, which plays all parts.
pub(crate) fn actor() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Waits for a fact that is bound to come.
pub(crate) fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !fact() {
        assert!(begun.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// True if this process waits at a gate, asleep.
pub(crate) fn is_gated(pid: i32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim() == "lease-gate" && state(pid) == Some('S')
}

/// True if there is no such process any more, not even a dead one that was not reaped.
pub(crate) fn gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A field of `/proc/PID/stat`, numbered as in its manual page; the first two are not available.
pub(crate) fn stat(pid: i32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(field - 3).map(str::to_owned)
}

/// The letter of the process's state.
pub(crate) fn state(pid: i32) -> Option<char> {
    stat(pid, 3)?.chars().next()
}

/// Freezes a process and waits until it is.
pub(crate) fn freeze(pid: i32) {
    signal(pid, Signal::STOP);
    eventually("frozen", || state(pid) == Some('T'));
}

/// A successor that already waits for the lock when the harm is done, so that not even a moment goes
/// unnoticed.
pub(crate) struct Successor(Receiver<(u64, Vec<i32>)>);

impl Successor {
    /// Waits for the lock; which of `pids` exist is looked at the moment it is granted.
    pub(crate) fn wait_for(lock: &Path, pids: &[i32]) -> Self {
        let (file, pids) = (File::open(lock).unwrap(), pids.to_vec());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            flock(&file, FlockOperation::LockExclusive).unwrap();
            let granted = lease_now();
            // The test may have given up waiting.
            let _ = sender.send((granted, pids.into_iter().filter(|pid| !gone(*pid)).collect()));
        });
        Self(receiver)
    }

    /// When the lock was granted, on the lease clock, and who still lived.
    pub(crate) fn granted(self) -> (u64, Vec<i32>) {
        self.0.recv_timeout(PATIENCE).expect("the lock never fell")
    }
}

pub(crate) fn lock_is_free(path: &Path) -> bool {
    flock(File::open(path).unwrap(), FlockOperation::NonBlockingLockExclusive).is_ok()
}

pub(crate) fn ended(exit: Exit, leftovers: bool, killed: bool) -> Answer {
    Answer::Ended { exit, leftovers, killed }
}
