//! An agent at rest and under load: `cargo bench -p tenure-cli --bench agent`.
//!
//! At rest: how much memory and how much of a core it takes. Under load: 2 000 clients of the event stream and 5 000
//! requests of `/leader/{role}` a second, and whether a beat was missed meanwhile. `TENURE_SECONDS` says for how long each
//! (20 by default). It fails if what `docs/guides/agent.md` says of it does not hold.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const STREAMS: u64 = 2000;
const RATE: u64 = 5000;
const CONNECTIONS: u64 = 50;

/// An agent on a file of its own; killed when this is gone.
struct Agent {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = tenure_torture::servers::free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(["agent", "--node", "a", "--role", "job", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--store").arg(format!("sqlite:{}", dir.path().join("t.db").display()));
        command.arg("--socket").arg(dir.path().join("agent.sock")).current_dir(dir.path());
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("an agent");
        Self { child, port, _dir: dir }
    }

    async fn get(&self, path: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)).await else { return String::new() };
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        let mut text = String::new();
        if stream.write_all(request.as_bytes()).await.is_ok() {
            let _ = stream.read_to_string(&mut text).await;
        }
        text
    }

    async fn leads(&self) {
        while !self.get("/leader/job").await.starts_with("HTTP/1.0 200") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await;
        let line = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.rsplit(' ').next());
        line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
    }

    /// Resident memory in MiB, and seconds of a core.
    fn costs(&self) -> (f64, f64) {
        let read = |file: &str| {
            std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default()
        };
        let status = read("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 =
            resident.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN);
        let stat = read("stat");
        let times: Vec<f64> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .skip(11)
            .take(2)
            .filter_map(|text| text.parse().ok())
            .collect();
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        (kib / 1024.0, times.iter().sum::<f64>() / hertz)
    }
}

#[tokio::main]
async fn main() {
    raise_file_limit();
    let span = std::env::var("TENURE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let span = Duration::from_secs(span);
    let agent = Arc::new(Agent::start());
    agent.leads().await;
    let at_rest = rest(&agent, span).await;
    let under_load = load(&agent, span).await;
    assert!(at_rest && under_load, "what docs/guides/agent.md says of it does not hold");
}

/// This process holds the other end of every stream.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("as many open files as the system allows");
}

async fn rest(agent: &Agent, span: Duration) -> bool {
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (_, before) = agent.costs();
    tokio::time::sleep(span).await;
    let (resident, after) = agent.costs();
    let share = 100.0 * (after - before) / span.as_secs_f64();
    println!("at rest: {resident:.1} MiB (at most 25), {share:.2} % of a core (at most 0.2)");
    resident <= 25.0 && share <= 0.2
}

async fn load(agent: &Arc<Agent>, span: Duration) -> bool {
    let (open, answered, slowest) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for _ in 0..STREAMS {
        tokio::spawn(follow(agent.port, open.clone()));
    }
    let began = Instant::now();
    while open.load(Ordering::SeqCst) < STREAMS && began.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let missed =
        async || agent.metric("tenure_beat_failures_total").await + agent.metric("tenure_doubts_total").await;
    let (before, (_, cpu)) = (missed().await, agent.costs());
    let until = Instant::now() + span;
    let askers =
        (0..CONNECTIONS).map(|_| tokio::spawn(ask(agent.port, until, answered.clone(), slowest.clone())));
    for asker in askers.collect::<Vec<_>>() {
        let _ = asker.await;
    }
    let (after, (resident, later)) = (missed().await, agent.costs());
    let rate = answered.load(Ordering::SeqCst) as f64 / span.as_secs_f64();
    let streams = open.load(Ordering::SeqCst);
    let share = 100.0 * (later - cpu) / span.as_secs_f64();
    let worst = slowest.load(Ordering::SeqCst) as f64 / 1000.0;
    println!(
        "under load: {streams} event streams, {rate:.0} requests a second, the slowest {worst:.1} ms, {} beats missed, \
         {resident:.1} MiB, {share:.0} % of a core",
        after - before
    );
    streams >= STREAMS && rate >= 0.99 * RATE as f64 && after == before
}

/// A client of the event stream; counts itself while the stream is open.
async fn follow(port: u16, open: Arc<AtomicU64>) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    if stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_err() {
        return;
    }
    let mut lines = BufReader::new(stream).lines();
    if !matches!(lines.next_line().await, Ok(Some(status)) if status.contains(" 200 ")) {
        return;
    }
    open.fetch_add(1, Ordering::SeqCst);
    while let Ok(Some(_)) = lines.next_line().await {}
    open.fetch_sub(1, Ordering::SeqCst);
}

/// Asks at its share of the rate over one connection, whether the last answer was early or late.
async fn ask(port: u16, until: Instant, answered: Arc<AtomicU64>, slowest: Arc<AtomicU64>) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let _ = stream.set_nodelay(true);
    let pause = Duration::from_micros(1_000_000 * CONNECTIONS / RATE);
    let (mut next, mut buffer) = (Instant::now(), vec![0; 4096]);
    while Instant::now() < until {
        tokio::time::sleep_until(next.into()).await;
        let asked = Instant::now();
        if stream.write_all(b"GET /leader/job HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_err() {
            return;
        }
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) if buffer[..length].starts_with(b"HTTP/1.1 200") => {
                answered.fetch_add(1, Ordering::SeqCst);
                slowest.fetch_max(asked.elapsed().as_micros() as u64, Ordering::SeqCst);
            }
            _ => return,
        }
        next += pause;
    }
}
