//! How connections are carried: each way a reader and, behind a queue, a writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::listen::{Port, reset_on_close};
use super::{Direction, DirectionState, Flow, LinkCounters, LinkState};

/// What all connections of a link share.
#[derive(Debug, Clone)]
pub(super) struct ProxyLink {
    pub(super) weather: watch::Sender<LinkState>,
    pub(super) tally: Arc<LinkCounters>,
}

/// The connection is over and must be reset.
struct Reset;

/// What was read, and when. Nothing was read: the other side hung up.
struct Chunk {
    bytes: Vec<u8>,
    at: Instant,
}

/// Accepts and carries connections until the proxy is dropped.
pub(super) async fn serve(link: ProxyLink, port: Port) {
    let mut weather = link.weather.subscribe();
    let mut connections = JoinSet::new();
    let mut listener = None;
    loop {
        let (ended, refuses) = {
            let now = weather.borrow_and_update();
            (now.ended, now.refuses)
        };
        if ended {
            return;
        }
        listener = if refuses { None } else { listener.or_else(|| Some(port.listen())) };
        link.tally.listening.store(u64::from(listener.is_some()), Ordering::SeqCst);
        tokio::select! {
            Some(client) = accepted(listener.as_ref()) => {
                connections.spawn(carry(link.clone(), client));
            }
            Some(_) = connections.join_next() => {}
            changed = weather.changed() => if changed.is_err() { return },
        }
    }
}

async fn accepted(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

/// Carries one connection; ends when both sides hung up, or when it is reset.
async fn carry(link: ProxyLink, client: TcpStream) {
    link.tally.accepted.fetch_add(1, Ordering::SeqCst);
    link.tally.open.fetch_add(1, Ordering::SeqCst);
    let mut weather = link.weather.subscribe();
    let (resets, server) = {
        let now = weather.borrow();
        (now.resets, now.server)
    };
    reset_on_close(&client);
    if let Ok(server) = TcpStream::connect(server).await {
        reset_on_close(&server);
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        tokio::select! {
            _ = both_ways(&link, client, server) => {}
            _ = weather.wait_for(|weather| weather.resets > resets) => {}
        }
    }
    link.tally.open.fetch_sub(1, Ordering::SeqCst);
}

/// (Halves that own their stream would say goodbye when they are dropped.)
async fn both_ways(link: &ProxyLink, mut client: TcpStream, mut server: TcpStream) -> Result<(), Reset> {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (client_left, server_left) = (AtomicBool::new(false), AtomicBool::new(false));
    let up = one_way(link, Direction::Up, (from_client, &client_left), (to_server, &server_left));
    let down = one_way(link, Direction::Down, (from_server, &server_left), (to_client, &client_left));
    tokio::try_join!(up, down).map(|_| ())
}

/// One end of a connection, and whether it has hung up.
type End<'a, Half> = (Half, &'a AtomicBool);

async fn one_way(
    link: &ProxyLink,
    way: Direction,
    (from, from_left): End<'_, ReadHalf<'_>>,
    (to, to_left): End<'_, WriteHalf<'_>>,
) -> Result<(), Reset> {
    let (queue, chunks) = mpsc::unbounded_channel();
    let queued = Queued { tally: &link.tally, way, bytes: AtomicU64::new(0) };
    let deliverer =
        Deliverer { link, way, weather: link.weather.subscribe(), torn: false, receiver_left: to_left };
    let reading = async {
        read(from, queue, &queued).await;
        from_left.store(true, Ordering::SeqCst);
    };
    let ((), delivered) = tokio::join!(reading, deliverer.run(chunks, to, &queued));
    delivered
}

/// Reads until the sender hangs up, or the writer has ended.
async fn read(mut from: ReadHalf<'_>, queue: mpsc::UnboundedSender<Chunk>, queued: &Queued<'_>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        // A connection that broke has ended; what it said before is delivered all the same.
        let length = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            () = queue.closed() => return,
        };
        queued.add(length as u64);
        let chunk = Chunk { bytes: buffer[..length].to_vec(), at: Instant::now() };
        if queue.send(chunk).is_err() || length == 0 {
            return;
        }
    }
}

/// The bytes of one connection that wait. They are forgotten with it.
struct Queued<'a> {
    tally: &'a LinkCounters,
    way: Direction,
    bytes: AtomicU64,
}

impl Queued<'_> {
    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.tally.held[self.way as usize].fetch_add(bytes, Ordering::SeqCst);
    }

    fn take(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.tally.held[self.way as usize].fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.take(self.bytes.load(Ordering::SeqCst));
    }
}

struct Deliverer<'a> {
    link: &'a ProxyLink,
    way: Direction,
    weather: watch::Receiver<LinkState>,
    /// Something was lost: the rest makes no sense.
    torn: bool,
    /// The receiver has hung up.
    receiver_left: &'a AtomicBool,
}

impl Deliverer<'_> {
    async fn run(
        mut self,
        mut chunks: mpsc::UnboundedReceiver<Chunk>,
        mut to: WriteHalf<'_>,
        queued: &Queued<'_>,
    ) -> Result<(), Reset> {
        loop {
            let way = self.way;
            let chunk = tokio::select! {
                chunk = chunks.recv() => chunk,
                _ = self.weather.wait_for(|weather| weather.direction_state(way).flow == Flow::Pass), if self.torn => {
                    return Err(Reset);
                }
            };
            let Some(chunk) = chunk else { break };
            let passes = self.wait_for_its_turn(&chunk).await?;
            queued.take(chunk.bytes.len() as u64);
            if !passes {
                self.torn = true;
                self.link.tally.lost[way as usize].fetch_add(chunk.bytes.len() as u64, Ordering::SeqCst);
            } else if chunk.bytes.is_empty() {
                let _ = to.shutdown().await;
                return Ok(());
            } else if self.write(&chunk.bytes, &mut to).await?.is_err() {
                // The receiver is gone.
                return Ok(());
            }
        }
        if !self.torn {
            return Ok(());
        }
        // That the sender hung up was lost too.
        let way = self.way;
        let _ = self.weather.wait_for(|weather| weather.direction_state(way).flow == Flow::Pass).await;
        Err(Reset)
    }

    /// Whether it arrives; known when it does.
    async fn wait_for_its_turn(&mut self, chunk: &Chunk) -> Result<bool, Reset> {
        // Different from chunk to chunk; that is all that is asked of it.
        let passed = self.link.tally.passed[self.way as usize].load(Ordering::SeqCst);
        let wobble = (passed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / f64::from(1 << 24);
        loop {
            let direction_state = self.direction_state();
            match direction_state.flow {
                Flow::Hold => _ = self.weather.changed().await,
                Flow::Lose => return Ok(false),
                Flow::Pass if self.torn => return Err(Reset),
                Flow::Pass => {
                    let delay = direction_state.delay + direction_state.jitter.mul_f64(wobble);
                    // A timer rounds up to the next millisecond, also one that is due: a link without a delay would have one.
                    if delay.is_zero() {
                        return Ok(true);
                    }
                    tokio::select! {
                        () = tokio::time::sleep_until(chunk.at + delay) => return Ok(true),
                        _ = self.weather.changed() => {}
                    }
                }
            }
        }
    }

    /// Writes it, in pieces if the road is narrow, up to where the connection is to be cut.
    async fn write(&self, bytes: &[u8], to: &mut WriteHalf<'_>) -> Result<std::io::Result<()>, Reset> {
        self.hold_answer(bytes);
        let passed = &self.link.tally.passed[self.way as usize];
        let direction_state = *self.link.weather.borrow().direction_state(self.way);
        // What a server still says to a client that has left reaches no client: the cut is for one that listens.
        let cut_at = direction_state.cut_at.filter(|_| !self.receiver_left.load(Ordering::SeqCst));
        let room = cut_at.map(|at| at.saturating_sub(passed.load(Ordering::SeqCst)));
        let cut = room.is_some_and(|room| room < bytes.len() as u64);
        let bytes = if cut { &bytes[..usize::try_from(room.unwrap_or(0)).unwrap_or(0)] } else { bytes };
        let piece =
            direction_state.bytes_per_second.map_or(bytes.len().max(1), |pace| (pace as usize / 20).max(1));
        for piece in bytes.chunks(piece) {
            if let Err(error) = to.write_all(piece).await {
                return Ok(Err(error));
            }
            passed.fetch_add(piece.len() as u64, Ordering::SeqCst);
            if let Some(pace) = direction_state.bytes_per_second {
                tokio::time::sleep(Duration::from_secs_f64(piece.len() as f64 / pace as f64)).await;
            }
        }
        if cut {
            self.link.weather.send_modify(|weather| weather.roads[self.way as usize].cut_at = None);
            return Err(Reset);
        }
        Ok(Ok(()))
    }

    /// Holds the answer before the question is out.
    fn hold_answer(&self, bytes: &[u8]) {
        let weather = &self.link.weather;
        let snare = weather.borrow().snare.filter(|_| self.way == Direction::Up);
        let caught = |snare: &[u8]| bytes.windows(snare.len().max(1)).any(|window| window == snare);
        if snare.is_some_and(caught) {
            weather.send_modify(|weather| {
                weather.snare = None;
                weather.roads[Direction::Down as usize].flow = Flow::Hold;
            });
        }
    }

    fn direction_state(&mut self) -> DirectionState {
        *self.weather.borrow_and_update().direction_state(self.way)
    }
}

impl LinkState {
    pub(super) fn direction_state(&self, way: Direction) -> &DirectionState {
        &self.roads[way as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece used to wait for a timer that was due: a millisecond and more a hop, ten to thirty in a hand-over of peers.
    #[tokio::test]
    async fn a_link_without_a_delay_waits_for_no_timer() {
        let link = ProxyLink {
            weather: watch::Sender::new(LinkState::to(([127, 0, 0, 1], 1).into())),
            tally: Arc::default(),
        };
        let weather = link.weather.subscribe();
        let receiver_left = &AtomicBool::new(false);
        let mut deliverer =
            Deliverer { link: &link, way: Direction::Up, weather, torn: false, receiver_left };
        let chunk = Chunk { bytes: vec![1], at: Instant::now() };
        tokio::select! {
            biased;
            passes = deliverer.wait_for_its_turn(&chunk) => assert!(passes.is_ok_and(|passes| passes)),
            () = std::future::ready(()) => panic!("a timer"),
        }
    }
}
