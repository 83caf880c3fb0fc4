//! A handle that is not a member: asks whichever member answers, and is told of changes by it.
//!
//! One task owns the connection. When it breaks, or its member can do nothing, the next member is asked the same
//! questions under the same numbers, so that nothing is carried out twice.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tenure_core::Entropy;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::channel::{Closed, FrameReader, FrameWriter};
use super::frame::{Answer, Ask, Frame, Hello};
use super::link::introduce;
use super::{PeersSettings, STORE};
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::watches::Watches;
use tenure_store::{Fate, Retry, Signal, StoreError};

/// A member that has no majority, or says nothing at all, is left for another one after this part of the time that
/// there is.
const SLICE: u32 = 3;
/// A request that waits for an answer asks so often whether the member is there, before another member is asked.
const PULSES: u32 = 4;
/// How long to wait before the next attempt.
const PAUSE: Duration = Duration::from_millis(25);

/// Asks one member one thing, on a connection of its own.
pub(super) async fn ask_once(
    settings: &PeersSettings,
    address: &str,
    ask: Ask,
) -> Result<Answer, StoreError> {
    let (mut writer, mut reader, _) = connect(settings, address).await?;
    let lost = |error: Closed| StoreError::unknown(STORE, format!("{address}: {error}"));
    let within = u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX);
    writer.write_frame(&Frame::Ask(1, within, ask)).await.map_err(lost)?;
    let hear = async {
        loop {
            if let Frame::Answer(1, _, answer) = reader.read_frame().await.map_err(lost)? {
                return Ok(answer);
            }
        }
    };
    timeout(settings.timeout, hear).await.unwrap_or_else(|_| Err(lost(Closed::Silent)))
}

/// A connection, and how far that member has applied the log.
async fn connect(
    settings: &PeersSettings,
    address: &str,
) -> Result<(FrameWriter, FrameReader, u64), StoreError> {
    let hello = Hello { cluster: settings.cluster.to_string(), member: None, wanted: None };
    let (writer, reader, welcome) = introduce(settings, address, hello).await?;
    Ok((writer, reader, welcome.applied))
}

/// A handle that is not a member.
#[derive(Debug)]
pub(super) struct Client {
    settings: PeersSettings,
    calls: mpsc::UnboundedSender<Call>,
}

/// Where the log was when a request was first sent, the same for every attempt. A member forgets a request some entries
/// after it was carried out, and would carry out a later attempt that claimed to be new.
type FirstSent = Arc<OnceLock<u64>>;

/// What the task is told.
#[derive(Debug)]
enum Call {
    Ask(Ask, FirstSent, Duration, oneshot::Sender<Result<Answer, StoreError>>),
    /// This member is of no use.
    MoveOn,
}

impl Client {
    /// Starts the task, which connects at once. It ends when the last handle is dropped.
    pub(super) fn start(settings: PeersSettings, watches: Arc<Watches>, runtime: &Handle) -> Self {
        let (calls, received) = mpsc::unbounded_channel();
        let connection = ClientConnection {
            settings: settings.clone(),
            watches,
            calls: received,
            list: Vec::new(),
            next: 0,
            asked: HashMap::new(),
            number: 0,
            applied: 0,
        };
        runtime.spawn(connection.run());
        Self { settings, calls }
    }

    /// Asks until there is an answer or the time is up.
    pub(super) async fn ask(&self, ask: Ask) -> Answer {
        let until = Instant::now() + self.settings.timeout;
        // A change of the members has no number: it is asked for once.
        let once = matches!(ask, Ask::Add(_) | Ask::Remove(_));
        let slice = if once { self.settings.timeout } else { self.settings.timeout / SLICE };
        let first_sent = FirstSent::default();
        let mut doubtful = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let error = match self.attempt(ask.clone(), &first_sent, left.min(slice)).await {
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

    async fn attempt(
        &self,
        ask: Ask,
        first_sent: &FirstSent,
        within: Duration,
    ) -> Result<Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::not_applied(STORE, "this handle was closed");
        self.calls.send(Call::Ask(ask, first_sent.clone(), within, reply)).map_err(|_| gone())?;
        match timeout(within + self.settings.timeout / SLICE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(StoreError::unknown(STORE, "no member answered in time")),
        }
    }
}

/// The task that owns the connection.
struct ClientConnection {
    settings: PeersSettings,
    watches: Arc<Watches>,
    calls: mpsc::UnboundedReceiver<Call>,
    /// Where members are, as far as is known, and which of them to ask next.
    list: Vec<String>,
    next: usize,
    asked: HashMap<u64, Asked>,
    number: u64,
    /// How far the member at the other end has applied the log, as far as it told.
    applied: u64,
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    until: Instant,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
    first_sent: FirstSent,
    /// To how many members.
    sent: u32,
}

/// Why a connection was left.
enum Left {
    /// Every copy of the handle is dropped.
    Done,
    Broken,
}

impl ClientConnection {
    async fn run(mut self) {
        loop {
            match self.connect().await {
                Ok((writer, reader, applied)) => {
                    self.applied = applied;
                    // Whatever happened before this moment was not told.
                    self.watches.send_all(&Signal::Resync);
                    if let Left::Done = self.converse(writer, reader).await {
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
    async fn connect(&mut self) -> Result<(FrameWriter, FrameReader, u64), StoreError> {
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

    /// After a failed connection: callers that wait are told, and the next member is tried after a moment. True if none
    /// holds the handle any more.
    async fn settle(&mut self, error: &StoreError) -> bool {
        while let Ok(call) = self.calls.try_recv() {
            self.take(call);
        }
        let was_last = self.next >= self.list.len() || error.retry() == Retry::Never;
        let now = Instant::now();
        self.asked.retain(|_, asked| !asked.reply.is_closed() && asked.until > now);
        if was_last {
            for (_, asked) in self.asked.extract_if(|_, asked| asked.sent == 0) {
                let copy = StoreError::not_applied(STORE, error.message());
                let copy = copy.permanent_if(error.retry() == Retry::Never);
                let _ = asked.reply.send(Err(copy));
            }
        }
        sleep(PAUSE).await;
        self.calls.is_closed() && self.calls.is_empty()
    }

    /// Asks and listens until the connection is of no use.
    async fn converse(&mut self, mut writer: FrameWriter, reader: FrameReader) -> Left {
        let (heard, mut frames) = mpsc::channel(256);
        let reader: JoinHandle<()> = tokio::spawn(listen(reader, heard));
        let left = self.exchange(&mut writer, &mut frames).await;
        reader.abort();
        left
    }

    async fn exchange(&mut self, writer: &mut FrameWriter, frames: &mut mpsc::Receiver<Frame>) -> Left {
        if self.repeat(writer).await.is_err() {
            return Left::Broken;
        }
        let silence = self.settings.timeout / SLICE;
        let (mut last_heard, mut pulse) = (Instant::now(), tokio::time::interval(silence / PULSES));
        let mut quiet = 0_u32;
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
                        if self.send_request(writer, number).await.is_err() { return Left::Broken; }
                    }
                },
                _ = pulse.tick() => {
                    let now = Instant::now();
                    self.asked.retain(|_, asked| !asked.reply.is_closed() && asked.until > now);
                    if self.asked.is_empty() { last_heard = now; }
                    if last_heard.elapsed() > silence { return Left::Broken; }
                    // Also when nothing is asked, now and then: a write says how far the log was, as far as is known here.
                    quiet = if self.asked.is_empty() { quiet + 1 } else { 0 };
                    if quiet.is_multiple_of(PULSES) && writer.write_frame(&Frame::Ping).await.is_err() { return Left::Broken; }
                }
            }
        }
    }

    fn take(&mut self, call: Call) -> Option<u64> {
        let Call::Ask(ask, first_sent, within, reply) = call else { return None };
        self.number += 1;
        let asked = Asked { ask, until: Instant::now() + within, reply, first_sent, sent: 0 };
        self.asked.insert(self.number, asked);
        Some(self.number)
    }

    /// Asks a new member what the former one did not answer.
    async fn repeat(&mut self, writer: &mut FrameWriter) -> Result<(), Closed> {
        let mut open: Vec<u64> = self.asked.keys().copied().collect();
        open.sort_unstable();
        for number in open {
            self.send_request(writer, Some(number)).await?;
        }
        Ok(())
    }

    async fn send_request(&mut self, writer: &mut FrameWriter, number: Option<u64>) -> Result<(), Closed> {
        match number.and_then(|number| self.question(number)) {
            Some(frame) => writer.write_frame(&frame).await,
            None => Ok(()),
        }
    }

    /// What is said to the member at the other end.
    fn question(&mut self, number: u64) -> Option<Frame> {
        let asked = self.asked.get_mut(&number)?;
        asked.sent += 1;
        if let Ask::Write(_, since, ..) = &mut asked.ask {
            *since = *asked.first_sent.get_or_init(|| self.applied);
        }
        let left = asked.until.saturating_duration_since(Instant::now());
        let within = u64::try_from(left.as_millis()).unwrap_or(0);
        Some(Frame::Ask(number, within, asked.ask.clone()))
    }

    fn on_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Answer(number, applied, answer) => {
                self.applied = applied;
                if let Some(asked) = self.asked.remove(&number) {
                    let answer = if asked.sent > 1 { in_doubt(answer) } else { answer };
                    let _ = asked.reply.send(Ok(answer));
                }
            }
            Frame::Pong(applied) => self.applied = applied,
            Frame::Changed(namespace, key) => self.watches.send(&namespace, &Signal::Changed(key)),
            Frame::Resync => self.watches.send_all(&Signal::Resync),
            _ => {}
        }
    }
}

/// The answer of a member to what another member was asked before: it cannot say what that one did.
fn in_doubt(answer: Answer) -> Answer {
    match answer {
        Answer::Failed(error) if error.fate() == Fate::NotApplied => {
            let doubt = StoreError::unknown(STORE, error.message());
            Answer::Failed(doubt.permanent_if(error.retry() == Retry::Never))
        }
        answer => answer,
    }
}

async fn listen(mut reader: FrameReader, heard: mpsc::Sender<Frame>) {
    while let Ok(frame) = reader.read_frame().await {
        if heard.send(frame).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::Name;

    fn connection() -> ClientConnection {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, super::super::trust::new_secret()).unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let settings =
            PeersSettings::parse(&format!("peers://a:1?secret-file={}", secret.display())).unwrap();
        let (list, asked, calls) = (Vec::new(), HashMap::new(), mpsc::unbounded_channel().1);
        ClientConnection {
            settings,
            watches: Arc::default(),
            calls,
            list,
            next: 0,
            asked,
            number: 0,
            applied: 100,
        }
    }

    /// Takes one attempt at a write; gives its number and where the answer comes.
    fn attempt(
        connection: &mut ClientConnection,
        first_sent: &FirstSent,
    ) -> (u64, oneshot::Receiver<Result<Answer, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        let write = Ask::Write(7, u64::MAX, Name::new("a").unwrap(), Vec::new());
        let call = Call::Ask(write, first_sent.clone(), Duration::from_secs(5), reply);
        (connection.take(call).unwrap(), answer)
    }

    fn since(connection: &mut ClientConnection, number: u64) -> u64 {
        match connection.question(number) {
            Some(Frame::Ask(_, _, Ask::Write(_, since, ..))) => since,
            other => panic!("{other:?}"),
        }
    }

    /// Each member used to say where the log was by itself: a request that was repeated by way of another member, more than
    /// 8192 entries later, was carried out again, and a register came back that had been deleted meanwhile.
    #[test]
    fn every_attempt_says_where_the_log_was_before_the_first() {
        let mut connection = connection();
        let first_sent = FirstSent::default();
        let (number, _answer) = attempt(&mut connection, &first_sent);
        assert_eq!(since(&mut connection, number), 100);
        connection.on_frame(Frame::Pong(9000));
        assert_eq!(since(&mut connection, number), 100, "the same question to another member");
        let (again, _answer) = attempt(&mut connection, &first_sent);
        assert_eq!(since(&mut connection, again), 100, "the same request asked anew");
        let (other, _answer) = attempt(&mut connection, &FirstSent::default());
        assert_eq!(since(&mut connection, other), 9000);
    }

    /// The second member was being closed, and said that nothing happened; the first one had carried it out.
    #[test]
    fn what_another_member_was_asked_before_is_in_doubt() {
        for members in 1..=2 {
            let mut connection = connection();
            let (number, mut answer) = attempt(&mut connection, &FirstSent::default());
            (0..members).for_each(|_| drop(connection.question(number)));
            let refused = Answer::Failed(StoreError::not_applied(STORE, "this member is being closed"));
            connection.on_frame(Frame::Answer(number, 101, refused));
            let Ok(Ok(Answer::Failed(error))) = answer.try_recv() else { panic!("an answer") };
            let expected = if members == 1 { Fate::NotApplied } else { Fate::Unknown };
            assert_eq!(error.fate(), expected, "asked of {members}");
        }
    }
}
