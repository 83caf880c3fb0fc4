//! Where a member listens: other members, and clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protobuf::Message as _;
use raft::eraftpb::{ConfChange, Entry, EntryType, Message};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::channel::{self, Closed, FrameReader, FrameWriter, LONGEST, PATIENCE};
use super::codec::Wire;
use super::frame::{Answer, Ask, Frame, Hello, MemberInfo, Welcome};
use super::identity::{Identity, lost_disk};
use super::member::Input;
use super::settings::refuse;
use super::shared::{BACKLOG, ConnectedClient, Shared, weight};
use super::{LARGEST_BATCH, STORE};
use tenure_store::kit::watches::lock;
use tenure_store::{Fate, StoreError};

/// So many connections at once.
const CONNECTIONS: usize = 4096;
/// So many strangers at once that have not proven who they are.
const STRANGERS: usize = 64;
/// The longest frame of a client: the largest batch, and what is around it.
const LONGEST_ASK: usize = LARGEST_BATCH + (1 << 20);
/// So many requests of one client at once; then it is not listened to.
const REQUESTS: usize = 256;
/// When so much waits for the member, it reads no connection.
const INPUTS: usize = 20_000;
/// The longest that a client may want to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Listens until the runtime ends.
pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let mut strangers = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: others may give some back.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = connections.clone().try_acquire_owned() else { continue };
        let evicted = admit_stranger(&mut strangers);
        let shared = shared.clone();
        tokio::spawn(async move {
            let greeted = tokio::select! {
                greeted = greet(stream, &shared) => greeted,
                _ = evicted => Err(Closed::Silent),
            };
            let ended = match greeted {
                Ok((_, reader, Some(info))) => listen_to_member(reader, &info, &shared).await,
                Ok((writer, reader, None)) => serve_client(writer, reader, shared).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::trace!("a connection ended: {error}");
            }
            drop(place);
        });
    }
}

/// Space for one more stranger. When there are too many, the first to come has to leave: those who mean well have proven
/// who they are long before.
fn admit_stranger(strangers: &mut VecDeque<oneshot::Sender<()>>) -> oneshot::Receiver<()> {
    strangers.retain(|stranger| !stranger.is_closed());
    if strangers.len() >= STRANGERS {
        strangers.pop_front();
    }
    let (stays, evicted) = oneshot::channel();
    strangers.push_back(stays);
    evicted
}

/// Finds out who connected. A peer that is not let in is told why, if it knows the secret or has a certificate.
async fn greet(
    stream: TcpStream,
    shared: &Shared,
) -> Result<(FrameWriter, FrameReader, Option<MemberInfo>), Closed> {
    let (mut writer, mut reader) = channel::accept(stream, &shared.settings.trust).await?;
    let Ok(Ok(Frame::Hello(hello))) = timeout(PATIENCE, reader.read_frame()).await else {
        return Err(Closed::Silent);
    };
    match check(&hello, &reader, shared) {
        Ok(welcome) => {
            reader.allow(if hello.member.is_some() { LONGEST } else { LONGEST_ASK });
            writer.write_frame(&Frame::Welcome(welcome)).await?;
            Ok((writer, reader, hello.member))
        }
        Err(why) => {
            writer.write_frame(&Frame::Refused(why)).await?;
            Err(Closed::Stranger)
        }
    }
}

fn check(hello: &Hello, reader: &FrameReader, shared: &Shared) -> Result<Welcome, StoreError> {
    let cluster = shared.settings.cluster.as_str();
    if hello.cluster != cluster {
        return Err(refuse(&format!(
            "this is a member of cluster {cluster:?}, not of {:?}: look at the addresses, or at cluster=NAME",
            hello.cluster
        )));
    }
    let own = lock(&shared.identity).as_ref().map(Identity::info);
    if let Some(info) = &hello.member {
        let id = own.as_ref().map(|own| own.id);
        if hello.wanted != id {
            return Err(StoreError::not_applied(STORE, "another member is here now, or none yet"));
        }
        if !reader.may_be_at(shared.settings.members.known_as(&info.address)) {
            return Err(refuse(&format!(
                "the certificate of {} does not name its host: a member needs one that does, or the secret of the group",
                info.address
            )));
        }
        shared.admit(info)?;
        shared.has_come(info.id);
    }
    Ok(Welcome { member: own, applied: shared.applied() })
}

/// Hands the messages of a member to the thread.
async fn listen_to_member(mut reader: FrameReader, info: &MemberInfo, shared: &Shared) -> Result<(), Closed> {
    loop {
        let Frame::Raft(bytes) = reader.read_frame().await? else { return Err(Closed::Garbled) };
        let message = parsed(&bytes.0).ok_or(Closed::Garbled)?;
        if message.from != info.id || raft::raw_node::is_local_msg(message.get_msg_type()) {
            return Err(Closed::Garbled);
        }
        hand_in(shared, Input::Raft(Box::new(message))).await?;
    }
}

/// A message, if this member can read the changes of the members in it.
pub(super) fn parsed(bytes: &[u8]) -> Option<Message> {
    let message = Message::parse_from_bytes(bytes).ok()?;
    let is_readable = |entry: &Entry| {
        entry.get_entry_type() == EntryType::EntryNormal || ConfChange::parse_from_bytes(&entry.data).is_ok()
    };
    message.entries.iter().all(is_readable).then_some(message)
}

/// Gives the thread an input, once it is not flooded.
async fn hand_in(shared: &Shared, input: Input) -> Result<(), Closed> {
    while shared.waiting.load(Ordering::Relaxed) > INPUTS {
        sleep(Duration::from_millis(5)).await;
    }
    if shared.input(input) { Ok(()) } else { Err(Closed::Silent) }
}

/// Answers a client, and tells it of changes.
async fn serve_client(
    writer: FrameWriter,
    mut reader: FrameReader,
    shared: Arc<Shared>,
) -> Result<(), Closed> {
    let (outbox, frames) = mpsc::channel(BACKLOG);
    let missed = Arc::new(AtomicBool::new(false));
    shared.add_client(ConnectedClient { outbox: outbox.clone(), missed: missed.clone() });
    let writer = tokio::spawn(write_all(writer, frames, missed));
    let ended = answer_all(&mut reader, &outbox, &shared).await;
    writer.abort();
    ended
}

async fn answer_all(
    reader: &mut FrameReader,
    outbox: &mpsc::Sender<Arc<[u8]>>,
    shared: &Arc<Shared>,
) -> Result<(), Closed> {
    let requests = Arc::new(Semaphore::new(REQUESTS));
    loop {
        match reader.read_frame().await? {
            Frame::Ping => enqueue(outbox, &Frame::Pong(shared.applied())).await?,
            Frame::Ask(number, _, ask) if is_reserved(&ask) && !may_change(reader, shared) => {
                let refused = Answer::Failed(refuse(RESERVED));
                enqueue(outbox, &Frame::Answer(number, shared.applied(), refused)).await?;
            }
            Frame::Ask(number, within, ask) => {
                let weight = weight(reader.last_length());
                let (Ok(turn), Ok(space)) = (
                    requests.clone().acquire_owned().await,
                    shared.space.clone().acquire_many_owned(weight).await,
                ) else {
                    return Err(Closed::Silent);
                };
                let (outbox, shared) = (outbox.clone(), shared.clone());
                tokio::spawn(async move {
                    let answer = answer(&shared, ask, Duration::from_millis(within)).await;
                    let answer = for_a_client(answer, &shared);
                    let _ = enqueue(&outbox, &Frame::Answer(number, shared.applied(), answer)).await;
                    drop((turn, space));
                });
            }
            _ => return Err(Closed::Garbled),
        }
    }
}

const RESERVED: &str = "clients do not change the members of a group: ask with the secret of the group \
                        (secret-file=PATH), or with the certificate of a member";

/// What only members and operators may ask.
fn is_reserved(ask: &Ask) -> bool {
    matches!(ask, Ask::Add(_) | Ask::Remove(_))
}

/// Whether the peer that asks proved as much as one of the members could.
fn may_change(reader: &FrameReader, shared: &Shared) -> bool {
    let known_as = |address: &str| shared.settings.members.known_as(address).to_owned();
    shared.group_view().members.iter().any(|member| reader.may_be_at(&known_as(&member.address)))
}

/// What is wrong with this member need not be wrong with the next one that the client asks.
fn for_a_client(answer: Answer, shared: &Shared) -> Answer {
    match answer {
        Answer::Failed(error) if shared.trouble().is_some() && error.fate() == Fate::NotApplied => {
            Answer::Failed(StoreError::not_applied(STORE, error.message()))
        }
        answer => answer,
    }
}

async fn enqueue(outbox: &mpsc::Sender<Arc<[u8]>>, frame: &Frame) -> Result<(), Closed> {
    outbox.send(frame.to_bytes().into()).await.map_err(|_| Closed::Silent)
}

async fn write_all(mut writer: FrameWriter, mut frames: mpsc::Receiver<Arc<[u8]>>, missed: Arc<AtomicBool>) {
    while let Some(frame) = frames.recv().await {
        if writer.put(&frame).await.is_err() {
            return;
        }
        if frames.is_empty() {
            let late = missed.swap(false, Ordering::AcqRel);
            if (late && writer.put(&Frame::Resync.to_bytes()).await.is_err()) || writer.flush().await.is_err()
            {
                return;
            }
        }
    }
}

/// Has the thread answer, or says why it does not.
pub(super) async fn answer(shared: &Shared, ask: Ask, within: Duration) -> Answer {
    if let Ask::Roll(address, list) = &ask {
        return roll(shared, address, list).await;
    }
    let (reply, answer) = oneshot::channel();
    let is_write = matches!(ask, Ask::Write(..) | Ask::Add(_) | Ask::Remove(_));
    let deadline = Instant::now() + within.min(LONGEST_WAIT);
    if hand_in(shared, Input::Ask(ask, deadline, reply)).await.is_err() {
        return Answer::Failed(StoreError::not_applied(STORE, "this member is closed"));
    }
    // The thread answers everything, unless it ends in between.
    answer.await.unwrap_or_else(|_| {
        let why = shared.trouble().map_or_else(|| "this member was closed".to_owned(), |(why, _)| why);
        Answer::Failed(if is_write {
            StoreError::unknown(STORE, why)
        } else {
            StoreError::not_applied(STORE, why)
        })
    })
}

/// Whether a member with an empty disk may start.
async fn roll(shared: &Shared, address: &str, _: &[String]) -> Answer {
    let identity = lock(&shared.identity).clone();
    let Some(identity) = identity else {
        return shared.settings.members.look_up().await.map_or_else(Answer::Failed, Answer::Fresh);
    };
    let group_view = shared.group_view();
    if group_view.members.is_empty() {
        return Answer::Failed(StoreError::not_applied(
            STORE,
            "this member is being sent the log: wait for it",
        ));
    }
    let id = group_view.members.iter().find(|member| member.address == address).map(|member| member.id);
    let seen = id.is_some_and(|id| identity.has_seen(id));
    if seen {
        tracing::debug!("{}", lost_disk(address));
    }
    Answer::Known(group_view, id, seen)
}
