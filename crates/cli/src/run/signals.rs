//! The signals that this process passes on, and the ones that stop it.

use std::io;

use futures_util::stream::BoxStream;
use futures_util::stream::{SelectAll, StreamExt, once, unfold};
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
        Self::when_and_when(stop, std::future::pending())
    }

    /// No signals at all; but "stop" when that comes, and "at once" when that comes after it.
    pub(crate) fn when_and_when(
        stop: impl Future<Output = ()> + Send + 'static,
        kill: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let orders = once(stop).chain(once(kill)).map(|()| TERM).boxed();
        Self { stream: SelectAll::from_iter([orders]) }
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
