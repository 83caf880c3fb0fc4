//! The node processes: started, killed, frozen, starved, and gone with the torture.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

use super::member::Member;
use crate::exit::Exit;

/// How a starved process gets a tenth of the processor.
const HUNGRY: Duration = Duration::from_millis(90);
const FED: Duration = Duration::from_millis(10);

/// All processes, by name; a twin has a name of its own here.
#[derive(Debug)]
pub(super) struct Crew {
    dir: PathBuf,
    running: BTreeMap<String, Running>,
}

#[derive(Debug)]
struct Running {
    /// A process id may be given to another process as soon as its owner is reaped; this handle never is.
    process: Arc<OwnedFd>,
    child: Child,
}

impl Crew {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), running: BTreeMap::new() }
    }

    /// Starts a process. To be called on the main thread: it dies with the thread that started it.
    pub(super) fn start(&mut self, key: &str, member: &Member) -> Result<(), Exit> {
        let failed = |error: io::Error| {
            Exit::Failed(format!("{key} could not be started: {error}; check that processes can be started"))
        };
        let child = self.command(key, member).map_err(failed)?.spawn().map_err(failed)?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let process = Arc::new(pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?);
        self.running.insert(key.to_owned(), Running { process, child });
        Ok(())
    }

    /// Not in the terminal's foreground group: Ctrl-C is for the torture, which then ends its nodes.
    fn command(&self, key: &str, member: &Member) -> io::Result<Command> {
        let mut command = Command::new("/proc/self/exe");
        let how = serde_json::to_string(member).map_err(io::Error::other)?;
        command
            .args(["torture", "--member", &how])
            .env_remove("TENURE_STORE")
            .process_group(0)
            .kill_on_drop(true);
        let log = File::options().append(true).create(true).open(self.log(key))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(command)
    }

    /// Kills one and waits until it is gone.
    pub(super) async fn kill(&mut self, key: &str) {
        if let Some(mut running) = self.running.remove(key) {
            let _ = pidfd_send_signal(&running.process, Signal::KILL);
            let _ = running.child.wait().await;
        }
    }

    pub(super) fn freeze(&self, key: &str) {
        self.signal(key, Signal::STOP);
    }

    pub(super) fn thaw(&self, key: &str) {
        self.signal(key, Signal::CONT);
    }

    /// Lets one run only now and then, for so long.
    pub(super) fn starve(&self, key: &str, lasts: Duration) {
        let Some(process) = self.running.get(key).map(|running| running.process.clone()) else { return };
        let ends = tokio::time::Instant::now() + lasts;
        tokio::spawn(async move {
            while tokio::time::Instant::now() < ends {
                let _ = pidfd_send_signal(&process, Signal::STOP);
                tokio::time::sleep(HUNGRY).await;
                let _ = pidfd_send_signal(&process, Signal::CONT);
                tokio::time::sleep(FED).await;
            }
        });
    }

    /// Those that have ended by themselves, which they never do, and what they said last.
    pub(super) fn fallen(&mut self) -> Vec<(String, String)> {
        let ended = |running: &mut Running| matches!(running.child.try_wait(), Ok(Some(_)));
        let keys: Vec<String> = self
            .running
            .iter_mut()
            .filter_map(|(key, running)| ended(running).then(|| key.clone()))
            .collect();
        keys.into_iter().map(|key| (key.clone(), self.last_words(&key))).collect()
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.running.remove(key);
    }

    /// Kills all and waits until they are gone.
    pub(super) async fn dismiss(&mut self) {
        for key in self.running.keys().cloned().collect::<Vec<_>>() {
            self.kill(&key).await;
        }
    }

    fn signal(&self, key: &str, signal: Signal) {
        if let Some(running) = self.running.get(key) {
            // One that is gone already cannot be signalled, and need not be.
            let _ = pidfd_send_signal(&running.process, signal);
        }
    }

    fn last_words(&self, key: &str) -> String {
        let log = std::fs::read_to_string(self.log(key)).unwrap_or_default();
        log.lines().last().unwrap_or("without a word").to_owned()
    }

    fn log(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.log"))
    }
}
