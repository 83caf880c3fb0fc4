//! The node processes: started, killed, frozen, starved, and gone with the torture.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Child;

use super::member::Member;
use crate::exit::Exit;
use crate::process::copy::{Copy, last_words};

/// How a starved process gets a tenth of the processor.
const HUNGRY: Duration = Duration::from_millis(90);
const FED: Duration = Duration::from_millis(10);

/// All processes, by name; a twin has a name of its own here.
#[derive(Debug)]
pub(super) struct Crew {
    dir: PathBuf,
    running: BTreeMap<String, (Copy, Child)>,
}

impl Crew {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), running: BTreeMap::new() }
    }

    /// Starts a process. To be called on the main thread: it dies with the thread that started it.
    pub(super) fn start(&mut self, key: &str, member: &Member) -> Result<(), Exit> {
        let how = serde_json::to_string(member).map_err(|error| Exit::Failed(error.to_string()))?;
        let started = Copy::start(key, &["torture", "--member", &how], &self.log(key), Stdio::null())?;
        self.running.insert(key.to_owned(), started);
        Ok(())
    }

    /// Kills one and waits until it is gone.
    pub(super) async fn kill(&mut self, key: &str) {
        if let Some((process, mut child)) = self.running.remove(key) {
            process.signal(Signal::KILL);
            let _ = child.wait().await;
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
        let Some((process, _)) = self.running.get(key) else { return };
        let (process, ends) = (process.clone(), tokio::time::Instant::now() + lasts);
        tokio::spawn(async move {
            while tokio::time::Instant::now() < ends {
                process.signal(Signal::STOP);
                tokio::time::sleep(HUNGRY).await;
                process.signal(Signal::CONT);
                tokio::time::sleep(FED).await;
            }
        });
    }

    /// Those that have ended by themselves, which they never do, and what they said last.
    pub(super) fn fallen(&mut self) -> Vec<(String, String)> {
        let ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        let keys: Vec<String> = self
            .running
            .iter_mut()
            .filter_map(|(key, (_, child))| ended(child).then(|| key.clone()))
            .collect();
        keys.into_iter().map(|key| (key.clone(), last_words(&self.log(&key)))).collect()
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
        if let Some((process, _)) = self.running.get(key) {
            process.signal(signal);
        }
    }

    fn log(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.log"))
    }
}
