//! A handle that is not a member: asks whichever member answers, and is told of changes by it.
//!
//! One task owns the connection. When it breaks, or its member can do nothing, the next member is asked the same
//! questions under the same numbers, so that nothing is carried out twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::Entropy;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::hub::Hub;
use super::super::{Fate, Retry, Signal, StoreError};
use super::channel::{Closed, Ear, Mouth};
use super::frame::{Answer, Ask, Frame, Hello};
use super::link::introduce;
use super::{STORE, Settings};
use crate::clock::KernelEntropy;

/// A member that has no majority, or says nothing at all, is left for another one after this part of the time that
/// there is.
const SLICE: u32 = 3;
/// How long to wait before the next attempt.
const PAUSE: Duration = Duration::from_millis(25);

/// Asks one member one thing, on a connection of its own.
pub(super) async fn ask_once(settings: &Settings, address: &str, ask: Ask) -> Result<Answer, StoreError> {
    let (mut mouth, mut ear) = connect(settings, address).await?;
    let lost = |error: Closed| StoreError::unknown(STORE, format!("{address}: {error}"));
    let within = u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX);
    mouth.say(&Frame::Ask(1, within, ask)).await.map_err(lost)?;
    let hear = async {
        loop {
            if let Frame::Answer(1, answer) = ear.hear().await.map_err(lost)? {
                return Ok(answer);
            }
        }
    };
    timeout(settings.timeout, hear).await.unwrap_or_else(|_| Err(lost(Closed::Silent)))
}

async fn connect(settings: &Settings, address: &str) -> Result<(Mouth, Ear), StoreError> {
    let hello = Hello { cluster: settings.cluster.to_string(), member: None, wanted: None };
    let (mouth, ear, _) = introduce(settings, address, hello).await?;
    Ok((mouth, ear))
}

/// A handle that is not a member.
#[derive(Debug)]
pub(super) struct Client {
    settings: Settings,
    calls: mpsc::UnboundedSender<Call>,
}

/// What the task is told.
#[derive(Debug)]
enum Call {
    Ask(Ask, Duration, oneshot::Sender<Result<Answer, StoreError>>),
    /// This member is of no use.
    MoveOn,
}

impl Client {
    /// Starts the task, which connects at once. It ends when the last handle is dropped.
    pub(super) fn start(settings: Settings, hub: Arc<Hub>, runtime: &Handle) -> Self {
        let (calls, received) = mpsc::unbounded_channel();
        let courier = Courier {
            settings: settings.clone(),
            hub,
            calls: received,
            list: Vec::new(),
            next: 0,
            asked: HashMap::new(),
            number: 0,
        };
        runtime.spawn(courier.run());
        Self { settings, calls }
    }

    /// Asks until there is an answer or the time is up.
    pub(super) async fn ask(&self, ask: Ask) -> Answer {
        let until = Instant::now() + self.settings.timeout;
        // A change of the members has no number: it is asked for once.
        let once = matches!(ask, Ask::Add(_) | Ask::Remove(_));
        let slice = if once { self.settings.timeout } else { self.settings.timeout / SLICE };
        let mut doubtful = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let error = match self.attempt(ask.clone(), left.min(slice)).await {
                Ok(Answer::Failed(error)) if error.retry() == Retry::Soon => {
                    let _ = self.calls.send(Call::MoveOn);
                    error
                }
                Ok(answer) => return answer,
                Err(error) => error,
            };
            doubtful |= error.fate() == Fate::Unknown;
            if error.retry() == Retry::Never || left <= slice {
                return Answer::Failed(if doubtful {
                    StoreError::unknown(STORE, error.message())
                } else {
                    error
                });
            }
            sleep(PAUSE).await;
        }
    }

    async fn attempt(&self, ask: Ask, within: Duration) -> Result<Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::not_applied(STORE, "this handle was closed");
        self.calls.send(Call::Ask(ask, within, reply)).map_err(|_| gone())?;
        match timeout(within + self.settings.timeout / SLICE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(StoreError::unknown(STORE, "no member answered in time")),
        }
    }
}

/// The task that owns the connection.
struct Courier {
    settings: Settings,
    hub: Arc<Hub>,
    calls: mpsc::UnboundedReceiver<Call>,
    /// Where members are, as far as is known, and which of them to ask next.
    list: Vec<String>,
    next: usize,
    asked: HashMap<u64, Asked>,
    number: u64,
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    until: Instant,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
    sent: bool,
}

/// Why a connection was left.
enum Left {
    /// Nobody holds the handle any more.
    Done,
    Broken,
}

impl Courier {
    async fn run(mut self) {
        loop {
            match self.connect().await {
                Ok((mouth, ear)) => {
                    // Whatever happened before this moment was not told.
                    self.hub.send_all(&Signal::Resync);
                    if let Left::Done = self.converse(mouth, ear).await {
                        return;
                    }
                }
                Err(error) => {
                    if self.settle(&error).await {
                        return;
                    }
                }
            }
        }
    }

    /// Connects to the next member. Where they are is looked up once for each round of all, which begins with any.
    async fn connect(&mut self) -> Result<(Mouth, Ear), StoreError> {
        if self.next >= self.list.len() {
            let first = self.list.is_empty();
            self.list = self.settings.members.look_up().await?;
            self.next = 0;
            if first {
                let middle = KernelEntropy.nonce() % self.list.len().max(1) as u128;
                self.next = usize::try_from(middle).unwrap_or(0);
            }
        }
        let address = self.list.get(self.next).cloned();
        self.next += 1;
        let nowhere = || StoreError::not_applied(STORE, "the name of the group stands for no address now");
        connect(&self.settings, &address.ok_or_else(nowhere)?).await
    }

    /// After a failed connection: whoever waits is told, and the next member is tried after a moment. True if nobody
    /// holds the handle any more.
    async fn settle(&mut self, error: &StoreError) -> bool {
        while let Ok(call) = self.calls.try_recv() {
            self.take(call);
        }
        let was_last = self.next >= self.list.len() || error.retry() == Retry::Never;
        let now = Instant::now();
        self.asked.retain(|_, asked| !asked.reply.is_closed() && asked.until > now);
        if was_last {
            for (_, asked) in self.asked.extract_if(|_, asked| !asked.sent) {
                let copy = StoreError::not_applied(STORE, error.message());
                let copy = if error.retry() == Retry::Never { copy.permanent() } else { copy };
                let _ = asked.reply.send(Err(copy));
            }
        }
        sleep(PAUSE).await;
        self.calls.is_closed() && self.calls.is_empty()
    }

    /// Asks and listens until the connection is of no use.
    async fn converse(&mut self, mut mouth: Mouth, ear: Ear) -> Left {
        let (heard, mut frames) = mpsc::channel(256);
        let reader: JoinHandle<()> = tokio::spawn(listen(ear, heard));
        let left = self.exchange(&mut mouth, &mut frames).await;
        reader.abort();
        left
    }

    async fn exchange(&mut self, mouth: &mut Mouth, frames: &mut mpsc::Receiver<Frame>) -> Left {
        if self.repeat(mouth).await.is_err() {
            return Left::Broken;
        }
        let silence = self.settings.timeout / SLICE;
        let (mut last_heard, mut pulse) = (Instant::now(), tokio::time::interval(silence / 4));
        loop {
            tokio::select! {
                frame = frames.recv() => match frame {
                    Some(frame) => { last_heard = Instant::now(); self.on_frame(frame); }
                    None => return Left::Broken,
                },
                call = self.calls.recv() => match call {
                    None => return Left::Done,
                    Some(Call::MoveOn) => return Left::Broken,
                    Some(call) => {
                        let number = self.take(call);
                        if self.say(mouth, number).await.is_err() { return Left::Broken; }
                    }
                },
                _ = pulse.tick() => {
                    let now = Instant::now();
                    self.asked.retain(|_, asked| !asked.reply.is_closed() && asked.until > now);
                    if self.asked.is_empty() { last_heard = now; }
                    if last_heard.elapsed() > silence { return Left::Broken; }
                    if !self.asked.is_empty() && mouth.say(&Frame::Ping).await.is_err() { return Left::Broken; }
                }
            }
        }
    }

    fn take(&mut self, call: Call) -> Option<u64> {
        let Call::Ask(ask, within, reply) = call else { return None };
        self.number += 1;
        let asked = Asked { ask, until: Instant::now() + within, reply, sent: false };
        self.asked.insert(self.number, asked);
        Some(self.number)
    }

    /// Asks a new member what the former one did not answer.
    async fn repeat(&mut self, mouth: &mut Mouth) -> Result<(), Closed> {
        let mut open: Vec<u64> = self.asked.keys().copied().collect();
        open.sort_unstable();
        for number in open {
            self.say(mouth, Some(number)).await?;
        }
        Ok(())
    }

    async fn say(&mut self, mouth: &mut Mouth, number: Option<u64>) -> Result<(), Closed> {
        let Some((number, asked)) = number.and_then(|number| Some((number, self.asked.get_mut(&number)?)))
        else {
            return Ok(());
        };
        asked.sent = true;
        let left = asked.until.saturating_duration_since(Instant::now());
        let within = u64::try_from(left.as_millis()).unwrap_or(0);
        mouth.say(&Frame::Ask(number, within, asked.ask.clone())).await
    }

    fn on_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Answer(number, answer) => {
                if let Some(asked) = self.asked.remove(&number) {
                    let _ = asked.reply.send(Ok(answer));
                }
            }
            Frame::Changed(namespace, Some(entry)) => self.hub.send(&namespace, &Signal::Changed(entry)),
            Frame::Changed(namespace, None) => self.hub.send(&namespace, &Signal::Resync),
            Frame::Resync => self.hub.send_all(&Signal::Resync),
            _ => {}
        }
    }
}

async fn listen(mut ear: Ear, heard: mpsc::Sender<Frame>) {
    while let Ok(frame) = ear.hear().await {
        if heard.send(frame).await.is_err() {
            return;
        }
    }
}
