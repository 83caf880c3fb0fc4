//! Stores, agents on them as processes, and plain HTTP over their sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tenure_torture::proxy::Proxy;
use tenure_torture::servers::mysql::Mysql;
use tenure_torture::servers::postgres::Postgres;
use tenure_torture::servers::{Server, redis};

/// Anything that happens at all has happened by then; nothing is judged by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// What a client says that campaigns, and what no page of another origin can say.
pub(crate) const CAMPAIGN: &str = "Tenure-Request: true\r\n";

/// A store of its own.
pub(crate) enum Store {
    File(TempDir),
    Redis(Server),
    Postgres(Postgres),
    Mysql(Mysql),
    /// Another one, through a link.
    Beyond(String),
}

impl Store {
    pub(crate) fn file() -> Self {
        Self::File(TempDir::new().unwrap())
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(redis::durable())
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Postgres::start(&[]))
    }

    pub(crate) fn mysql() -> Self {
        Self::Mysql(Mysql::start(&[]))
    }

    /// The same store through a link of its own; none if there is no wire.
    pub(crate) fn link(&self) -> Option<(Self, Proxy)> {
        let port = match self {
            Self::File(_) | Self::Beyond(_) => return None,
            Self::Redis(server) => server.port(),
            Self::Postgres(server) => server.port(),
            Self::Mysql(server) => server.port(),
        };
        let proxy = Proxy::to(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        let near = proxy.address().port();
        Some((Self::Beyond(self.url().replace(&format!(":{port}"), &format!(":{near}"))), proxy))
    }

    /// Stops the server, or lets it go on; a file cannot.
    pub(crate) fn freeze(&self, frozen: bool) {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        match (self, frozen) {
            (Self::File(_) | Self::Beyond(_), _) => {}
            (Self::Redis(server), _) => server.signal(signal),
            (Self::Postgres(server), true) => server.freeze(),
            (Self::Postgres(server), false) => server.thaw(),
            (Self::Mysql(server), true) => server.freeze(),
            (Self::Mysql(server), false) => server.thaw(),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::File(dir) => format!("sqlite:{}", dir.path().join("t.db").display()),
            Self::Redis(server) => format!("redis://127.0.0.1:{}/0", server.port()),
            Self::Postgres(server) => server.admin_url(),
            Self::Mysql(server) => server.admin_url(),
            Self::Beyond(url) => url.clone(),
        }
    }
}

/// A process that is killed when the test is over.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self { child: command.spawn().unwrap() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An agent, in a directory of its own.
pub(crate) struct Agent {
    pub(crate) process: Process,
    pub(crate) socket: PathBuf,
    dir: TempDir,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The command, without anything of this environment.
pub(crate) fn tenure() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("TENURE_") || text.starts_with("COORDINATOR_") || text == "NOTIFY_SOCKET" {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

impl Agent {
    /// An agent of that name, with more configuration; it answers when this returns. Its ttl is long, so that a machine
    /// that is busy does not cost it its roles.
    pub(crate) fn start(store: &Store, name: &str, more: &str) -> Self {
        Self::launch(store, name, more, |_| {})
    }

    /// The same with a short ttl, for those who wait for it to run out.
    pub(crate) fn hasty(store: &Store, name: &str, more: &str) -> Self {
        Self::launch(store, name, more, |command| _ = command.args(["--set", "timing.ttl=1s"]))
    }

    pub(crate) fn launch(store: &Store, name: &str, more: &str, change: impl FnOnce(&mut Command)) -> Self {
        Self::launch_into(store, name, more, None, change)
    }

    /// The same, with a place of its own for the log.
    pub(crate) fn launch_into(
        store: &Store,
        name: &str,
        more: &str,
        log: Option<Stdio>,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("agent.sock");
        write_config(dir.path(), store, name, more);
        let mut command = tenure();
        command.current_dir(dir.path()).args(["agent", "--config", "tenure.toml", "--socket"]).arg(&socket);
        change(&mut command);
        let file = || Stdio::from(std::fs::File::create(dir.path().join("log")).unwrap());
        command.stdin(Stdio::null()).stderr(log.unwrap_or_else(file)).stdout(Stdio::null());
        let mut agent = Self { process: Process::spawn(&mut command), socket, dir };
        eventually("the agent answers", || {
            assert_eq!(agent.process.ended(), None, "it exited: {}", agent.log());
            UnixStream::connect(&agent.socket).is_ok()
        });
        agent
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn rewrite(&self, store: &Store, name: &str, more: &str) {
        write_config(self.dir.path(), store, name, more);
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        try_ask(&self.socket, method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, Some(&body.to_string()))
    }

    /// Whether `/leader/{role}` says yes. An agent that does not answer does not lead.
    pub(crate) fn leads(&self, role: &str) -> bool {
        try_ask(&self.socket, "GET", &format!("/leader/{role}"), None)
            .is_ok_and(|answer| answer.status == 200)
    }

    pub(crate) fn role(&self, role: &str) -> Value {
        self.get(&format!("/v1/roles/{role}")).json()
    }

    /// The token of a role as this agent has seen it; 0 before that.
    pub(crate) fn token(&self, role: &str) -> u64 {
        self.role(role)["token"].as_u64().unwrap_or(0)
    }

    /// Waits until it has beaten a few times more: whatever a beat brings has come by then.
    pub(crate) fn beats(&self) {
        let beats = || self.metric("tenure_beat_seconds_count").unwrap();
        let before = beats();
        eventually("some beats pass", || beats() > before + 3.0);
    }

    /// A stream of events, from its beginning.
    pub(crate) fn stream(&self, path: &str, last: Option<&str>) -> Stream {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{CAMPAIGN}{last}\r\n").unwrap();
        let mut stream = Stream { lines: BufReader::new(stream) };
        let status = stream.line();
        assert!(status.contains(" 200 "), "{path}: {status}");
        while !stream.line().is_empty() {}
        stream
    }

    /// A metric, all its series added up; none if there is none.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let text = self.get("/metrics").body;
        let of = |line: &str| line.strip_prefix(series)?.rsplit(' ').next()?.parse::<f64>().ok();
        let found: Vec<f64> = text.lines().filter_map(of).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

fn write_config(dir: &Path, store: &Store, name: &str, more: &str) {
    let url = store.url();
    // What stands before the first table belongs to the top.
    let text = format!(
        "store = \"{url}\"\n[node]\nname = \"{name}\"\n[timing]\nttl = \"4s\"\ndrain = \"3s\"\n{more}\n"
    );
    write_private(&dir.join("tenure.toml"), &text);
}

/// A file that may hold secrets.
pub(crate) fn write_private(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// Server-sent events.
pub(crate) struct Stream {
    lines: BufReader<UnixStream>,
}

impl Stream {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next event, whole.
    pub(crate) fn next(&mut self) -> Value {
        let began = Instant::now();
        loop {
            let line = self.line();
            if let Some(data) = line.strip_prefix("data: ").or_else(|| line.strip_prefix("data:")) {
                return serde_json::from_str(data).unwrap();
            }
            assert!(began.elapsed() < PATIENCE, "no event");
        }
    }

    /// The next event of a kind.
    pub(crate) fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next();
            if event["event"] == kind {
                return event;
            }
        }
    }
}

pub(crate) fn try_ask(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&str>,
) -> std::io::Result<Answer> {
    let body = body.unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{CAMPAIGN}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    raw(UnixStream::connect(socket)?, format!("{head}{body}").as_bytes())
}

/// Sends these very bytes, and reads whatever comes back.
pub(crate) fn raw(mut stream: UnixStream, request: &[u8]) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // A client that is refused early may not read all of it.
    let _ = stream.write_all(request);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// The port that the agent says it listens on.
pub(crate) fn port(agent: &Agent) -> u16 {
    let found = || {
        let log = agent.log();
        let at = log.find("address=127.0.0.1:")? + "address=127.0.0.1:".len();
        log[at..].split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let mut port = None;
    eventually("it says where it listens", || {
        port = found();
        port.is_some()
    });
    port.unwrap()
}

pub(crate) fn tcp(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn over_tcp(port: u16, request: &str) -> Answer {
    let mut stream = tcp(port);
    let _ = stream.write_all(request.as_bytes());
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    parse(&String::from_utf8_lossy(&text))
}

/// A GET with these headers.
pub(crate) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.0\r\n{headers}\r\n")
}

pub(crate) fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Waits for something to become true; fails by name if it never does.
pub(crate) fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ready() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
