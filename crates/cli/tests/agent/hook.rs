//! One who is told: a small server that keeps what it gets, and answers as it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

pub(crate) struct Hook {
    port: u16,
    got: Arc<Mutex<Vec<Told>>>,
    status: Arc<AtomicU16>,
    location: Arc<Mutex<String>>,
    says: Arc<Mutex<String>>,
}

/// What was told.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// With which status it was answered.
    pub(crate) answer: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Hook {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (got, status) = (Arc::<Mutex<Vec<Told>>>::default(), Arc::new(AtomicU16::new(200)));
        let location = Arc::new(Mutex::new("/elsewhere".to_owned()));
        let says = Arc::<Mutex<String>>::default();
        let answers = Answers { status: status.clone(), location: location.clone(), says: says.clone() };
        let kept = got.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (kept, answers) = (kept.clone(), answers.clone());
                std::thread::spawn(move || _ = serve(&client, &kept, &answers));
            }
        });
        Self { port, got, status, location, says }
    }

    /// Sends every client on to that place from now on, with the same method and the same body.
    pub(crate) fn redirect(&self, to: &str) {
        to.clone_into(&mut self.location.lock().unwrap());
        self.answer(307);
    }

    /// Answers with this from now on.
    pub(crate) fn say(&self, status: u16, body: &Value) {
        *self.says.lock().unwrap() = body.to_string();
        self.answer(status);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Answers with this from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/told?secret=hunter2", self.port)
    }

    pub(crate) fn all(&self) -> Vec<Told> {
        self.got.lock().unwrap().clone()
    }

    /// How often this was said of an alert and answered well.
    pub(crate) fn heard(&self, alert: &str, status: &str) -> usize {
        let fits =
            |told: &&Told| told.answer == 200 && told.body["alert"] == alert && told.body["status"] == status;
        self.all().iter().filter(fits).count()
    }

    /// Everything was said once: of each episode that it fires, and that it is over.
    pub(crate) fn assert_once(&self) {
        let mut said: Vec<String> = self
            .all()
            .iter()
            .filter(|told| told.answer == 200)
            .map(|told| format!("{} {} {}", told.body["key"], told.body["status"], told.body["news"]))
            .collect();
        let count = said.len();
        said.sort();
        said.dedup();
        assert_eq!(said.len(), count, "{:#?}", self.all());
    }
}

/// How it answers.
#[derive(Clone)]
struct Answers {
    status: Arc<AtomicU16>,
    location: Arc<Mutex<String>>,
    says: Arc<Mutex<String>>,
}

fn serve(client: &TcpStream, kept: &Mutex<Vec<Told>>, answers: &Answers) -> std::io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = |line: &str| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok();
    let mut body = vec![0; head.lines().find_map(length).unwrap_or(0)];
    lines.read_exact(&mut body)?;
    // A client that was sent on within this very server has arrived.
    let arrived = head.contains("/elsewhere");
    let answer = if arrived { 200 } else { answers.status.load(Ordering::SeqCst) };
    let body = serde_json::from_slice(&body).unwrap_or_default();
    kept.lock().unwrap().push(Told { answer, head: head.to_lowercase(), body });
    let more = match answer {
        300..400 => format!("Location: {}\r\n", answers.location.lock().unwrap()),
        _ => String::new(),
    };
    let mut client = client;
    let says = answers.says.lock().unwrap().clone();
    let length = says.len();
    write!(client, "HTTP/1.1 {answer} X\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{says}")
}
