//! The first contact with the store. One that is not up yet is waited for; one that refuses this node is not, because
//! only a person can change that.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::engine::Class;
use tokio::sync::watch;

use super::DriverConfig;
use super::tenure_table::TenureTable;
use crate::Name;
use crate::event::EventKind;
use crate::store::{Retry, SharedStore, StoreError};

/// How far a node has come in reaching its store.
#[derive(Debug, Clone)]
pub(crate) enum StoreContact {
    /// The store has not answered yet; the last error, if there was one.
    Waiting(Option<StoreError>),
    /// It has answered; whether this node may write is not known yet.
    Answered,
    /// This node has written to it.
    Admitted,
    /// It refuses this node, and will until a person has done something.
    Refused(StoreError),
}

/// How long to wait before the store is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits for the store to answer. None if the node is to stop instead, or is refused.
pub(super) async fn connect(config: &mut DriverConfig, table: &mut TenureTable) -> Option<Class> {
    let mut waiting = false;
    loop {
        let (store, namespace) = (config.store.clone(), config.namespace.clone());
        let answer = serve_commands_until(config, table, probe(&store, &namespace)).await?;
        match answer {
            Ok(class) => {
                config.contact.send_replace(StoreContact::Answered);
                if waiting {
                    tracing::info!(node = %config.node, store = %config.store, "the store has answered");
                }
                return Some(class);
            }
            Err(error) if error.retry() == Retry::Never => {
                config.contact.send_replace(StoreContact::Refused(error));
                return None;
            }
            Err(error) => {
                waiting = true;
                report_waiting(config, error);
            }
        }
        serve_commands_until(config, table, tokio::time::sleep(PAUSE)).await?;
    }
}

/// The class of the store, and whether this node may read there.
async fn probe(store: &SharedStore, namespace: &Name) -> Result<Class, StoreError> {
    let class = store.describe().await?.class;
    crate::operator::epoch(store, namespace).await?;
    Ok(class)
}

/// Logs and publishes the error once, until it changes.
fn report_waiting(config: &DriverConfig, error: StoreError) {
    let said = error.to_string();
    let same =
        matches!(&*config.contact.borrow(), StoreContact::Waiting(Some(last)) if last.to_string() == said);
    config.contact.send_replace(StoreContact::Waiting(Some(error)));
    if !same {
        tracing::warn!(node = %config.node, store = %config.store, error = said, "waiting for the store");
        config.publisher.publish_unlogged(EventKind::StoreFailed { error: said });
    }
}

/// Awaits `work`, takes commands meanwhile, and shows that the loop turns. None if the node is to stop.
async fn serve_commands_until<T>(
    config: &mut DriverConfig,
    table: &mut TenureTable,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut turn = tokio::time::interval(config.timing.beat);
    loop {
        config.last_turn.store(config.clock.now().as_nanos(), Ordering::Release);
        tokio::select! {
            done = &mut work => return Some(done),
            command = config.commands.recv() => {
                table.apply_without_engine(command?);
                if table.is_stopping() {
                    return None;
                }
            }
            _ = turn.tick() => {}
        }
    }
}

/// A write was refused for good. A node that never had a session has no business waiting.
pub(super) fn mark_refused(contact: &watch::Sender<StoreContact>, error: StoreError) {
    contact.send_if_modified(|contact| {
        let new = matches!(contact, StoreContact::Answered);
        if new {
            *contact = StoreContact::Refused(error);
        }
        new
    });
}
