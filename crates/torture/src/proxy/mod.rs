//! A TCP proxy for one link, with every fault that a link can have, switched on and off while it runs.
//!
//! Bytes that are *held* arrive when they are let go, in order: a late reply is an event of the test, and no test sleeps
//! for it. Bytes that are *lost* never arrive, nor does the news that the other side hung up; a connection with such a hole in
//! it is reset as soon as bytes could pass again.
//!
//! ```
//! # let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
//! use tenure_torture::proxy::{Proxy, Direction};
//!
//! let link = Proxy::to(server.local_addr().unwrap());
//! link.hold(Direction::Down); // what the server answers from now on waits
//! link.pass(Direction::Down); // … and arrives
//! ```

mod carry;
mod listen;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use listen::Port;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

const BOTH_DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// Whether bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// They arrive.
    #[default]
    Pass,
    /// They wait.
    Hold,
    /// They vanish.
    Lose,
}

/// How it goes, one way.
#[derive(Debug, Clone, Copy, Default)]
struct DirectionState {
    flow: Flow,
    delay: Duration,
    jitter: Duration,
    bytes_per_second: Option<u64>,
    /// Once so many bytes have passed, the connection is cut.
    cut_at: Option<u64>,
}

/// How it goes on the whole link.
#[derive(Debug, Clone)]
struct LinkState {
    /// Where new connections lead.
    server: SocketAddr,
    roads: [DirectionState; 2],
    refuses: bool,
    /// Once these bytes have gone up, what comes down waits.
    snare: Option<&'static [u8]>,
    /// Connections older than this are reset.
    resets: u64,
    ended: bool,
}

impl LinkState {
    fn to(server: SocketAddr) -> Self {
        Self { server, roads: Default::default(), refuses: false, snare: None, resets: 0, ended: false }
    }
}

/// What went through, for each way.
#[derive(Debug, Default)]
struct LinkCounters {
    passed: [AtomicU64; 2],
    held: [AtomicU64; 2],
    lost: [AtomicU64; 2],
    accepted: AtomicU64,
    open: AtomicU64,
    listening: AtomicU64,
}

/// A link with its proxy. Gone, with every connection, when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: watch::Sender<LinkState>,
    tally: Arc<LinkCounters>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A link to that server, on a free port of the loopback interface.
    ///
    /// # Panics
    /// If there is no port, or no thread.
    #[must_use]
    pub fn to(server: SocketAddr) -> Self {
        let port = Port::take();
        let number = port.number();
        let (weather, tally) = (watch::Sender::new(LinkState::to(server)), Arc::new(LinkCounters::default()));
        let link = carry::ProxyLink { weather: weather.clone(), tally: tally.clone() };
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(carry::serve(link, port));
        };
        let thread = std::thread::Builder::new().name(format!("proxy-{number}")).spawn(run);
        let proxy = Self { port: number, weather, tally, thread: Some(thread.expect("a thread")) };
        proxy.wait_until_listening(true);
        proxy
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Whether new connections are refused, as by a host where no process listens. Open ones go on.
    pub fn refuse(&self, refuses: bool) {
        self.weather.send_modify(|weather| weather.refuses = refuses);
        self.wait_until_listening(!refuses);
    }

    /// Leads to another server from now on, as an address does that moves; open connections are reset.
    pub fn lead_to(&self, server: SocketAddr) {
        self.weather.send_modify(|weather| {
            weather.server = server;
            weather.resets += 1;
        });
    }

    /// Resets every connection that is open.
    pub fn reset(&self) {
        self.weather.send_modify(|weather| weather.resets += 1);
    }

    /// Bytes wait, that way.
    pub fn hold(&self, way: Direction) {
        self.change(way, |direction_state| direction_state.flow = Flow::Hold);
    }

    /// Once something with these bytes in it has gone up, what comes down waits: its answer, and all that follows.
    pub fn hold_answer_to(&self, question: &'static [u8]) {
        self.weather.send_modify(|weather| weather.snare = Some(question));
    }

    /// Bytes vanish, that way.
    pub fn lose(&self, way: Direction) {
        self.change(way, |direction_state| direction_state.flow = Flow::Lose);
    }

    /// Bytes vanish, both ways.
    pub fn black_hole(&self) {
        BOTH_DIRECTIONS.into_iter().for_each(|way| self.lose(way));
    }

    /// Bytes arrive again, that way.
    pub fn pass(&self, way: Direction) {
        self.change(way, |direction_state| direction_state.flow = Flow::Pass);
    }

    /// Each byte takes so long, that way, and up to `jitter` longer.
    pub fn delay(&self, way: Direction, delay: Duration, jitter: Duration) {
        self.change(way, |direction_state| (direction_state.delay, direction_state.jitter) = (delay, jitter));
    }

    /// No more than so many bytes in a second, that way.
    pub fn throttle(&self, way: Direction, bytes_per_second: u64) {
        self.change(way, |direction_state| direction_state.bytes_per_second = Some(bytes_per_second.max(1)));
    }

    /// Lets so many more bytes pass that way, and resets the connection that would have carried the next to a receiver that has
    /// not hung up.
    pub fn cut_after(&self, way: Direction, bytes: u64) {
        let at = self.passed(way) + bytes;
        self.change(way, |direction_state| direction_state.cut_at = Some(at));
    }

    /// Whether a connection is still to be cut, that way.
    #[must_use]
    pub fn is_to_be_cut(&self, way: Direction) -> bool {
        self.weather.borrow().direction_state(way).cut_at.is_some()
    }

    /// Nothing is wrong any more.
    pub fn heal(&self) {
        self.weather.send_modify(|weather| {
            (weather.roads, weather.refuses, weather.snare) = Default::default();
        });
        self.wait_until_listening(true);
    }

    /// So many bytes arrived, that way.
    #[must_use]
    pub fn passed(&self, way: Direction) -> u64 {
        self.tally.passed[way as usize].load(Ordering::SeqCst)
    }

    /// So many bytes wait now, that way.
    #[must_use]
    pub fn held(&self, way: Direction) -> u64 {
        self.tally.held[way as usize].load(Ordering::SeqCst)
    }

    /// So many bytes vanished, that way.
    #[must_use]
    pub fn lost(&self, way: Direction) -> u64 {
        self.tally.lost[way as usize].load(Ordering::SeqCst)
    }

    /// So many connections are open.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.tally.open.load(Ordering::SeqCst)
    }

    /// So many connections were ever accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.tally.accepted.load(Ordering::SeqCst)
    }

    fn change(&self, way: Direction, change: impl FnOnce(&mut DirectionState)) {
        self.weather.send_modify(|weather| change(&mut weather.roads[way as usize]));
    }

    /// What was asked has happened when the call returns.
    fn wait_until_listening(&self, wanted: bool) {
        let began = Instant::now();
        while (self.tally.listening.load(Ordering::SeqCst) == 1) != wanted {
            assert!(began.elapsed() < Duration::from_secs(60), "the proxy follows");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.weather.send_modify(|weather| weather.ended = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
