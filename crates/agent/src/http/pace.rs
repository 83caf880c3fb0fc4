//! Clients that do not read: an answer is handed over in pieces, counted for its client until the last piece is, and a
//! client that takes nothing for a while is cut off.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

use super::limits::{Cost, Turns};

/// An answer is handed over in pieces of this size. A smaller one is not worth counting.
const PIECE: usize = 16 * 1024;

/// Counts an answer for its client for as long as it is in memory: with too many that the client has not read, the next one
/// waits.
pub(super) async fn paced(turns: &Turns, client: &str, response: Response) -> Response {
    let (head, body) = response.into_parts();
    let long = body.size_hint().exact().is_some_and(|size| size > PIECE as u64);
    if !long {
        return Response::from_parts(head, body);
    }
    // All of it is there already.
    let Ok(rest) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(head, Body::empty());
    };
    let permit = turns.take_many(client, Cost::Unread, rest.len().div_ceil(1024)).await;
    Response::from_parts(head, Body::new(PacedBody { rest, _permit: permit }))
}

/// An answer of which the connection takes a piece when it has sent the one before.
struct PacedBody {
    rest: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let size = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(size);
        Poll::Ready((size > 0).then_some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// A connection whose other end must take something within the limit, if there is something to take.
pub(super) struct ImpatientStream<S> {
    stream: S,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    stalled: bool,
}

impl<S> ImpatientStream<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, timer: Box::pin(sleep(limit)), stalled: false }
    }

    /// What came of a write, unless the other end has taken nothing for too long.
    fn within_limit<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = false;
            return wrote;
        }
        if !std::mem::replace(&mut self.stalled, true) {
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ImpatientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ImpatientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_limit(wrote, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.within_limit(wrote, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.within_limit(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within_limit(closed, context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::http::limits::UNREAD;

    /// An eighth of what may wait for one client.
    const ANSWER: usize = UNREAD * 1024 / 8;

    /// Connections of clients that ask and do not read.
    async fn asking(turns: &Arc<Turns>, made: &Arc<AtomicUsize>, limit: Duration) -> tokio::io::DuplexStream {
        let (mut client, server) = tokio::io::duplex(4096);
        let (turns, made) = (turns.clone(), made.clone());
        let service = service_fn(move |_: hyper::Request<hyper::body::Incoming>| {
            let (turns, made) = (turns.clone(), made.clone());
            async move {
                let answer = Response::new(Body::from(vec![b'.'; ANSWER]));
                let answer = paced(&turns, "a", answer).await;
                made.fetch_add(1, Ordering::SeqCst);
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let stream = TokioIo::new(ImpatientStream::new(server, limit));
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.max_buf_size(16 * 1024).keep_alive(false);
        tokio::spawn(async move { builder.serve_connection(stream, service).await });
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        client
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_a_client_does_not_read_are_few() {
        let (turns, made) = (Arc::new(Turns::default()), Arc::new(AtomicUsize::new(0)));
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(asking(&turns, &made, Duration::from_secs(3600)).await);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(made.load(Ordering::SeqCst), 8, "no more than fit are in memory");
        assert!(turns.take_many("b", Cost::Unread, UNREAD).now_or_never().is_some(), "others have their own");
        let mut text = Vec::new();
        clients[0].read_to_end(&mut text).await.unwrap();
        let head = String::from_utf8_lossy(&text[..100]).to_ascii_lowercase();
        assert!(text.len() > ANSWER && head.contains(&format!("content-length: {ANSWER}")), "{head}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(made.load(Ordering::SeqCst), 9, "what was read makes room");
        drop(clients);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut_off() {
        let (turns, made) = (Arc::new(Turns::default()), Arc::new(AtomicUsize::new(0)));
        let mut client = asking(&turns, &made, Duration::from_secs(5)).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let mut some = [0; 100];
        client.read_exact(&mut some).await.unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(turns.take_many("a", Cost::Unread, UNREAD).now_or_never().is_none(), "it took something");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(turns.take_many("a", Cost::Unread, UNREAD).now_or_never().is_some(), "it is gone");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() < ANSWER, "{}", rest.len());
    }
}
