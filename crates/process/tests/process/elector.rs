//! The elector under test, as a process of its own: it does what it is told over a socket.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tenure_process::clock::lease_now;
use tenure_process::{Child, Command, Ended, Exit, Guard, GuardError, GuardOptions};

/// What a test can ask of the elector.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    Launch { stop_grace_ms: u64, kill_slack_ms: u64 },
    Lock { path: String },
    Unlock,
    Prepare,
    Start { program: String, args: Vec<String>, env: Vec<(String, String)>, cwd: Option<String>, ttl_ms: u64 },
    Renew { ttl_ms: u64 },
    Signal { signal: i32 },
    Stop { grace_ms: u64 },
    Kill,
    Wait,
    DropChild,
    Close,
    Descriptors,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Launched { watchdog: i32 },
    Started { pid: i32, deadline: u64 },
    NotStarted { code: i32, message: String },
    Renewed { deadline: u64 },
    Ended { exit: Exit, leftovers: bool, killed: bool },
    Count(usize),
    TooLate,
    Lost,
}

#[derive(Default)]
struct Elector {
    guard: Option<Guard>,
    child: Option<Child>,
    lock: Option<File>,
}

/// Serves one test until it closes the socket.
pub(crate) fn play() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut socket = UnixStream::connect(std::env::var("TENURE_TEST_SOCKET").unwrap()).unwrap();
    let lines = BufReader::new(socket.try_clone().unwrap()).lines();
    let mut elector = Elector::default();
    for line in lines {
        let ask = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = runtime.block_on(elector.obey(ask));
        writeln!(socket, "{}", serde_json::to_string(&answer).unwrap()).unwrap();
    }
    std::process::exit(0);
}

impl Elector {
    async fn obey(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Launch { stop_grace_ms, kill_slack_ms } => self.launch(stop_grace_ms, kill_slack_ms).await,
            Ask::Lock { path } => self.lock(&path).await,
            Ask::Unlock => done(&self.guard.as_ref().unwrap().release_lock().await),
            Ask::Prepare => {
                self.guard.as_ref().unwrap().prepare();
                Answer::Done
            }
            Ask::Start { program, args, env, cwd, ttl_ms } => {
                let command = Command {
                    program: program.into(),
                    args: args.into_iter().map(Into::into).collect(),
                    env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
                    cwd: cwd.map(Into::into),
                };
                self.start(command, ttl_ms).await
            }
            Ask::Renew { ttl_ms } => {
                let deadline = lease_now() + ttl_ms * 1_000_000;
                self.child.as_ref().unwrap().renew(deadline);
                Answer::Renewed { deadline }
            }
            Ask::Signal { signal } => {
                self.child.as_ref().unwrap().signal(signal);
                Answer::Done
            }
            Ask::Stop { grace_ms } => {
                ended(self.child.as_mut().unwrap().stop(Duration::from_millis(grace_ms)).await)
            }
            Ask::Kill => ended(self.child.as_mut().unwrap().kill().await),
            Ask::Wait => ended(self.child.as_mut().unwrap().wait().await),
            Ask::DropChild => {
                self.child = None;
                Answer::Done
            }
            Ask::Close => {
                self.guard.take().unwrap().close().await;
                Answer::Done
            }
            Ask::Descriptors => Answer::Count(std::fs::read_dir("/proc/self/fd").unwrap().count()),
        }
    }

    async fn launch(&mut self, stop_grace_ms: u64, kill_slack_ms: u64) -> Answer {
        let (stop_grace, kill_slack) =
            (Duration::from_millis(stop_grace_ms), Duration::from_millis(kill_slack_ms));
        // A guard that was lost kills every process that came after it, this one's next watchdog too: it goes first.
        if let Some(lost) = self.guard.take() {
            lost.lost().await;
        }
        let binary = env!("CARGO_BIN_EXE_tenure-watchdog").into();
        let guard = Guard::launch(GuardOptions { binary, ..GuardOptions::new(stop_grace, kill_slack) }).await;
        let guard = self.guard.insert(guard.unwrap());
        Answer::Launched { watchdog: i32::try_from(guard.watchdog_pid()).unwrap() }
    }

    async fn lock(&mut self, path: &str) -> Answer {
        let file = File::create(path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let copy = OwnedFd::from(file.try_clone().unwrap());
        let answer = done(&self.guard.as_ref().unwrap().adopt_lock(copy).await);
        self.lock = Some(file);
        answer
    }

    async fn start(&mut self, command: Command, ttl_ms: u64) -> Answer {
        let deadline = lease_now() + ttl_ms * 1_000_000;
        match self.guard.as_mut().unwrap().start(command, deadline).await {
            Ok(child) => {
                let pid = child.pid();
                self.child = Some(child);
                Answer::Started { pid, deadline }
            }
            Err(GuardError::Start { code, message, .. }) => Answer::NotStarted { code, message },
            Err(GuardError::TooLate) => Answer::TooLate,
            Err(_) => Answer::Lost,
        }
    }
}

fn ended(ended: Ended) -> Answer {
    Answer::Ended { exit: ended.exit, leftovers: ended.leftovers, killed: ended.killed }
}

fn done(result: &Result<(), GuardError>) -> Answer {
    if result.is_ok() { Answer::Done } else { Answer::Lost }
}
