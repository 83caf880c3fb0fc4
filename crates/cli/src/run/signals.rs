//! The signals that this process passes on, and the ones that stop it.

use std::io;

use futures_util::stream::BoxStream;
use futures_util::stream::{SelectAll, StreamExt, unfold};
use tokio::signal::unix::{SignalKind, signal};

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Wind down and exit. INT, TERM, and those that mean the same: HUP and QUIT while nothing runs.
    Stop(u8),
    /// The command is to hear it.
    Forward(u8),
}

/// Every signal that can be passed on.
pub(crate) struct Signals {
    stream: SelectAll<BoxStream<'static, u8>>,
}

const TERM: u8 = 15;
const INT: u8 = 2;

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::window_change(),
            SignalKind::alarm(),
            SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()),
        ];
        let mut stream = SelectAll::new();
        for kind in kinds {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or(TERM);
            let signals = unfold(signal(kind)?, move |mut signals| async move {
                signals.recv().await?;
                Some((number, signals))
            });
            stream.push(signals.boxed());
        }
        Ok(Self { stream })
    }

    /// No signals at all; but "stop" when that comes.
    pub(crate) fn when(stop: impl Future<Output = ()> + Send + 'static) -> Self {
        let mut stream = SelectAll::new();
        stream.push(futures_util::stream::once(async move { (stop.await, TERM).1 }).boxed());
        Self { stream }
    }

    /// The next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Heard {
        match self.stream.next().await {
            Some(signal @ (TERM | INT)) => Heard::Stop(signal),
            Some(signal) => Heard::Forward(signal),
            None => std::future::pending().await,
        }
    }
}
