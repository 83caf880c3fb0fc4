//! A place with a store of its own, the `tenure` command on it, and nodes as processes that can be killed and frozen.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tenure::store::{Epoch, Key, Name, Query, Version, Write};

/// Long enough for anything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Within this a store that no node holds can be written.
const FREE: Duration = Duration::from_secs(3);
/// What tells a copy of this very program that it is to be a node.
const PART: &str = "TENURE_TEST_NODE";

/// A directory with a store in it.
pub(crate) struct TestDir {
    dir: tempfile::TempDir,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().join("t.db").display())
    }

    /// The command, on this place's store.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("TENURE_STORE", self.url()).current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        ran(self.command(args).output().unwrap())
    }

    /// Runs it, expects that all is well, and reads the JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--format", "json"]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// One role of `status`.
    pub(crate) fn role(&self, role: &str) -> Value {
        let status = self.run(&["status", "--format", "json"]);
        let status: Value = serde_json::from_str(&status.out).unwrap();
        let roles = status["roles"].as_array().unwrap().clone();
        roles.into_iter().find(|report| report["role"] == role).unwrap_or(Value::Null)
    }

    /// Waits until a role is as it should be.
    pub(crate) fn until(&self, role: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.role(role);
            if wanted(&found) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{role} is still {found}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A node that stands for roles, as a process of its own. It has joined, and stands, when this returns.
    pub(crate) fn node(&self, name: &str, roles: &[&str]) -> NodeProcess {
        self.node_process(name, roles, &[])
    }

    /// The same with more to say: `ttl`, `address`, `label`, `wind` (how long its work takes to end), `priority`.
    pub(crate) fn node_process(&self, name: &str, roles: &[&str], more: &[(&str, &str)]) -> NodeProcess {
        let mut part = serde_json::json!({ "store": self.url(), "name": name, "roles": roles });
        for (key, value) in more {
            part[*key] = Value::from(*value);
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "kit::is_node_process", "--nocapture"]).env(PART, part.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let joined = lines.map_while(Result::ok).any(|line| line.contains("joined"));
        assert!(joined, "{name} did not join");
        NodeProcess { child }
    }

    /// Roles that `a` led, and gave up cleanly.
    pub(crate) fn vacant(&self, roles: &[&str]) {
        let a = self.node("a", roles);
        for role in roles {
            self.until(role, |found| found["leader"] == "a");
        }
        a.stop();
        for role in roles {
            self.until(role, |found| found["state"] == "vacant");
        }
    }

    /// The registers themselves, and the life of the store in which they are.
    pub(crate) async fn registers(&self) -> (tenure::SharedStore, Name, Epoch) {
        let store = tenure::store::open(&self.url()).unwrap();
        let namespace = Name::new("default").unwrap();
        let query = Query { keys: vec![Key::Cluster], kinds: Vec::new() };
        let cluster = store.read(&namespace, &query).await.unwrap().remove(0);
        let cluster: Value = cluster.value.parse().unwrap();
        (store, namespace, Epoch::new(cluster["epoch"].as_u64().unwrap()))
    }

    /// Freezes a node, but not in the middle of a commit: it would keep every other node from writing, which is another
    /// story than that of a leader which falls silent.
    pub(crate) fn freeze(&self, node_process: &NodeProcess) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = tenure::store::open(&self.url()).unwrap();
            let namespace = Name::new("freezing").unwrap();
            loop {
                node_process.signal(Signal::STOP);
                let version = Version::new(u128::from(std::process::id()));
                let key = Key::Session(Epoch::new(1), tenure::SessionId::new(1));
                let put = Some((version, tenure::store::Value::of(&"frozen", None)));
                let write = Write { key, expect: None, put, notify: false, requires_lock: false };
                let written = tokio::time::timeout(FREE, store.write(&namespace, &[write])).await;
                if matches!(written, Ok(Ok(_))) {
                    return;
                }
                node_process.signal(Signal::CONT);
            }
        });
    }

    /// A role led by `a`, with `b` next in line.
    pub(crate) fn led(&self, role: &str) -> [NodeProcess; 2] {
        let a = self.node("a", &[role]);
        self.until(role, |found| found["leader"] == "a");
        let b = self.node("b", &[role]);
        self.until(role, |found| found["candidates"][0] == "b");
        [a, b]
    }
}

/// The command without a store of its own.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    for name in [
        "TENURE_STORE",
        "TENURE_NAMESPACE",
        "TENURE_TTL",
        "TENURE_TAKEOVER",
        "TENURE_GRACE",
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "TENURE_LOG",
    ] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null()).env("USER", "tester");
    command
}

pub(crate) fn ran(output: Output) -> CommandOutput {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A node as a process. Dropping it kills it.
pub(crate) struct NodeProcess {
    child: Child,
}

impl NodeProcess {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills it, and returns when it is dead.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it stop cleanly, and returns when it has.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what a copy of this program does when it is told to be a node. It stops when its input ends.
#[test]
fn is_node_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let part: Value = serde_json::from_str(&part).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(run_node(part));
    std::process::exit(0);
}

async fn run_node(part: Value) {
    let text = |key: &str| part[key].as_str().map(str::to_owned);
    let millis = |key: &str| text(key).map(|text| Duration::from_millis(text.parse().unwrap()));
    let mut node = tenure::Node::builder(text("store").unwrap()).name(text("name").unwrap());
    node = node.ttl(millis("ttl").unwrap_or(Duration::from_secs(3)));
    if let Some(address) = text("address") {
        node = node.address(address);
    }
    if let Some((key, value)) = text("label").as_deref().and_then(|label| label.split_once('=')) {
        node = node.label(key, value);
    }
    let node = node.start().await.unwrap();
    let wind = millis("wind").unwrap_or_default();
    let priority = text("priority").map_or(0, |text| text.parse().unwrap());
    for role in part["roles"].as_array().unwrap() {
        let candidate = node.candidate(role.as_str().unwrap()).priority(priority).await.unwrap();
        tokio::spawn(async move {
            while let Some(tenure) = candidate.elected().await {
                let work = |lead: tenure::Lead| async move {
                    lead.draining().await;
                    tokio::time::sleep(wind).await;
                };
                let _ = tenure.hold(work).await;
            }
        });
    }
    println!("joined");
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = input.await;
    node.stop().await;
}

/// The keys of an object, in order.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object")).keys().map(String::as_str).collect()
}

/// Asserts that it is RFC 3339 in UTC with milliseconds.
pub(crate) fn assert_stamp(value: &Value) {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no time"));
    let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(form, "0000-00-00T00:00:00.000Z", "{text}");
}
