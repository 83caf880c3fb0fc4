//! The signals that this process passes on, and the ones that stop it.

use std::io;

use futures_util::stream::BoxStream;
use futures_util::stream::{SelectAll, StreamExt, once, unfold};
use rustix::stdio::stdin;
use rustix::termios::isatty;
use tokio::signal::unix::{SignalKind, signal};

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedSignal {
    /// Wind down and exit: INT or TERM, and HUP if it says that the terminal is gone.
    Stop(u8),
    /// The command is to hear it.
    Forward(u8),
    /// The command is to hear it; where none runs, it ends this process: a hang-up, or Ctrl-\\ (QUIT).
    ForwardOrExit(u8),
    /// Stop until the shell continues this process: Ctrl-Z.
    Suspend,
    /// This process goes on after a stop.
    Continue,
}

/// Every signal that can be passed on; not HUP under `nohup`, which started this process with HUP ignored.
#[expect(missing_debug_implementations, reason = "streams have none")]
pub struct Signals {
    stream: SelectAll<BoxStream<'static, u8>>,
    /// Whether standard input was a terminal at first.
    on_terminal: bool,
}

const HUP: u8 = 1;
const QUIT: u8 = 3;
const TERM: u8 = 15;
const INT: u8 = 2;
const CONT: u8 = 18;
const TSTP: u8 = 20;

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn new() -> io::Result<Self> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::window_change(),
            SignalKind::alarm(),
            SignalKind::from_raw(i32::from(CONT)),
            SignalKind::from_raw(i32::from(TSTP)),
        ];
        let nohup = is_in(ignored(), SignalKind::hangup().as_raw_value());
        let mut stream = SelectAll::new();
        for kind in kinds.into_iter().filter(|kind| !(nohup && *kind == SignalKind::hangup())) {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or(TERM);
            let signals = unfold(signal(kind)?, move |mut signals| async move {
                signals.recv().await?;
                Some((number, signals))
            });
            stream.push(signals.boxed());
        }
        Ok(Self { stream, on_terminal: isatty(stdin()) })
    }

    /// No signals at all; but "stop" when that comes.
    pub fn when(stop: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::when_and_when(stop, std::future::pending())
    }

    /// No signals at all; but "stop" when that comes, and "at once" when that comes after it.
    pub fn when_and_when(
        stop: impl Future<Output = ()> + Send + 'static,
        kill: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let orders = once(stop).chain(once(kill)).map(|()| TERM).boxed();
        Self { stream: SelectAll::from_iter([orders]), on_terminal: false }
    }

    /// The next signal. Cancel-safe.
    pub async fn next(&mut self) -> ReceivedSignal {
        match self.stream.next().await {
            Some(signal @ (TERM | INT)) => ReceivedSignal::Stop(signal),
            // A terminal that was hung up is none any more. Otherwise HUP is the command's: it may mean "read your settings again".
            Some(HUP) if self.on_terminal && !isatty(stdin()) => ReceivedSignal::Stop(HUP),
            Some(TSTP) => ReceivedSignal::Suspend,
            Some(CONT) => ReceivedSignal::Continue,
            Some(signal @ (HUP | QUIT)) => ReceivedSignal::ForwardOrExit(signal),
            Some(signal) => ReceivedSignal::Forward(signal),
            None => std::future::pending().await,
        }
    }
}

/// The signals that this process ignores, as a set of bits. What is ignored is inherited by children; what is caught is not.
pub(crate) fn ignored() -> u64 {
    own_mask("SigIgn:")
}

/// The signals for which this process has a handler.
pub(crate) fn caught() -> impl Iterator<Item = i32> {
    let mask = own_mask("SigCgt:");
    (1..=64).filter(move |signal| is_in(mask, *signal))
}

fn own_mask(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(field));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a signal is in such a set.
pub(crate) fn is_in(set: u64, signal: i32) -> bool {
    set & (1 << (signal - 1)) != 0
}
