//! A leader that is really frozen, as a process, in the middle of a fenced transaction: another is elected and goes to
//! work, and when the first one goes on it cannot commit.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::fence_kit::{Client, PATIENCE, fresh, lines, soon, write};
use rustix::process::{Pid, Signal, kill_process};
use tenure::{Candidate, Node};
use tenure_torture::servers::postgres::Postgres;

const TTL: Duration = Duration::from_secs(2);

/// What tells a copy of this very program to be the old leader: where the database is.
const PART: &str = "TENURE_TEST_OLD_LEADER";

type Database = tokio_postgres::Client;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_neither_commits_nor_holds_up_the_next() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    let url = server.admin_url();
    fresh::<Database>(&url).await;
    let mut old = OldLeader::start(&url);
    old.says("fenced");
    let (node, candidate) = stand(&url, "new").await;
    old.signal(Signal::STOP);

    let token = work(&candidate, &url, "new").await;
    assert!(token > 1, "it was elected after the other");
    assert_eq!(lines::<Database>(&url).await, 1, "the other's line is not there");
    old.signal(Signal::CONT);
    old.input.write_all(b"go on\n").unwrap();
    old.says("commit failed");
    old.says("fence refused");
    assert_eq!(lines::<Database>(&url).await, 1, "and never was");
    soon(node.stop()).await;
}

async fn stand(url: &str, name: &str) -> (Node, Candidate) {
    let node = Node::builder(url).name(name).ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    (node, candidate)
}

/// Leads, fences and writes a line; again if the machine is too busy to do it in one tenure. Gives the token.
async fn work(candidate: &Candidate, url: &str, line: &str) -> u64 {
    loop {
        let mut client = <Database as Client>::connect(url).await;
        let tenure = soon(candidate.elected()).await.expect("it is elected");
        let mut tx = client.transaction().await.unwrap();
        if tenure.fence(&mut tx, "ledger").await.is_ok()
            && write(&mut tx, line).await.is_ok()
            && tx.commit().await.is_ok()
        {
            return tenure.token().get();
        }
    }
}

/// The process. Dropping it kills it.
struct OldLeader {
    child: Child,
    input: ChildStdin,
    output: mpsc::Receiver<String>,
}

impl OldLeader {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "fence_frozen::acts_as_the_old_leader", "--nocapture"]).env(PART, url);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || lines.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { child, input, output }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it says so.
    fn says(&self, text: &str) {
        while !self.output.recv_timeout(PATIENCE).expect(text).contains(text) {}
    }
}

impl Drop for OldLeader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what a copy of this program does when it is told to be the old leader. It fences and writes, waits to be
/// told to go on, and tries to commit, and to begin again.
#[test]
fn acts_as_the_old_leader() {
    let Ok(url) = std::env::var(PART) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (_node, candidate) = stand(&url, "old").await;
        let mut client = <Database as Client>::connect(&url).await;
        let (tenure, mut tx) = loop {
            let tenure = soon(candidate.elected()).await.unwrap();
            let mut tx = client.transaction().await.unwrap();
            match tenure.fence(&mut tx, "ledger").await {
                Ok(()) => break (tenure, tx),
                Err(_) => tx.rollback().await.unwrap(),
            }
        };
        write(&mut tx, "old").await.unwrap();
        println!("\nfenced");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let committed = tx.commit().await;
        println!("\n{}", if committed.is_err() { "commit failed" } else { "committed" });
        let mut client = <Database as Client>::connect(&url).await;
        let mut tx = client.transaction().await.unwrap();
        let fenced = tenure.fence(&mut tx, "ledger").await;
        println!("\n{}", if fenced.is_err() { "fence refused" } else { "fence passed" });
    });
    std::process::exit(0);
}
