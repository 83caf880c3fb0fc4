//! The connection that listens: one channel, `tenure`, for every change that rings.
//!
//! A listener must be one process of the server for as long as it listens. A pooler that lends another one to every
//! statement loses notifications without a word; so nothing listens there, and the description says so.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use tenure_core::Token;
use tokio::sync::watch;
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::super::hearing::{Hearing, Listening};
use super::super::hub::Hub;
use super::super::room::{Backoff, closed};
use super::super::{Entry, Key, Name, Query, Signal, StoreError, Value, Version};
use super::link::Link;
use super::rows::{self, Question};
use super::session::{Wire, attended, connect};
use super::settings::Settings;
use super::{STORE, fault};

/// The connection that listens, opened when somebody wants to hear.
#[derive(Debug)]
pub(super) struct Ears {
    listening: Listening,
    line: watch::Receiver<Option<Arc<Line>>>,
}

/// The connection that listens, for what must be done on one that lives as long as the handle can keep it.
pub(super) struct Line {
    pub(super) client: tokio_postgres::Client,
    /// It is gone, or to be given up.
    pub(super) lost: CancellationToken,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("lost", &self.lost.is_cancelled()).finish_non_exhaustive()
    }
}

impl Ears {
    /// Ears, and what keeps them open until dropped.
    pub(super) fn new(
        settings: Arc<Settings>,
        hub: Arc<Hub>,
        link: Link,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (up, line) = watch::channel(None);
        let listen = |hearing| Listener { settings, hub, link, hearing, line: up }.listen();
        let (listening, listen) = Listening::new(listen);
        (Self { listening, line }, listen)
    }

    /// Somebody wants to hear.
    pub(super) fn open(&self) {
        self.listening.open();
    }

    /// The connection itself, once it is there; none if a pooler stands between.
    pub(super) async fn line(&self) -> Result<Option<Arc<Line>>, StoreError> {
        match self.hearing().await {
            Hearing::Works | Hearing::Trying => {}
            Hearing::Pooled => return Ok(None),
            Hearing::Failed(why) => return Err(StoreError::not_applied(STORE, why)),
        }
        let up = |line: &Option<Arc<Line>>| line.as_ref().is_some_and(|line| !line.lost.is_cancelled());
        let mut line = self.line.clone();
        line.wait_for(up).await.map(|line| line.clone()).map_err(|_| closed(STORE))
    }

    /// Whether changes are heard, once that is known.
    pub(super) async fn hearing(&self) -> Hearing {
        self.listening.hearing().await
    }
}

struct Listener {
    settings: Arc<Settings>,
    hub: Arc<Hub>,
    link: Link,
    hearing: watch::Sender<Hearing>,
    line: watch::Sender<Option<Arc<Line>>>,
}

impl Listener {
    async fn listen(self) {
        let mut backoff = Backoff::default();
        loop {
            match self.link.place().connecting(self.open()).await {
                Ok(Some((client, wire))) => {
                    backoff = Backoff::default();
                    self.hearing.send_replace(Hearing::Works);
                    // Whatever happened before is not known.
                    self.hub.send_all(&Signal::Resync);
                    self.serve(client, wire).await;
                    self.hearing.send_replace(Hearing::Trying);
                }
                Ok(None) => drop(self.hearing.send_replace(Hearing::Pooled)),
                Err(error) => drop(self.hearing.send_replace(Hearing::Failed(error.to_string()))),
            }
            backoff.wait().await;
        }
    }

    /// None if a pooler stands between.
    async fn open(&self) -> Result<Option<(tokio_postgres::Client, Wire)>, StoreError> {
        if !self.link.session().await?.direct {
            return Ok(None);
        }
        let (client, mut wire, with_options) = connect(&self.settings).await?;
        let listen = async {
            let failed = |error| fault::connecting(&self.settings.place, &error);
            let before = backend(&client).await.map_err(failed)?;
            client.batch_execute("LISTEN tenure").await.map_err(failed)?;
            Ok(before == backend(&client).await.map_err(failed)?)
        };
        let same = attended(&mut wire, listen).await?;
        Ok((same && with_options).then_some((client, wire)))
    }

    async fn serve(&self, client: tokio_postgres::Client, wire: Wire) {
        let lost = CancellationToken::new();
        self.line.send_replace(Some(Arc::new(Line { client, lost: lost.clone() })));
        tokio::select! {
            () = self.hear(wire) => {}
            () = lost.cancelled() => {}
        }
        lost.cancel();
        self.line.send_replace(None);
    }

    async fn hear(&self, mut wire: Wire) {
        while let Some(Ok(message)) = wire.next().await {
            if let AsyncMessage::Notification(notification) = message {
                self.tell(notification.payload()).await;
            }
        }
    }

    async fn tell(&self, payload: &str) {
        match Change::read(payload) {
            Some((namespace, Change::To(entry))) => self.hub.send(&namespace, &Signal::Changed(entry)),
            Some((namespace, Change::Gone)) => self.hub.send(&namespace, &Signal::Resync),
            Some((namespace, Change::Large(key))) => {
                let signal = self.look(&namespace, key).await.map_or(Signal::Resync, Signal::Changed);
                self.hub.send(&namespace, &signal);
            }
            None => self.hub.send_all(&Signal::Resync),
        }
    }

    /// What was too large for a notification.
    async fn look(&self, namespace: &Name, key: Key) -> Option<Entry> {
        let question = Question::new(namespace, &Query { keys: vec![key], kinds: Vec::new() });
        let found = self.link.ask(|session| async move { session.read(&question.params()).await }).await;
        found.ok()?.first().and_then(rows::entry)
    }
}

async fn backend(client: &tokio_postgres::Client) -> Result<i32, tokio_postgres::Error> {
    Ok(client.query_typed_one("SELECT pg_backend_pid()", &[]).await?.get(0))
}

/// What a notification says, as `tenure_ring_v1` writes it: the namespace, and then the key, and then the value.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    To(Entry),
    Large(Key),
    Gone,
}

impl Change {
    fn read(payload: &str) -> Option<(Name, Self)> {
        let parts: Vec<&str> = payload.splitn(7, '\n').collect();
        let namespace = Name::new(parts.first()?).ok()?;
        let change = match parts[1..] {
            [] => Self::Gone,
            [epoch, kind, name] => Self::Large(rows::key(epoch, kind, name)?),
            [epoch, kind, name, version, token, json] => {
                let token = if token.is_empty() { None } else { Some(Token(token.parse().ok()?)) };
                let version: Version = version.parse().ok()?;
                let value = Value { token, json: json.into() };
                Self::To(Entry { key: rows::key(epoch, kind, name)?, version, value })
            }
            _ => return None,
        };
        Some((namespace, change))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{Epoch, Kind};

    use super::*;

    #[test]
    fn notifications_are_read_as_they_are_written() {
        let key = Key::Named(Epoch(7), Kind::RoleControl, Name::new("a.b").unwrap());
        let version = Version(9);
        let value = Value { token: Some(Token((1 << 53) - 1)), json: "{\n\"a\":\n1}".into() };
        let payload = format!("space\n7\ncontrol/role\na.b\n{version}\n9007199254740991\n{}", value.json);
        let (space, change) = Change::read(&payload).unwrap();
        assert_eq!(
            (space.as_str(), change),
            ("space", Change::To(Entry { key: key.clone(), version, value }))
        );
        assert_eq!(Change::read("space\n7\ncontrol/role\na.b").unwrap().1, Change::Large(key));
        assert_eq!(Change::read("space").unwrap().1, Change::Gone);
        for strange in ["", "a b", "space\n7", "space\n7\nnope\na", "space\nx\nrole\na\n1\n\n{}"] {
            assert!(Change::read(strange).is_none(), "{strange}");
        }
    }
}
