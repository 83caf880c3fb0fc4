//! A store, nodes with tasks as processes that can be killed, and the `tenure` command.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure::Node;
use tenure::schedule::{Schedule, Task, TaskSettings};
use tenure_agent::task::{CommandRunner, HttpRunner, HttpSettings};

/// Long enough for anything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// What tells a copy of this very program that it is to be a node.
const PART: &str = "TENURE_TEST_NODE";

/// A directory with a store in it.
pub(crate) struct TestDir {
    pub(crate) dir: tempfile::TempDir,
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

    pub(crate) fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.file("t.db"))
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(args).stdin(Stdio::null()).env("TENURE_STORE", self.url()).env("USER", "tester");
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        CommandOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--format", "json"]].concat());
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// Waits until the history of a task has such a run.
    pub(crate) fn until_run(&self, task: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let ran = self.run(&["task", "history", task, "--format", "json", "-n", "200"]);
            let found = serde_json::from_str::<Value>(&ran.out).unwrap_or_default();
            let runs = found["runs"].as_array().cloned().unwrap_or_default();
            if let Some(run) = runs.into_iter().find(&wanted) {
                return run;
            }
            assert!(begun.elapsed() < PATIENCE, "still {ran:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A node with tasks, as a process of its own.
    pub(crate) fn node(&self, name: &str, tasks: &[Value]) -> NodeProcess {
        let part = json!({ "store": self.url(), "name": name, "tasks": tasks });
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kit::is_node_process", "--nocapture"])
            .env(PART, part.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let node_process = NodeProcess { child };
        assert!(lines.any(|line| line.contains("joined")), "{name} did not join");
        // The output of a process must be read.
        std::thread::spawn(move || lines.for_each(drop));
        node_process
    }
}

/// A task that runs often, with these settings.
pub(crate) fn often(name: &str, more: &Value) -> Value {
    let mut settings = json!({ "name": name, "every": "200ms", "history": 200 });
    let Value::Object(more) = more else { panic!("settings are an object") };
    for (key, value) in more {
        settings[key] = value.clone();
    }
    settings
}

/// A node as a process. Dropping it kills it.
pub(crate) struct NodeProcess {
    child: Child,
}

impl NodeProcess {
    /// Lets it stop cleanly, and returns when it has.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
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
    runtime.block_on(run_node(&part));
    std::process::exit(0);
}

async fn run_node(part: &Value) {
    let text = |key: &str| part[key].as_str().unwrap().to_owned();
    // So long that a busy machine misses no lease by itself; only a test that kills a node waits for it.
    let ttl = Duration::from_secs(5);
    let node = Node::builder(text("store")).name(text("name")).ttl(ttl).start().await.unwrap();
    let mut schedule = Schedule::new();
    for settings in part["tasks"].as_array().unwrap() {
        schedule = schedule.task(task(settings.clone())).unwrap();
    }
    let stand = node.candidate("scheduler").drain(Duration::from_millis(500));
    let leading = tokio::spawn(async move { schedule.lead(stand).await });
    println!("joined");
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = input.await;
    node.stop().await;
    leading.await.unwrap().unwrap();
}

/// As [`tenure_agent::task::TaskConfig::task`]; but this program cannot be its own watchdog.
fn task(mut json: Value) -> Task {
    let mut take = |key: &str| json.as_object_mut().unwrap().remove(key);
    let (command, http) = (take("command"), take("http"));
    let settings: TaskSettings = serde_json::from_value(json).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(command) = command {
        let command: Vec<String> = command.as_array().unwrap().iter().map(text).collect();
        let runner = CommandRunner::new(&command).watchdog(env!("CARGO_BIN_EXE_tenure").into());
        return Task::with_runner(settings, Arc::new(runner)).unwrap();
    }
    let Some(http) = http else {
        return Task::new(settings, |_| async { Ok::<(), String>(()) }).unwrap();
    };
    let headers = serde_json::from_value(http["headers"].clone()).unwrap_or_default();
    let (url, body) = (text(&http["url"]), text(&http["body"]));
    let call = HttpSettings { url, method: "POST".to_owned(), headers, body };
    Task::with_runner(settings, Arc::new(HttpRunner::new(call, Default::default()))).unwrap()
}
