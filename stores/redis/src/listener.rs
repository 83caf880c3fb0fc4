//! The connection on which signals come: subscribed to one channel for each namespace that is watched.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::{mpsc, watch};

use super::operations::Operations;
use super::settings::RedisSettings;
use super::{STORE, error, keys};
use tenure_store::kit::listener::ListenerState;
use tenure_store::kit::thread::Backoff;
use tenure_store::kit::watches::Watches;
use tenure_store::{Name, Signal, StoreError};

/// A connection without traffic may be dead: a firewall in between may have forgotten it.
const SILENCE: Duration = Duration::from_secs(60);

/// Subscribed to on every connection, so that a user who may not subscribe is found out at once.
const PROBE: &str = "tenure:probe";

/// How the rest of a handle speaks to its [`ListenerTask`].
#[derive(Debug, Clone)]
pub(super) struct RedisListener {
    wants: mpsc::UnboundedSender<Want>,
    state: watch::Receiver<ListenerState>,
    thread: Arc<OnceLock<ThreadId>>,
}

#[derive(Debug)]
enum Want {
    /// Be ready for watches.
    Listen,
    /// Subscribe to this namespace, and say when it is so.
    Watch(Name, std::sync::mpsc::Sender<()>),
    /// The server may be another one.
    Renew,
}

/// Does the listening, in a task of its own.
#[derive(Debug)]
pub(super) struct ListenerTask {
    settings: Arc<RedisSettings>,
    watches: Arc<Watches>,
    wants: mpsc::UnboundedReceiver<Want>,
    state: watch::Sender<ListenerState>,
    watched: BTreeSet<Name>,
    /// Whether signals may have been missed since they last came.
    missed: bool,
    /// Where it runs.
    thread: Arc<OnceLock<ThreadId>>,
}

/// The two, connected.
pub(super) fn pair(settings: &Arc<RedisSettings>, watches: &Arc<Watches>) -> (RedisListener, ListenerTask) {
    let (wants_sender, wants) = mpsc::unbounded_channel();
    let (state_sender, state) = watch::channel(ListenerState::Trying);
    let thread = Arc::default();
    let listener = ListenerTask {
        settings: settings.clone(),
        watches: watches.clone(),
        wants,
        state: state_sender,
        watched: BTreeSet::new(),
        missed: false,
        thread: Arc::clone(&thread),
    };
    (RedisListener { wants: wants_sender, state, thread }, listener)
}

impl RedisListener {
    /// Whether signals come, once that is known.
    pub(super) async fn settled(&self, patience: Duration) -> ListenerState {
        let _ = self.wants.send(Want::Listen);
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| *state != ListenerState::Trying);
        match tokio::time::timeout(patience, settled).await {
            Ok(Ok(state)) => state.clone(),
            _ => ListenerState::Failed("the server did not answer in time".to_owned()),
        }
    }

    /// Subscribes to that namespace from now on. If the connection stands, it waits for the server to confirm, normally one
    /// round trip, so that nothing that is written afterwards is missed; otherwise the watch will be told to look again. So it will
    /// be if this is called on the thread that has to subscribe.
    pub(super) fn watch(&self, namespace: &Name, patience: Duration) {
        let (confirm, confirmed) = std::sync::mpsc::channel();
        let _ = self.wants.send(Want::Watch(namespace.clone(), confirm));
        let can_wait = self.thread.get() != Some(&thread::current().id());
        if can_wait && *self.state.borrow() == ListenerState::Works {
            let _ = confirmed.recv_timeout(patience);
        }
    }

    /// Connects anew, because the server may be another one.
    pub(super) fn renew(&self) {
        let _ = self.wants.send(Want::Renew);
    }
}

/// A subscribed connection.
struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
}

impl ListenerTask {
    /// Listens from the first want until the handle is gone.
    pub(super) async fn run(mut self, operations: Weak<Operations>) {
        let mut backoff = Backoff::default();
        let _ = self.thread.set(thread::current().id());
        let Some(first) = self.wants.recv().await else { return };
        self.note(first);
        loop {
            match self.connect().await {
                Ok(subscription) => {
                    backoff = Backoff::default();
                    let _ = self.state.send(ListenerState::Works);
                    if !self.listen(subscription).await {
                        return;
                    }
                    self.missed = true;
                    if let Some(operations) = operations.upgrade() {
                        operations.suspect();
                    }
                }
                Err(error) => {
                    let _ = self.state.send(ListenerState::Failed(error.to_string()));
                    self.missed = true;
                    if !self.pause(backoff.next_delay()).await {
                        return;
                    }
                }
            }
        }
    }

    /// Takes wants in while nothing can be done about them. False if no watch is left.
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

    /// A watch that waits for a confirmation is let go, and told to look again later.
    fn note(&mut self, want: Want) {
        if let Want::Watch(namespace, _) = want {
            self.watched.insert(namespace);
            self.missed = true;
        }
    }

    async fn connect(&mut self) -> Result<Subscription, StoreError> {
        let subscription = match tokio::time::timeout(self.settings.timeout, self.dial()).await {
            Ok(subscription) => subscription?,
            Err(_) => return Err(error::timed_out(self.settings.timeout)),
        };
        if std::mem::take(&mut self.missed) {
            self.watches.send_all(&Signal::Resync);
        }
        Ok(subscription)
    }

    async fn dial(&self) -> Result<Subscription, StoreError> {
        let place = self.settings.primary().await?;
        let shown = self.settings.to_string();
        let fail = |error| error::unreachable(&shown, &error);
        let connection = self.settings.client_for(place)?.get_async_pubsub().await.map_err(fail)?;
        let (mut sink, messages) = connection.split();
        let channels: Vec<_> = self.watched.iter().map(keys::channel).chain([PROBE.to_owned()]).collect();
        sink.subscribe(channels).await.map_err(fail)?;
        Ok(Subscription { sink, messages })
    }

    /// Passes signals on until the connection ends. False if no watch is left to pass them to.
    async fn listen(&mut self, mut subscription: Subscription) -> bool {
        loop {
            tokio::select! {
                message = subscription.messages.next() => match message {
                    Some(message) => self.pass_on(&message),
                    None => return true,
                },
                want = self.wants.recv() => match want {
                    None => return false,
                    Some(Want::Listen) => {}
                    Some(Want::Renew) => return true,
                    Some(Want::Watch(namespace, confirm)) => {
                        if !self.subscribe(&mut subscription, namespace, &confirm).await {
                            return true;
                        }
                    }
                },
                () = tokio::time::sleep(SILENCE) => {
                    let alive = tokio::time::timeout(self.settings.timeout, subscription.sink.ping::<redis::Value>()).await;
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
        subscription: &mut Subscription,
        namespace: Name,
        confirm: &std::sync::mpsc::Sender<()>,
    ) -> bool {
        if !self.watched.contains(&namespace) {
            let channel = keys::channel(&namespace);
            let subscribed =
                tokio::time::timeout(self.settings.timeout, subscription.sink.subscribe(channel)).await;
            self.watched.insert(namespace.clone());
            if !matches!(subscribed, Ok(Ok(()))) {
                return false;
            }
        }
        // A watch that did not wait may have missed something.
        if confirm.send(()).is_err() {
            self.watches.send(&namespace, &Signal::Resync);
        }
        true
    }

    fn pass_on(&self, message: &redis::Msg) {
        let Some(namespace) = keys::namespace_of(message.get_channel_name()) else { return };
        // What we cannot have written is another program's, and means nothing.
        if let Some(key) = keys::named(&namespace, message.get_payload_bytes()) {
            self.watches.send(&namespace, &Signal::Changed(key));
        }
    }
}

/// Why signals do not come, for people.
pub(super) fn remark(why: &str) -> String {
    let why = why.trim_start_matches(STORE).trim_start_matches(": ");
    format!("changes of others are found at the next beat only, because signals do not come: {why}")
}
