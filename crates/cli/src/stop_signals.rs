//! The signals by which people and supervisors end a command that has something to clean up.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// SIGINT, SIGTERM and SIGHUP, which end nothing by themselves any more.
pub(crate) struct StopSignals([Signal; 3]);

impl StopSignals {
    pub(crate) fn listen() -> Result<Self, Exit> {
        let on = |kind| signal(kind).map_err(|error| Exit::Failed(format!("cannot handle signals: {error}")));
        Ok(Self([on(SignalKind::interrupt())?, on(SignalKind::terminate())?, on(SignalKind::hangup())?]))
    }

    /// Waits for one of them.
    pub(crate) async fn any(&mut self) -> SignalKind {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hangup.recv() => SignalKind::hangup(),
        }
    }
}
