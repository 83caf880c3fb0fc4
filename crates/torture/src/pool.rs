//! The node processes: started, killed, frozen, starved, and gone with the torture.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Child;

use crate::Error;
use crate::member::{MemberOptions, Part};
use crate::process::{NodeProcess, last_line};

/// How a starved process gets a tenth of the processor.
const STARVED: Duration = Duration::from_millis(90);
const SCHEDULED: Duration = Duration::from_millis(10);

/// All processes, by name; a twin has a name of its own here.
#[derive(Debug)]
pub(crate) struct NodePool {
    dir: PathBuf,
    running: BTreeMap<String, (NodeProcess, Child)>,
}

impl NodePool {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), running: BTreeMap::new() }
    }

    /// Starts a process. To be called on the main thread: it dies with the thread that started it.
    pub(crate) fn start(&mut self, key: &str, member: MemberOptions) -> Result<(), Error> {
        let how =
            serde_json::to_string(&Part::Node(member)).map_err(|error| Error::Failed(error.to_string()))?;
        self.start_program(key, &["torture".to_owned(), "--member".to_owned(), how])
    }

    /// Starts another process of this binary.
    pub(crate) fn start_program(&mut self, key: &str, args: &[String]) -> Result<(), Error> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let started = NodeProcess::start(key, &args, &self.log(key), Stdio::null())?;
        self.running.insert(key.to_owned(), started);
        Ok(())
    }

    /// Kills one and waits until it is gone.
    pub(crate) async fn kill(&mut self, key: &str) {
        if let Some((process, mut child)) = self.running.remove(key) {
            process.signal(Signal::KILL);
            let _ = child.wait().await;
        }
    }

    pub(crate) fn freeze(&self, key: &str) {
        self.signal(key, Signal::STOP);
    }

    pub(crate) fn thaw(&self, key: &str) {
        self.signal(key, Signal::CONT);
    }

    /// Lets one run only now and then, for so long.
    pub(crate) fn starve(&self, key: &str, lasts: Duration) {
        let Some((process, _)) = self.running.get(key) else { return };
        let (process, ends) = (process.clone(), tokio::time::Instant::now() + lasts);
        tokio::spawn(async move {
            while tokio::time::Instant::now() < ends {
                process.signal(Signal::STOP);
                tokio::time::sleep(STARVED).await;
                process.signal(Signal::CONT);
                tokio::time::sleep(SCHEDULED).await;
            }
        });
    }

    /// Those that have ended by themselves, which they never do, and what they said last.
    pub(crate) fn exited(&mut self) -> Vec<(String, String)> {
        let ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        let keys: Vec<String> = self
            .running
            .iter_mut()
            .filter_map(|(key, (_, child))| ended(child).then(|| key.clone()))
            .collect();
        keys.into_iter().map(|key| (key.clone(), last_line(&self.log(&key)))).collect()
    }

    pub(crate) fn forget(&mut self, key: &str) {
        self.running.remove(key);
    }

    /// Kills all and waits until they are gone.
    pub(crate) async fn kill_all(&mut self) {
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
