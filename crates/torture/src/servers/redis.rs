//! Private Redis servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{Server, free_port, instead, program, scratch};

const PACKAGE: &str = "redis-server";

/// How long a server may take to answer what it answers in a moment, on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of a server that keeps every acknowledged write.
pub const DURABLE: &[&str] =
    &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];

/// Settings of a server as most people run it, here without even a snapshot.
pub const FORGETFUL: &[&str] = &["--appendonly", "no"];

/// Redis, or what `TENURE_TEST_REDIS_SERVER` names.
fn redis_server() -> PathBuf {
    instead("TENURE_TEST_REDIS_SERVER")
        .unwrap_or_else(|| program("redis-server", PACKAGE, &["/usr/bin", "/usr/local/bin"]))
}

/// A server that keeps every acknowledged write.
#[must_use]
pub fn durable() -> Server {
    start(DURABLE)
}

/// A server with these settings, in a directory and on a port of its own.
///
/// # Panics
/// If it does not start, or is not installed.
#[must_use]
pub fn start(settings: &[&str]) -> Server {
    start_in(scratch(), free_port(), settings)
}

/// A server on the data of an earlier one.
///
/// # Panics
/// If it does not start, or is not installed.
#[must_use]
pub fn start_in(dir: TempDir, port: u16, settings: &[&str]) -> Server {
    let mut command = Command::new(redis_server());
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.arg("--dir").arg(dir.path()).args(settings);
    let password = settings.windows(2).find(|pair| pair[0] == "--requirepass").map(|pair| pair[1]);
    Server::start("redis-server", dir, port, &mut command, |address| match password {
        Some(password) => is_ready_for(address, password),
        None => is_ready(address),
    })
}

/// A Sentinel that watches the server on `port` under the name `main`; `quorum` of them decide.
///
/// # Panics
/// If it does not start, or is not installed.
#[must_use]
pub fn sentinel(port: u16, quorum: u32) -> Server {
    let dir = scratch();
    let own = free_port();
    let file = dir.path().join("sentinel.conf");
    write_sentinel_file(&file, own, port, quorum);
    let mut command = Command::new(redis_server());
    command.arg(&file).arg("--sentinel");
    let sentinel = Server::start("redis-sentinel", dir, own, &mut command, is_ready);
    // A version that does not know this is slower, and no worse.
    let _ = query(sentinel.address(), &[&["SENTINEL", "DEBUG"][..], UNSHAKEN].concat());
    sentinel
}

/// A Sentinel that could not run for two seconds does nothing at all for the next thirty ("tilt"), and one that has not
/// heard of a server for ten seconds does not promote it: on a busy machine that is the rule.
const UNSHAKEN: &[&str] =
    &["tilt-trigger", "3600000", "tilt-period", "1000", "info-period", "1000", "publish-period", "500"];

fn write_sentinel_file(file: &Path, own: u16, port: u16, quorum: u32) {
    let text = format!(
        "port {own}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {port} {quorum}\n\
         sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n"
    );
    std::fs::write(file, text).expect("the configuration can be written");
}

/// Sends one command that must succeed.
///
/// # Panics
/// If it does not.
pub fn command(address: SocketAddr, words: &[&str]) {
    let answer = query(address, words);
    assert!(!answer.starts_with('-'), "{words:?}: {answer}");
}

/// Sends one command, each word one argument, and gives what came back, as Redis writes it.
///
/// # Panics
/// If the server cannot be reached.
#[must_use]
pub fn query(address: SocketAddr, words: &[&str]) -> String {
    try_query(address, words, PATIENCE).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// As [`query`], and waits no longer than this for each part of the answer.
///
/// # Errors
/// If the server cannot be reached, or does not answer.
pub fn try_query(address: SocketAddr, words: &[&str], patience: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all([request(words), request(&["PING", END])].concat().as_bytes())?;
    let (mut answer, mut some) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((answer, _)) = text.split_once(&format!("${}\r\n{END}\r\n", END.len())) {
            return Ok(answer.trim_end().to_owned());
        }
        if text.matches("-NOAUTH").count() == 2 {
            return Ok(text.into_owned());
        }
        match stream.read(&mut some)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => answer.extend_from_slice(&some[..length]),
        }
    }
}

/// What the answer to a last question is, so that everything before it has come.
const END: &str = "end-of-answer";

fn request(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>())
}

/// Whether it answers: with a pong, or by asking for a password.
fn is_ready(address: SocketAddr) -> bool {
    let answer = try_query(address, &["PING"], Duration::from_secs(5));
    answer.is_ok_and(|answer| answer.contains("PONG") || answer.contains("NOAUTH"))
}

/// Whether it answers those who know the password: it asks for one already while it loads its data.
fn is_ready_for(address: SocketAddr, password: &str) -> bool {
    try_query(address, &["AUTH", password], Duration::from_secs(1)).is_ok_and(|answer| answer.contains("OK"))
}

/// One figure of the server's own statistics, such as `run_id` or `total_commands_processed`.
///
/// # Panics
/// If the server does not tell it.
#[must_use]
pub fn info(address: SocketAddr, name: &str) -> String {
    let answer = query(address, &["INFO", "everything"]);
    let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("INFO tells no {name}")).trim().to_owned()
}
