//! The way to one other member: connects, and connects again; sends what it is given.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};
use tenure_core::Entropy;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::channel::{self, Closed, FrameReader, FrameWriter, LONGEST, PATIENCE};
use super::codec::{Blob, Wire};
use super::frame::{Frame, Hello, MemberInfo, Welcome};
use super::member::Input;
use super::shared::Shared;
use super::{PeersSettings, STORE};
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::watches::lock;
use tenure_store::{Retry, StoreError};

/// How long to wait after so many failures in a row, with jitter. Elections wait for this: it is short.
fn backoff(failures: u32) -> Duration {
    let base = Duration::from_millis(20 << failures.min(4));
    base + base * u32::try_from(KernelEntropy.nonce() % 1000).unwrap_or(0) / 1000
}

/// Where a link leads.
pub(super) struct LinkTarget {
    pub(super) id: u64,
    pub(super) address: String,
    /// Whether there is a connection.
    pub(super) up: Arc<AtomicBool>,
    /// Told when it is worth trying to connect now.
    pub(super) wake: Arc<Notify>,
}

/// Keeps up a connection and sends what comes, until every sender is dropped.
pub(super) async fn run(shared: Weak<Shared>, target: LinkTarget, mut messages: mpsc::Receiver<Message>) {
    let LinkTarget { id, address, up, wake } = target;
    let mut failures = 0;
    while !messages.is_closed() {
        let Some(strong) = shared.upgrade() else { return };
        match greet(&strong, id, &address).await {
            Ok((mut writer, reader)) => {
                failures = 0;
                strong.set_trouble(None);
                up.store(true, Ordering::Relaxed);
                drop(strong);
                let over = tokio::spawn(until_closed(reader));
                send_all(&shared, &mut writer, &mut messages, over).await;
                up.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(member = %address, "{error}");
                if error.retry() == Retry::Never {
                    strong.set_trouble(Some((error.message().to_owned(), true)));
                }
                failures += 1;
                drop(strong);
                let _ = timeout(backoff(failures), wake.notified()).await;
                // What waited meanwhile is out of date.
                while let Ok(message) = messages.try_recv() {
                    if let Some(shared) = shared.upgrade() {
                        report_snapshot(&shared, &message, false);
                    }
                }
            }
        }
    }
}

/// Connects, says who it is, and looks at who the other is.
async fn greet(shared: &Shared, id: u64, address: &str) -> Result<(FrameWriter, FrameReader), StoreError> {
    let info = lock(&shared.identity).as_ref().map(super::identity::Identity::info);
    let hello = Hello { cluster: shared.settings.cluster.to_string(), member: info, wanted: Some(id) };
    let (writer, reader, welcome) = introduce(&shared.settings, address, hello).await?;
    let other = welcome.member.unwrap_or(MemberInfo {
        id: 0,
        disk: 0,
        address: address.to_owned(),
        voting_only: false,
    });
    if other.id != id {
        return Err(unreachable(address, "another member is there, or none yet"));
    }
    shared.admit(&other)?;
    Ok((writer, reader))
}

/// Connects and introduces itself; gives what the other said of itself.
pub(super) async fn introduce(
    settings: &PeersSettings,
    address: &str,
    hello: Hello,
) -> Result<(FrameWriter, FrameReader, Welcome), StoreError> {
    let refused = |error: Closed| {
        let failed = unreachable(address, &error.to_string());
        failed.permanent_if(error.is_permanent())
    };
    let known_as = settings.members.known_as(address);
    let (mut writer, mut reader) =
        channel::connect(address, known_as, &settings.trust).await.map_err(refused)?;
    writer.write_frame(&Frame::Hello(hello)).await.map_err(refused)?;
    match timeout(PATIENCE, reader.read_frame()).await {
        Ok(Ok(Frame::Welcome(welcome))) => {
            reader.allow(LONGEST);
            Ok((writer, reader, welcome))
        }
        Ok(Ok(Frame::Refused(why))) => Err(why),
        Ok(Ok(_)) => Err(refused(Closed::Garbled)),
        Ok(Err(error)) => Err(refused(error)),
        Err(_) => Err(refused(Closed::Silent)),
    }
}

fn unreachable(address: &str, why: &str) -> StoreError {
    StoreError::not_applied(STORE, format!("{address} cannot be reached: {why}"))
}

/// Nothing comes this way but the end.
async fn until_closed(mut reader: FrameReader) {
    while reader.read_frame().await.is_ok() {}
}

async fn send_all(
    shared: &Weak<Shared>,
    writer: &mut FrameWriter,
    messages: &mut mpsc::Receiver<Message>,
    mut over: tokio::task::JoinHandle<()>,
) {
    loop {
        let next = match messages.try_recv() {
            Ok(message) => Some(message),
            Err(_) if writer.flush().await.is_err() => break,
            Err(_) => tokio::select! {
                _ = &mut over => break,
                message = messages.recv() => message,
            },
        };
        let Some(message) = next else { break };
        let sent = put(writer, &message).await;
        if let Some(shared) = shared.upgrade() {
            report_snapshot(&shared, &message, sent.is_ok());
        }
        if sent.is_err() {
            break;
        }
    }
    over.abort();
}

async fn put(writer: &mut FrameWriter, message: &Message) -> Result<(), Closed> {
    let bytes = message.write_to_bytes().map_err(|_| Closed::Garbled)?;
    writer.put(&Frame::Raft(Blob(bytes)).to_bytes()).await
}

/// The library waits to hear what became of a snapshot.
fn report_snapshot(shared: &Shared, message: &Message, sent: bool) {
    if message.get_msg_type() == MessageType::MsgSnapshot {
        shared.input(Input::Sent(message.to, sent));
    }
}
