//! The connection on which signals come: subscribed to one channel for each namespace that is watched.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::{mpsc, watch};

use super::super::hub::Hub;
use super::super::room::Backoff;
use super::super::{Name, Signal, StoreError};
use super::link::Link;
use super::target::Target;
use super::{STORE, fault, keys};

/// A connection without traffic may be dead: somebody in between may have forgotten it.
const SILENCE: Duration = Duration::from_secs(60);

/// Subscribed to on every connection, so that a user who may not subscribe is found out at once.
const PROBE: &str = "tenure:probe";

/// How the rest of a handle speaks to its [`Listener`].
#[derive(Debug, Clone)]
pub(super) struct Ear {
    wants: mpsc::UnboundedSender<Want>,
    hearing: watch::Receiver<Hearing>,
}

/// Whether signals come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hearing {
    /// Nobody has wanted any, or the first attempt is under way.
    Untried,
    Works,
    /// Why not.
    Deaf(String),
}

#[derive(Debug)]
enum Want {
    /// Be ready for watches.
    Listen,
    /// Hear of this namespace, and say when it is so.
    Watch(Name, std::sync::mpsc::Sender<()>),
    /// The server may be another one.
    Renew,
}

/// Does the listening, in a task of its own.
#[derive(Debug)]
pub(super) struct Listener {
    target: Arc<Target>,
    hub: Arc<Hub>,
    wants: mpsc::UnboundedReceiver<Want>,
    hearing: watch::Sender<Hearing>,
    watched: BTreeSet<Name>,
    /// Whether signals may have been missed since they last came.
    missed: bool,
}

/// The two, connected.
pub(super) fn pair(target: &Arc<Target>, hub: &Arc<Hub>) -> (Ear, Listener) {
    let (wants_sender, wants) = mpsc::unbounded_channel();
    let (hearing_sender, hearing) = watch::channel(Hearing::Untried);
    let listener = Listener {
        target: target.clone(),
        hub: hub.clone(),
        wants,
        hearing: hearing_sender,
        watched: BTreeSet::new(),
        missed: false,
    };
    (Ear { wants: wants_sender, hearing }, listener)
}

impl Ear {
    /// Whether signals come, once that is known.
    pub(super) async fn settled(&self, patience: Duration) -> Hearing {
        let _ = self.wants.send(Want::Listen);
        let mut hearing = self.hearing.clone();
        let settled = hearing.wait_for(|hearing| *hearing != Hearing::Untried);
        match tokio::time::timeout(patience, settled).await {
            Ok(Ok(hearing)) => hearing.clone(),
            _ => Hearing::Deaf("the server did not answer in time".to_owned()),
        }
    }

    /// Hears of that namespace from now on. If the connection stands, it waits for the server to confirm, normally one
    /// round trip, so that nothing that is written afterwards is missed; otherwise the watch will be told to look again.
    pub(super) fn watch(&self, namespace: &Name, patience: Duration) {
        let (confirm, confirmed) = std::sync::mpsc::channel();
        let _ = self.wants.send(Want::Watch(namespace.clone(), confirm));
        if *self.hearing.borrow() == Hearing::Works {
            let _ = confirmed.recv_timeout(patience);
        }
    }

    /// Connects anew, because the server may be another one.
    pub(super) fn renew(&self) {
        let _ = self.wants.send(Want::Renew);
    }
}

/// A subscribed connection.
struct Line {
    sink: PubSubSink,
    messages: PubSubStream,
}

impl Listener {
    /// Listens from the first want until the handle is gone.
    pub(super) async fn run(mut self, link: Weak<Link>) {
        let mut backoff = Backoff::default();
        let Some(first) = self.wants.recv().await else { return };
        self.note(first);
        loop {
            match self.connect().await {
                Ok(line) => {
                    backoff = Backoff::default();
                    let _ = self.hearing.send(Hearing::Works);
                    if !self.listen(line).await {
                        return;
                    }
                    self.missed = true;
                    if let Some(link) = link.upgrade() {
                        link.suspect();
                    }
                }
                Err(error) => {
                    let _ = self.hearing.send(Hearing::Deaf(error.to_string()));
                    self.missed = true;
                    if !self.pause(backoff.next()).await {
                        return;
                    }
                }
            }
        }
    }

    /// Takes wants in while nothing can be done about them. False if nobody is left.
    async fn pause(&mut self, delay: Duration) -> bool {
        let until = tokio::time::Instant::now() + delay;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return true,
                want = self.wants.recv() => match want {
                    Some(want) => self.note(want),
                    None => return false,
                },
            }
        }
    }

    /// Whoever waits for a confirmation is let go, and told to look again later.
    fn note(&mut self, want: Want) {
        if let Want::Watch(namespace, _) = want {
            self.watched.insert(namespace);
            self.missed = true;
        }
    }

    async fn connect(&mut self) -> Result<Line, StoreError> {
        let line = match tokio::time::timeout(self.target.timeout, self.dial()).await {
            Ok(line) => line?,
            Err(_) => return Err(fault::timed_out(self.target.timeout)),
        };
        if std::mem::take(&mut self.missed) {
            self.hub.send_all(&Signal::Resync);
        }
        Ok(line)
    }

    async fn dial(&self) -> Result<Line, StoreError> {
        let place = self.target.primary().await?;
        let shown = self.target.to_string();
        let fail = |error| fault::unreachable(&shown, &error);
        let connection = self.target.client_for(place)?.get_async_pubsub().await.map_err(fail)?;
        let (mut sink, messages) = connection.split();
        let channels: Vec<_> = self.watched.iter().map(keys::channel).chain([PROBE.to_owned()]).collect();
        sink.subscribe(channels).await.map_err(fail)?;
        Ok(Line { sink, messages })
    }

    /// Passes signals on until the connection ends. False if nobody is left to pass them to.
    async fn listen(&mut self, mut line: Line) -> bool {
        loop {
            tokio::select! {
                message = line.messages.next() => match message {
                    Some(message) => self.pass_on(&message),
                    None => return true,
                },
                want = self.wants.recv() => match want {
                    None => return false,
                    Some(Want::Listen) => {}
                    Some(Want::Renew) => return true,
                    Some(Want::Watch(namespace, confirm)) => {
                        if !self.subscribe(&mut line, namespace, &confirm).await {
                            return true;
                        }
                    }
                },
                () = tokio::time::sleep(SILENCE) => {
                    let alive = tokio::time::timeout(self.target.timeout, line.sink.ping::<redis::Value>()).await;
                    if !matches!(alive, Ok(Ok(_))) {
                        return true;
                    }
                }
            }
        }
    }

    /// False if the connection is of no use any more.
    async fn subscribe(
        &mut self,
        line: &mut Line,
        namespace: Name,
        confirm: &std::sync::mpsc::Sender<()>,
    ) -> bool {
        if !self.watched.contains(&namespace) {
            let channel = keys::channel(&namespace);
            let subscribed = tokio::time::timeout(self.target.timeout, line.sink.subscribe(channel)).await;
            self.watched.insert(namespace.clone());
            if !matches!(subscribed, Ok(Ok(()))) {
                return false;
            }
        }
        // A watch that did not wait may have missed something.
        if confirm.send(()).is_err() {
            self.hub.send(&namespace, &Signal::Resync);
        }
        true
    }

    fn pass_on(&self, message: &redis::Msg) {
        let Some(namespace) = keys::namespace_of(message.get_channel_name()) else { return };
        let signal = match keys::told(&namespace, message.get_payload_bytes()) {
            Some(entry) => Signal::Changed(entry),
            None => Signal::Resync,
        };
        self.hub.send(&namespace, &signal);
    }
}

/// Why a handle is deaf, for people.
pub(super) fn remark(why: &str) -> String {
    let why = why.trim_start_matches(STORE).trim_start_matches(": ");
    format!("changes of others are found at the next beat only, because signals do not come: {why}")
}
