//! A server that speaks as much of S3 as the store does, rightly or wrongly, and counts what it is asked.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Every put is applied.
    IgnoresConditions,
    /// `If-None-Match` is obeyed, and `If-Match` is not: many servers began so.
    IgnoresIfMatch,
    /// Conditions are checked, and other puts may come before this one is applied.
    NotAtomic,
    /// Reads show what there was before the last put.
    StaleReads,
    /// Lists do not show what was put last.
    StaleLists,
    /// A put on a version is taken for one that creates, where no object is.
    CreatesOnMatch,
}

/// What is done to one put, instead of what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trick {
    /// 409: another put was under way.
    Conflict,
    /// 503, and nothing is applied.
    SlowDown,
    /// It is applied, and the connection closed without an answer.
    Swallow,
    /// It is applied, and answered with 412, as when something between repeats a put.
    Repeat,
}

/// What it was asked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    pub(crate) lists: u64,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    /// What there was before the last put of each.
    before: BTreeMap<String, Option<Vec<u8>>>,
    tricks: Vec<Trick>,
    asked: Asked,
}

/// A running server. It ends with the test.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    address: SocketAddr,
    flaw: Flaw,
    state: Arc<Mutex<State>>,
}

struct Request {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Fake {
    pub(crate) async fn start(flaw: Flaw) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let fake = Self { address, flaw, state: Arc::default() };
        let served = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = served.clone();
                tokio::spawn(async move { served.serve(stream).await });
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("s3://key:hunter2@bucket/tenure?endpoint=http://{}&timeout=30s", self.address)
    }

    pub(crate) fn asked(&self) -> Asked {
        self.state().asked
    }

    /// What becomes of the next puts.
    pub(crate) fn play(&self, tricks: &[Trick]) {
        self.state().tricks = tricks.iter().rev().copied().collect();
    }

    /// Objects whose name has that in it, with their lengths.
    pub(crate) fn lengths(&self, part: &str) -> Vec<usize> {
        let state = self.state();
        state.objects.iter().filter(|(key, _)| key.contains(part)).map(|(_, content)| content.len()).collect()
    }

    /// Puts an object by hand.
    pub(crate) fn plant(&self, key: &str, content: &[u8]) {
        self.state().objects.insert(key.to_owned(), content.to_vec());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic with it")
    }

    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufStream::new(stream);
        while let Some(request) = read_request(&mut stream).await {
            let Some(answer) = self.answer(&request).await else { return };
            if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, request: &Request) -> Option<Vec<u8>> {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let key = path.trim_start_matches("/bucket").trim_start_matches('/').to_owned();
        match request.method.as_str() {
            "PUT" => self.put(&key, request).await,
            "GET" if key.is_empty() => Some(self.list(query)),
            "GET" => Some(self.get(&key)),
            "DELETE" => {
                self.state().objects.remove(&key);
                Some(answer(204, &[], b""))
            }
            _ => Some(answer(501, &[], b"<Error><Code>NotImplemented</Code></Error>")),
        }
    }

    async fn put(&self, key: &str, request: &Request) -> Option<Vec<u8>> {
        let trick = {
            let mut state = self.state();
            state.asked.puts += 1;
            if key.contains("_examined") { None } else { state.tricks.pop() }
        };
        match trick {
            Some(Trick::Conflict) => {
                return Some(answer(409, &[], b"<Error><Code>ConditionalRequestConflict</Code></Error>"));
            }
            Some(Trick::SlowDown) => return Some(answer(503, &[], b"<Error><Code>SlowDown</Code></Error>")),
            _ => {}
        }
        let refused = answer(412, &[], b"<Error><Code>PreconditionFailed</Code></Error>");
        if self.flaw == Flaw::NotAtomic {
            if !self.is_allowed(&self.state(), key, request) {
                return Some(refused);
            }
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let mut state = self.state();
        if self.flaw != Flaw::NotAtomic && !self.is_allowed(&state, key, request) {
            return Some(refused);
        }
        let before = state.objects.insert(key.to_owned(), request.body.clone());
        state.before.insert(key.to_owned(), before);
        match trick {
            Some(Trick::Swallow) => None,
            Some(Trick::Repeat) => Some(refused),
            _ => Some(answer(200, &[("ETag", &etag(&request.body))], b"")),
        }
    }

    fn is_allowed(&self, state: &State, key: &str, request: &Request) -> bool {
        let there = state.objects.get(key).map(|content| etag(content));
        match (request.headers.get("if-match"), request.headers.get("if-none-match")) {
            _ if self.flaw == Flaw::IgnoresConditions => true,
            (Some(_), _) if self.flaw == Flaw::IgnoresIfMatch => there.is_some(),
            (Some(_), _) if self.flaw == Flaw::CreatesOnMatch && there.is_none() => true,
            (Some(wanted), _) => there.as_ref() == Some(wanted),
            (None, Some(_)) => there.is_none(),
            (None, None) => true,
        }
    }

    fn get(&self, key: &str) -> Vec<u8> {
        let mut state = self.state();
        state.asked.gets += 1;
        let stale = state.before.get(key).filter(|_| self.flaw == Flaw::StaleReads).cloned();
        match stale.unwrap_or_else(|| state.objects.get(key).cloned()) {
            Some(content) => answer(200, &[("ETag", &etag(&content))], &content),
            None => answer(404, &[], b"<Error><Code>NoSuchKey</Code></Error>"),
        }
    }

    fn list(&self, query: &str) -> Vec<u8> {
        let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
        let prefix = prefix.replace("%2F", "/");
        let mut state = self.state();
        state.asked.lists += 1;
        let mut text = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
        for (key, content) in state.objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
            let stale = state.before.get(key).filter(|_| self.flaw == Flaw::StaleLists).cloned();
            let Some(content) = stale.unwrap_or_else(|| Some(content.clone())) else { continue };
            let (length, etag) = (content.len(), etag(&content).replace('"', "&quot;"));
            text.push_str(&format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{etag}</ETag>\
                 <Size>{length}</Size></Contents>"
            ));
        }
        text.push_str("</ListBucketResult>");
        answer(200, &[("Content-Type", "application/xml")], text.as_bytes())
    }
}

/// The same content has the same one, as on S3.
fn etag(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:032x}\"", hasher.finish())
}

fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
    text.push_str("Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

async fn read_request(stream: &mut BufStream<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { method, target, headers, body })
}
