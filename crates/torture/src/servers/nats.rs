//! Private NATS servers with JetStream: one, or a group of them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::group::{Members, is_group};
use super::{Server, built, free_port, scratch};

/// How long servers may take for what they do in a moment, on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// What every server is told: registers may be long, and an acknowledged write is on disk.
const SETTINGS: &str = "max_payload: 2MB\nlame_duck_duration: 30s\nlame_duck_grace_period: 1s\n";

/// A group of servers.
#[derive(Debug)]
pub struct Nats {
    members: Members<NatsPorts>,
    settings: String,
    /// As whom it is asked: what a `CONNECT` says of it.
    admin: String,
    /// Whether clients speak TLS, so that only they can ask it.
    encrypted: bool,
}

is_group!(Nats, NatsPorts);

/// How servers reach each other, and are asked how they are.
#[derive(Debug)]
pub struct NatsPorts {
    peer: u16,
    /// Where it tells people how it is.
    monitor: u16,
    /// Where it reaches the others.
    routes: Vec<SocketAddr>,
}

impl Nats {
    /// So many servers that know each other, with these lines of configuration beside those that every one needs.
    ///
    /// # Panics
    /// If they do not start, or NATS is not installed.
    #[must_use]
    pub fn start(count: usize, settings: &str) -> Self {
        Self::start_as(count, settings, "")
    }

    /// The same for servers that ask for a login: `admin` is what a `CONNECT` says of one who may do everything.
    ///
    /// # Panics
    /// If they do not start, or NATS is not installed.
    #[must_use]
    pub fn start_as(count: usize, settings: &str, admin: &str) -> Self {
        let direct = |_, _, port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self::start_with(count, settings, admin, direct, scratch)
    }

    /// The same, where each server reaches each other one at what `link` makes of both and of the port that the other one
    /// listens on, and keeps its data where `folder` says.
    ///
    /// # Panics
    /// If they do not start, or NATS is not installed.
    #[must_use]
    pub fn start_with(
        count: usize,
        settings: &str,
        admin: &str,
        mut link: impl FnMut(usize, usize, u16) -> SocketAddr,
        folder: impl FnMut() -> TempDir,
    ) -> Self {
        let peers: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let ports = |nth: usize| NatsPorts {
            peer: peers[nth],
            monitor: free_port(),
            routes: (0..count)
                .filter(|other| *other != nth)
                .map(|other| link(nth, other, peers[other]))
                .collect(),
        };
        let members = Members::new((0..count).map(ports), folder);
        let mut this =
            Self { members, settings: settings.to_owned(), admin: admin.to_owned(), encrypted: false };
        this.encrypted = this.settings.contains("tls {");
        this.launch_all();
        this
    }

    /// Starts every server that is down, and waits until JetStream answers.
    ///
    /// # Panics
    /// If they do not come up.
    pub fn launch_all(&mut self) {
        (0..self.count()).for_each(|nth| self.launch(nth));
        self.wait_until_ready();
    }

    /// Other lines of configuration, and the login that goes with them, which count once a server has read them anew.
    pub fn configure(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
        for nth in 0..self.count() {
            let text = self.configuration(nth);
            if let Some(server) = self.server(nth) {
                let file = server.dir().join("nats.conf");
                let text = text.replace(DIRECTORY, &server.dir().display().to_string());
                std::fs::write(file, text).expect("a configuration can be written");
                server.signal(Signal::HUP);
            }
        }
    }

    /// Which server leads the stream of a bucket, as far as the servers that answer know.
    #[must_use]
    pub fn leader(&self, bucket: &str) -> Option<usize> {
        let info = self.api(&format!("STREAM.INFO.KV_{bucket}"), "").ok()?;
        info["cluster"]["leader"].as_str()?.strip_prefix('m')?.parse().ok()
    }

    /// Lets another server lead the stream of a bucket.
    ///
    /// # Errors
    /// If no server answers, or it refuses.
    pub fn step_down(&self, bucket: &str) -> Result<(), String> {
        self.api(&format!("STREAM.LEADER.STEPDOWN.KV_{bucket}"), "").map(drop)
    }

    /// Deletes every key of a bucket that a subject fits, without a trace.
    ///
    /// # Errors
    /// If no server answers, or it refuses.
    pub fn purge(&self, bucket: &str, keys: &str) -> Result<u64, String> {
        let question = format!("{{\"filter\":\"$KV.{bucket}.{keys}\"}}");
        let answer = self.api(&format!("STREAM.PURGE.KV_{bucket}"), &question)?;
        Ok(answer["purged"].as_u64().unwrap_or_default())
    }

    /// Asks the interface of JetStream, at the first server that answers.
    ///
    /// # Errors
    /// What the last one said.
    pub fn api(&self, what: &str, question: &str) -> Result<Value, String> {
        let subject = format!("$JS.API.{what}");
        let mut last = "no server is up".to_owned();
        for nth in 0..self.count() {
            if self.server(nth).is_none() {
                continue;
            }
            match self.request(nth, &subject, question.as_bytes()) {
                Ok(answer) if answer["error"].is_null() => return Ok(answer),
                Ok(answer) => last = answer["error"].to_string(),
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    /// Sends something to a subject, and waits for the first answer.
    ///
    /// # Errors
    /// If none comes.
    pub fn request(&self, nth: usize, subject: &str, payload: &[u8]) -> std::io::Result<Value> {
        let mut client = Client::connect(self.address(nth), &self.admin)?;
        write!(client.stream, "SUB _INBOX.t 1\r\nPUB {subject} _INBOX.t {}\r\n", payload.len())?;
        client.stream.write_all(payload)?;
        client.stream.write_all(b"\r\n")?;
        Ok(serde_json::from_slice(&client.message()?.1)?)
    }

    /// Whether a server lets one in with that login, as a `CONNECT` says it.
    #[must_use]
    pub fn admits(&self, nth: usize, login: &str) -> bool {
        let ping = |mut client: Client| {
            client.stream.write_all(b"PING\r\n")?;
            client.line_with("PONG")
        };
        Client::connect(self.address(nth), login).and_then(ping).is_ok()
    }

    /// Notes the subject of everything that is sent to some subjects from now on, whether it comes to anything or not.
    ///
    /// # Panics
    /// If the server is not there.
    #[must_use]
    pub fn listen(&self, nth: usize, subjects: &str) -> Arc<Mutex<Vec<String>>> {
        let mut client = Client::connect(self.address(nth), &self.admin).expect("the server is there");
        write!(client.stream, "SUB {subjects} 1\r\nPING\r\n").expect("it can be asked");
        client.line_with("PONG").expect("it answers");
        client.stream.set_read_timeout(None).expect("it can be waited for");
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::downgrade(&heard);
        std::thread::spawn(move || {
            while let (Ok((subject, _)), Some(noted)) = (client.message(), noted.upgrade()) {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(subject);
            }
        });
        heard
    }

    /// How many messages a server has received from clients, by its own count.
    ///
    /// # Panics
    /// If it does not tell.
    #[must_use]
    pub fn messages_in(&self, nth: usize) -> u64 {
        let told = self.monitor(nth, "varz").expect("the server tells how it is");
        told["in_msgs"].as_u64().expect("it counts messages")
    }

    /// What a server tells people about itself.
    fn monitor(&self, nth: usize, what: &str) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.get(nth).ports.monitor))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET /{what} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok(serde_json::from_str(body)?)
    }

    fn wait_until_ready(&self) {
        if self.encrypted {
            return;
        }
        let began = Instant::now();
        loop {
            let asked = self.is_ready();
            if asked.is_ok() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "JetStream does not answer: {asked:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether every server has everything that was acknowledged, and can hold a replica; why not. One that is only up has
    /// not: with it and another one, a stream that has lost the third may stay without a leader until that one is back.
    fn is_ready(&self) -> Result<(), String> {
        for nth in 0..self.count() {
            let health = self.monitor(nth, "healthz").map_err(|error| error.to_string())?;
            if health["status"] != "ok" {
                return Err(format!("m{nth}: {health}"));
            }
        }
        if self.count() == 1 {
            return self.api("STREAM.NAMES", "").map(drop);
        }
        let replicas = self.count();
        let probe = format!(
            "{{\"name\":\"probe\",\"subjects\":[\"probe\"],\"storage\":\"memory\",\"num_replicas\":{replicas}}}"
        );
        self.api("STREAM.CREATE.probe", &probe)?;
        self.api("STREAM.DELETE.probe", "").map(drop)
    }

    /// The configuration of one server, with a mark where its directory goes.
    fn configuration(&self, nth: usize) -> String {
        let member = self.get(nth);
        let mut text = format!(
            "server_name: m{nth}\nlisten: 127.0.0.1:{}\nhttp: 127.0.0.1:{}\n{SETTINGS}jetstream {{ store_dir: \"{DIRECTORY}/data\", sync_interval: always }}\n{}\n",
            member.client, member.ports.monitor, self.settings
        );
        if self.count() > 1 {
            let routes: Vec<_> =
                member.ports.routes.iter().map(|route| format!("\"nats-route://{route}\"")).collect();
            let (peer, routes) = (member.ports.peer, routes.join(", "));
            text += &format!(
                "cluster {{ name: tenure, listen: 127.0.0.1:{peer}, no_advertise: true, routes: [{routes}] }}\n"
            );
        }
        text
    }

    fn launch(&mut self, nth: usize) {
        let Some(dir) = self.take_down(nth) else { return };
        let file = dir.path().join("nats.conf");
        let text = self.configuration(nth).replace(DIRECTORY, &dir.path().display().to_string());
        std::fs::write(&file, text).expect("a configuration can be written");
        let mut command = Command::new(built("nats-server"));
        command.arg("-c").arg(file);
        let listens = |address: SocketAddr| TcpStream::connect(address).is_ok();
        let server = Server::start("nats", dir, self.get(nth).client, &mut command, listens);
        self.put_up(nth, server);
    }
}

/// A connection that asks one thing at a time.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr, login: &str) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let comma = if login.is_empty() { "" } else { "," };
        write!(
            stream,
            "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true{comma}{login}}}\r\n"
        )?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), stream })
    }

    /// Waits for a line that begins with that word.
    fn line_with(&mut self, word: &str) -> std::io::Result<String> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            match line.split_ascii_whitespace().next() {
                Some("PING") => self.stream.write_all(b"PONG\r\n")?,
                Some("-ERR") => return Err(std::io::Error::other(line)),
                Some(first) if first.ends_with(word) => return Ok(line),
                _ => {}
            }
        }
    }

    /// The subject and the content of the next message; an answer of the server itself, which has headers only, is an error.
    fn message(&mut self) -> std::io::Result<(String, Vec<u8>)> {
        let line = self.line_with("MSG")?;
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let length = words.last().and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        if body.starts_with(b"NATS/1.0 503") {
            return Err(std::io::Error::other("no server listens"));
        }
        Ok((words.get(1).copied().unwrap_or_default().to_owned(), body))
    }
}

/// What stands for the directory of a server in its configuration.
const DIRECTORY: &str = "@DIR@";
