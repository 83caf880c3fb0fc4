//! Other ways to lead than the library: a command under `tenure run`, and a client of an agent.
//!
//! ```text
//!   node-1 ─┬─ the node itself (see `member`)
//!           ├─ node-1-run    tenure run ── a command, which acts for as long as it lives
//!           ├─ node-1-agent  tenure agent
//!           └─ node-1-client holds a stream to that agent open, and acts until the deadline that it was told
//! ```
//!
//! What is done to a node is done to all of its processes, but never to the command or the watchdog of `tenure run`: whatever
//! happens to `tenure run`, one of the two ends the command.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure::clock::lease_nanos;

use crate::Error;
use crate::judge::{NoteKind, NoteWriter};
use crate::member::{MemberOptions, Part};
use crate::witness;

/// So many nodes have such programs, the first ones.
pub(crate) const NODES: usize = 2;

/// The roles for which they stand: of these only safety is judged.
const COMMAND: &str = "command";
const CLIENT: &str = "client";
pub(crate) const ROLES: [&str; 2] = [COMMAND, CLIENT];

/// How often they act.
const PAUSE: Duration = Duration::from_millis(10);

/// How one of them is to take part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProgramOptions {
    name: String,
    life: u32,
    dir: PathBuf,
}

/// Every process beside the node itself, by name, with its arguments.
pub(crate) fn of(node: &MemberOptions) -> Result<Vec<(String, Vec<String>)>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Failed(error.to_string());
    let binary = std::env::current_exe().map_err(|error| failed(&error))?;
    let [run, agent, client] = names(&node.name);
    let part = |name: &str, part: fn(ProgramOptions) -> Part| {
        let options = ProgramOptions { name: name.to_owned(), life: node.life, dir: node.dir.clone() };
        serde_json::to_string(&part(options)).map_err(|error| failed(&error))
    };
    let words = |words: &[&[&str]]| words.concat().into_iter().map(str::to_owned).collect::<Vec<String>>();
    let store: &[&str] = &["--store", &node.store, "--namespace", &node.namespace];
    let (ttl, binary) = (format!("{}ms", node.ttl.as_millis()), binary.to_string_lossy());
    let command = part(&run, Part::Command)?;
    let running: &[&str] =
        &["run", "--quiet", "--role", COMMAND, "--node", &run, "--ttl", &ttl, "--drain", "1s"];
    let running = words(&[store, running, &["--", &binary, "torture", "--member", &command]]);
    let (timing, socket) = (format!("timing.ttl={ttl}"), socket(&node.dir, &client));
    let serving: &[&str] =
        &["agent", "--node", &agent, "--set", &timing, "--socket", &socket.to_string_lossy()];
    let serving = words(&[store, serving]);
    let campaigning = words(&[&["torture", "--member", &part(&client, Part::Client)?]]);
    Ok(vec![(run, running), (agent, serving), (client, campaigning)])
}

/// How the processes beside a node are called.
pub(crate) fn names(node: &str) -> [String; 3] {
    ["run", "agent", "client"].map(|what| format!("{node}-{what}"))
}

fn socket(dir: &Path, client: &str) -> PathBuf {
    dir.join(format!("{client}.sock"))
}

/// What `tenure run` runs: it acts until it is killed.
pub(crate) fn command(options: &ProgramOptions) -> Result<(), Error> {
    let token = std::env::var("TENURE_TOKEN").ok().and_then(|token| token.parse().ok());
    let token: u64 = token.ok_or_else(|| Error::Failed("there is no TENURE_TOKEN".to_owned()))?;
    // Of one `tenure run` there are as many commands as it has tenures.
    let life = options.life.wrapping_mul(1 << 16) ^ std::process::id();
    let pen = notes(options, life)?;
    loop {
        act(&pen, COMMAND, token);
        std::thread::sleep(PAUSE);
    }
}

/// A client of an agent: it acts until the deadline that it was told last.
pub(crate) fn client(options: &ProgramOptions) -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Error::Failed(error.to_string()))?;
    let pen = notes(options, options.life)?;
    let lease = Lease::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                lease.act(&pen);
                std::thread::sleep(PAUSE);
            }
        });
        loop {
            // An agent that is not there yet, or any more, is asked again.
            let _ = campaign(&socket(&options.dir, &options.name), &lease);
            lease.deadline.store(0, Ordering::SeqCst);
            std::thread::sleep(10 * PAUSE);
        }
    })
}

fn notes(options: &ProgramOptions, life: u32) -> Result<NoteWriter, Error> {
    NoteWriter::in_dir(&options.dir, &options.name, life)
        .map_err(|error| Error::Failed(format!("cannot write notes: {error}")))
}

fn act(pen: &NoteWriter, role: &str, token: u64) {
    let role = role.to_owned();
    pen.note(NoteKind::Act { role, token, leads: true, until: 0 });
}

/// What a client was told: until when on the boot clock, and under which token.
#[derive(Debug, Default)]
struct Lease {
    deadline: AtomicU64,
    token: AtomicU64,
}

impl Lease {
    /// The instant is read before the deadline is asked; the token is stored before the deadline.
    fn act(&self, pen: &NoteWriter) {
        let (t, until) = (lease_nanos(), self.deadline.load(Ordering::SeqCst));
        let token = self.token.load(Ordering::SeqCst);
        if witness::now() < until && until == self.deadline.load(Ordering::SeqCst) {
            pen.note_at(t, NoteKind::Act { role: CLIENT.to_owned(), token, leads: true, until: 0 });
        }
    }

    fn hear(&self, event: &Value) {
        self.deadline.store(0, Ordering::SeqCst);
        if matches!(event["event"].as_str(), Some("elected" | "renewed")) {
            self.token.store(event["token"].as_u64().unwrap_or(0), Ordering::SeqCst);
            let seconds = event["deadline"]["uptime"].as_f64().unwrap_or(0.0);
            self.deadline.store((seconds * 1e9) as u64, Ordering::SeqCst);
        }
    }
}

/// Holds a stream open, which is the candidacy, until it ends.
fn campaign(socket: &Path, lease: &Lease) -> std::io::Result<()> {
    let mut agent = UnixStream::connect(socket)?;
    // Of the older version, whose answers come as they are and not in chunks.
    agent.write_all(
        format!("GET /v1/campaign/{CLIENT} HTTP/1.0\r\nHost: localhost\r\nTenure-Request: true\r\n\r\n")
            .as_bytes(),
    )?;
    for line in BufReader::new(agent).lines() {
        let line = line?;
        let Some(event) =
            line.strip_prefix("data:").and_then(|text| serde_json::from_str::<Value>(text).ok())
        else {
            continue;
        };
        lease.hear(&event);
        if event["event"] == "draining" {
            ready(socket, &event)?;
        }
    }
    Ok(())
}

/// It has stopped, and says so.
fn ready(socket: &Path, event: &Value) -> std::io::Result<()> {
    let body = serde_json::json!({ "token": event["token"], "campaign": event["campaign"] }).to_string();
    let mut agent = UnixStream::connect(socket)?;
    agent.set_read_timeout(Some(Duration::from_secs(5)))?;
    let head = format!("POST /v1/campaign/{CLIENT}/ready HTTP/1.0\r\nHost: localhost\r\n");
    let head = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    agent.write_all(format!("{head}{body}").as_bytes())?;
    agent.read_to_end(&mut Vec::new()).map(|_| ())
}
