//! Servers that speak JSON over HTTP/1.1: connections that are kept open, TLS, answers that are streams of lines.
//!
//! An [`Endpoint`] is one server. Every failure says whether anything was sent: a request that met a connection which the
//! server had closed meanwhile goes on another one, and nothing is ever sent twice.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::watches::lock;
use crate::{StoreError, with_causes};

/// Longer answers, and longer lines, are of no server that keeps registers.
const LONGEST: usize = 256 << 20;

/// Connections that wait for the next request.
const IDLE: usize = 8;

/// A silent connection is probed after so many seconds, and again, three times.
const PROBE: Duration = Duration::from_secs(5);

/// One server, and the connections to it that are open and idle.
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// What a server is asked.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// GET, POST and so on.
    pub method: &'static str,
    /// From the first slash, with what is asked for behind a question mark.
    pub path: Cow<'static, str>,
    /// Beside those that every request has. They may hold secrets, and no error shows them.
    pub headers: Vec<(&'static str, String)>,
    /// JSON.
    pub body: Bytes,
}

/// An answer that has come whole.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// 200 and so on.
    pub status: u16,
    /// How long the server asks to be left alone (`Retry-After`, in seconds).
    pub retry_after: Option<Duration>,
    /// Its content.
    pub body: Bytes,
}

/// No answer came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpError {
    /// Nothing was sent.
    Unsent(String),
    /// The server may have read the request.
    Lost(String),
}

impl HttpError {
    /// What the caller of an operation is told.
    #[must_use]
    pub fn to_store_error(&self, store: &'static str, place: &str) -> StoreError {
        match self {
            Self::Unsent(why) => {
                let message =
                    format!("{place} cannot be reached ({why}): see whether it runs and listens there");
                StoreError::not_applied(store, message)
            }
            Self::Lost(why) => {
                StoreError::unknown(store, format!("{place} broke off ({why}): look whether it was written"))
            }
        }
    }
}

/// What the caller of an operation is told that was sent and has no answer yet.
#[must_use]
pub fn late(store: &'static str, place: &str, waited: Duration) -> StoreError {
    StoreError::unknown(
        store,
        format!("{place} did not answer within {waited:?}: look whether it was written"),
    )
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unsent(why) | Self::Lost(why)) = self;
        f.write_str(why)
    }
}

impl Endpoint {
    /// A server by its name or address; nothing is connected. None if TLS cannot verify such a host.
    #[must_use]
    pub fn new(host: &str, port: u16, tls: Option<Arc<ClientConfig>>) -> Option<Self> {
        let plain_host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match tls {
            Some(config) => Some((config.into(), ServerName::try_from(plain_host.clone()).ok()?)),
            None => None,
        };
        Some(Self { host: plain_host, port, tls, idle: Mutex::default() })
    }

    /// The same server, whose certificate names another host. None if TLS cannot verify such a host.
    #[must_use]
    pub fn certified_as(mut self, host: &str) -> Option<Self> {
        let named = ServerName::try_from(host.to_owned()).ok()?;
        self.tls = self.tls.map(|(config, _)| (config, named));
        Some(self)
    }

    /// Sends a request and waits for the whole answer. Opening a connection may take as long as `patience`.
    ///
    /// # Errors
    /// If no answer came.
    pub async fn send(&self, request: &HttpRequest, patience: Duration) -> Result<HttpAnswer, HttpError> {
        let (response, connection) = self.ask(request, patience).await?;
        let (status, retry_after) = (response.status().as_u16(), retry_after(&response));
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| HttpError::Lost(with_causes(&*error)))?.to_bytes();
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE && !connection.is_closed() {
            idle.push(connection);
        }
        Ok(HttpAnswer { status, retry_after, body })
    }

    /// Sends a request whose answer is a stream of lines; tells its status first.
    ///
    /// # Errors
    /// If no answer came.
    pub async fn open(&self, request: &HttpRequest, patience: Duration) -> Result<(u16, Lines), HttpError> {
        let (response, connection) = self.ask(request, patience).await?;
        let status = response.status().as_u16();
        Ok((status, Lines { body: response.into_body(), received: BytesMut::new(), _connection: connection }))
    }

    /// Closes the connections that nothing is asked on: they may lead nowhere.
    pub fn forget_idle(&self) {
        lock(&self.idle).clear();
    }

    async fn ask(
        &self,
        request: &HttpRequest,
        patience: Duration,
    ) -> Result<(Response<Incoming>, SendRequest<Full<Bytes>>), HttpError> {
        let mut request = self.prepare(request)?;
        loop {
            let kept = lock(&self.idle).pop();
            let fresh = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(patience).await?,
            };
            // One that the server closed meanwhile says so here, before anything is sent.
            if let Err(error) = connection.ready().await {
                if fresh {
                    return Err(HttpError::Unsent(with_causes(&error)));
                }
                continue;
            }
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    Some(_) => return Err(HttpError::Unsent(with_causes(refused.error()))),
                    None => return Err(HttpError::Lost(with_causes(refused.error()))),
                },
            }
        }
    }

    fn prepare(&self, request: &HttpRequest) -> Result<Request<Full<Bytes>>, HttpError> {
        let mut builder = Request::builder().method(request.method).uri(&*request.path);
        builder = builder.header("host", self.to_string()).header("content-type", "application/json");
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let body = Full::new(request.body.clone());
        builder.body(body).map_err(|_| HttpError::Unsent("a path or a header cannot be sent".to_owned()))
    }

    async fn connect(&self, patience: Duration) -> Result<SendRequest<Full<Bytes>>, HttpError> {
        let opened = tokio::time::timeout(patience, self.dial()).await;
        let opened = opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
        opened.map_err(|error| HttpError::Unsent(with_causes(&error)))
    }

    async fn dial(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        probe_when_silent(&stream)?;
        match &self.tls {
            Some((connector, name)) => greet(connector.connect(name.clone(), stream).await?).await,
            None => greet(stream).await,
        }
    }
}

fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let seconds = response.headers().get("retry-after")?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A connection whose other end vanished without a word is found out.
fn probe_when_silent(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

async fn greet(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the last request on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An answer that comes line by line. Dropped, it closes its connection.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    received: BytesMut,
    _connection: SendRequest<Full<Bytes>>,
}

impl Lines {
    /// The next line that is not empty; none at the end.
    ///
    /// # Errors
    /// If the connection broke, or the line is too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line = self.received.split_to(end).freeze();
                self.received.advance(1);
                if !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            if self.received.len() > LONGEST {
                return Err(HttpError::Lost("a line has no end".to_owned()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.received.extend(frame.into_data().ok()),
                Some(Err(error)) => return Err(HttpError::Lost(with_causes(&error))),
                None if self.received.is_empty() => return Ok(None),
                None => return Ok(Some(self.received.split().freeze())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A server that answers each connection with the texts given for it, one for each request, and then closes it.
    fn server(connections: Vec<Vec<&'static str>>) -> (Endpoint, std::thread::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            let mut requests = 0;
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    let mut some = [0; 4096];
                    requests += usize::from(stream.read(&mut some).unwrap() > 0);
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
            requests
        };
        (Endpoint::new("127.0.0.1", port, None).unwrap(), std::thread::spawn(serve))
    }

    fn request() -> HttpRequest {
        HttpRequest {
            method: "POST",
            path: "/x".into(),
            headers: Vec::new(),
            body: Bytes::from_static(b"{}"),
        }
    }

    const YES: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

    #[tokio::test]
    async fn connections_are_kept_and_one_that_was_closed_meanwhile_is_replaced() {
        let (endpoint, served) = server(vec![vec![YES, YES], vec![YES]]);
        for nth in 0..3 {
            // What is sent before the end of a connection was seen is lost with it, and no test of this.
            while nth == 2 && lock(&endpoint.idle).iter().any(|connection| !connection.is_closed()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let answer = endpoint.send(&request(), PATIENCE).await.unwrap();
            assert_eq!((answer.status, &*answer.body), (200, &b"{}"[..]));
        }
        assert_eq!(served.join().unwrap(), 3, "each request was sent once");
    }

    #[tokio::test]
    async fn what_was_sent_and_not_answered_is_told_from_what_was_not_sent() {
        let (endpoint, served) = server(vec![vec!["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"]]);
        assert!(matches!(endpoint.send(&request(), PATIENCE).await, Err(HttpError::Lost(_))));
        served.join().unwrap();
        assert!(matches!(endpoint.send(&request(), PATIENCE).await, Err(HttpError::Unsent(_))));
    }

    #[tokio::test]
    async fn how_long_a_server_wants_to_be_left_alone_is_told() {
        let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n";
        let (endpoint, served) = server(vec![vec![busy, YES]]);
        let answer = endpoint.send(&request(), PATIENCE).await.unwrap();
        assert_eq!((answer.status, answer.retry_after), (429, Some(Duration::from_secs(3))));
        assert_eq!(endpoint.send(&request(), PATIENCE).await.unwrap().retry_after, None);
        served.join().unwrap();
    }

    #[tokio::test]
    async fn lines_come_one_by_one_however_they_were_cut() {
        let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                      3\r\none\r\n4\r\n\ntwo\r\n2\r\n\n\n\r\n5\r\nthree\r\n0\r\n\r\n";
        let (endpoint, served) = server(vec![vec![stream]]);
        let (status, mut lines) = endpoint.open(&request(), PATIENCE).await.unwrap();
        assert_eq!(status, 200);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(found, ["one", "two", "three"]);
        served.join().unwrap();
    }
}
