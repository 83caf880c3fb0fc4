//! The processes on the stage: started, killed, frozen, woken, and gone with the demo.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use tenure::Name;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::cluster::DemoEvent;
use crate::exit::Exit;
use tenure_process::clock::lease_now;
use tenure_torture::freeze::freeze_between_writes;
use tenure_torture::process::{NodeProcess, last_line};

/// A happening and when it was.
pub(super) type TimedEvent = (u64, DemoEvent);

/// The store that all members share.
pub(super) fn store_file(dir: &Path) -> PathBuf {
    dir.join("tenure.db")
}

/// All members that run.
#[derive(Debug)]
pub(super) struct DemoNodes {
    dir: PathBuf,
    events: UnboundedSender<TimedEvent>,
    running: BTreeMap<Name, RunningNode>,
}

#[derive(Debug)]
struct RunningNode {
    process: NodeProcess,
    pid: u32,
    watcher: JoinHandle<()>,
}

impl DemoNodes {
    /// No member yet; what happens to members will be told to `news`.
    pub(super) fn new(dir: PathBuf, events: UnboundedSender<TimedEvent>) -> Self {
        Self { dir, events, running: BTreeMap::new() }
    }

    /// Starts a member and returns its process id.
    ///
    /// To be called on the main thread: a member dies with the thread that started it.
    pub(super) fn start(&mut self, node: &Name) -> Result<u32, Exit> {
        let dir = self.dir.display().to_string();
        let args = ["demo", "--member", node.as_str(), "--dir", &dir];
        let (process, mut child) = NodeProcess::start(node.as_str(), &args, &self.log(node), Stdio::piped())?;
        let pid = child.id().unwrap_or_default();
        let output = child.stdout.take().expect("its output is a pipe");
        let watcher = tokio::spawn(watch(child, output, node.clone(), self.events.clone()));
        self.running.insert(node.clone(), RunningNode { process, pid, watcher });
        Ok(pid)
    }

    /// Kills a member; returns the instant just before.
    pub(super) fn kill(&self, node: &Name) -> u64 {
        self.signal(node, Signal::KILL)
    }

    /// Freezes a member between two of its writes, because others let it go on in the middle of one; returns the instant
    /// just before.
    pub(super) fn freeze(&self, node: &Name) -> u64 {
        let before = Cell::new(lease_now());
        if let Some(RunningNode { process, pid, .. }) = self.running.get(node) {
            freeze_between_writes(*pid, &store_file(&self.dir), |signal| {
                before.set(lease_now());
                process.signal(signal);
            });
        }
        before.get()
    }

    /// Wakes a member; returns the instant just before.
    pub(super) fn wake(&self, node: &Name) -> u64 {
        self.signal(node, Signal::CONT)
    }

    /// What a member said on its way out, if it said anything.
    pub(super) fn last_line(&self, node: &Name) -> String {
        last_line(&self.log(node))
    }

    /// Kills all and waits until they are gone and everything they said was heard.
    pub(super) async fn kill_all(&mut self) {
        for (_, node) in std::mem::take(&mut self.running) {
            node.process.signal(Signal::KILL);
            let _ = node.watcher.await;
        }
    }

    fn signal(&self, node: &Name, signal: Signal) -> u64 {
        let before = lease_now();
        if let Some(node) = self.running.get(node) {
            node.process.signal(signal);
        }
        before
    }

    fn log(&self, node: &Name) -> PathBuf {
        self.dir.join(format!("{node}.log"))
    }
}

/// Hears what a member says until it is gone, then reaps it.
async fn watch(mut child: Child, output: ChildStdout, node: Name, events: UnboundedSender<TimedEvent>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(report) = serde_json::from_str(&line) {
            let _ = events.send((lease_now(), DemoEvent::Reported { node: node.clone(), report }));
        }
    }
    let _ = child.wait().await;
    let _ = events.send((lease_now(), DemoEvent::Gone { node }));
}
