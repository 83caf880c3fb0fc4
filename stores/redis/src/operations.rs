//! The connection on which operations run: made when first needed, made anew when it broke, never waited for twice.
//!
//! Operations are pipelined, so that a slow one does not hold up the next. A connection on which anything timed out or
//! broke is not used again. While there is none, operations fail at once: it is proven that they were never sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value as Reply};
use tokio::time::{Instant, timeout_at};

use super::STORE;
use super::error::{self, ConnectionHealth};
use super::inspect::{self, Server};
use super::listener::RedisListener;
use super::script::{Change, Look};
use super::settings::RedisSettings;
use tenure_store::kit::thread::Backoff;
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Class, Entry, Exchanged, Name, Outcome, Query, Retry, Signal, StoreError, Write};

/// The operations side of a handle.
#[derive(Debug)]
pub(super) struct Operations {
    settings: Arc<RedisSettings>,
    watches: Arc<Watches>,
    listener: RedisListener,
    state: tokio::sync::Mutex<State>,
    known: Mutex<Known>,
    mending: AtomicBool,
    /// Whether the server refused notifications: this user may not publish.
    unnotified: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    up: Option<Arc<Up>>,
    backoff: Backoff,
    failed: Option<Failed>,
    /// Where the Redis Cluster says that the namespace is.
    moved: Option<(String, u16)>,
}

/// The last attempt to connect.
#[derive(Debug)]
struct Failed {
    retry_at: Instant,
    message: String,
    permanent: bool,
}

/// A connection and what is behind it.
#[derive(Debug)]
struct Up {
    connection: MultiplexedConnection,
    spent: AtomicBool,
}

/// What is remembered of servers, to notice that one forgot.
#[derive(Debug, Default)]
struct Known {
    server: Option<(Class, Option<String>)>,
    markers: BTreeMap<Name, String>,
}

/// Why an operation has no answer.
enum Failure {
    NoScript,
    Moved((String, u16), StoreError),
    Other(StoreError),
}

impl Operations {
    pub(super) fn new(settings: Arc<RedisSettings>, watches: Arc<Watches>, listener: RedisListener) -> Self {
        Self {
            settings,
            watches,
            listener,
            state: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            mending: AtomicBool::new(false),
            unnotified: AtomicBool::new(false),
        }
    }

    pub(super) async fn write(
        self: &Arc<Self>,
        space: &Name,
        writes: &[Write],
    ) -> Result<Vec<Outcome>, StoreError> {
        let deadline = self.deadline();
        let change = Change::new(space, writes);
        let mut up = self.up(deadline).await?;
        let mut reply = self.ask(&up, deadline, &change.command(false)).await;
        if let Err(Failure::Moved(place, _)) = &reply {
            up = self.follow(place.clone(), deadline).await?;
            reply = self.ask(&up, deadline, &change.command(false)).await;
        }
        if let Err(Failure::NoScript) = reply {
            reply = self.ask(&up, deadline, &change.command(true)).await;
        }
        let reply = reply.map_err(Failure::into_error)?;
        self.changed(space, &up, deadline, change, reply).await
    }

    /// The script and the reads, sent at once: a server answers a connection in the order of its questions. What has to be asked
    /// anew, because another server has the namespace or the server lost the script, is asked part by part.
    pub(super) async fn write_then_read(
        self: &Arc<Self>,
        space: &Name,
        writes: &[Write],
        query: &Query,
    ) -> Exchanged {
        let deadline = self.deadline();
        let (change, look) = (Change::new(space, writes), Look::new(space, query));
        let commands = look.commands_after(change.command(false));
        let up = match self.up(deadline).await {
            Ok(up) => up,
            Err(error) => return Exchanged::failed(&error),
        };
        let replies = match self.send_all(&up, deadline, &commands).await {
            Ok(replies) => replies,
            Err(failure) => return Exchanged::failed(&failure.into_error()),
        };
        let mut replies = replies.into_iter();
        let changed = replies.next().unwrap_or(Reply::Nil);
        let found: Vec<Reply> = replies.collect();
        let written = match self.check(&up, &changed) {
            Ok(()) => self.changed(space, &up, deadline, change, changed).await,
            // What was read came before what will be written.
            Err(Failure::NoScript | Failure::Moved(..)) => {
                return Exchanged::in_turn(self.write(space, writes), self.read(space, query)).await;
            }
            Err(Failure::Other(error)) => Err(error),
        };
        let read = match found.iter().try_for_each(|reply| self.check(&up, reply)) {
            Ok(()) => look.entries(found),
            Err(Failure::NoScript | Failure::Moved(..)) => self.read(space, query).await,
            Err(Failure::Other(error)) => Err(error),
        };
        Exchanged { written, read }
    }

    /// Takes in the answer of the script.
    async fn changed(
        self: &Arc<Self>,
        space: &Name,
        up: &Up,
        deadline: Instant,
        change: Change<'_>,
        reply: Reply,
    ) -> Result<Vec<Outcome>, StoreError> {
        let changed = change.read(reply)?;
        self.remember(space, changed.marker.as_deref());
        if changed.unnotified > 0 {
            self.unnotified.store(true, Ordering::Relaxed);
        }
        if changed.connection == ConnectionHealth::Spent {
            self.give_up(up);
        }
        self.wait_for_replicas(up, deadline, changed.outcomes).await
    }

    pub(super) async fn read(
        self: &Arc<Self>,
        space: &Name,
        query: &Query,
    ) -> Result<Vec<Entry>, StoreError> {
        let deadline = self.deadline();
        let look = Look::new(space, query);
        let commands = look.commands();
        let mut up = self.up(deadline).await?;
        let mut replies = self.ask_all(&up, deadline, &commands).await;
        if let Err(Failure::Moved(place, _)) = &replies {
            up = self.follow(place.clone(), deadline).await?;
            replies = self.ask_all(&up, deadline, &commands).await;
        }
        let found = look.read(replies.map_err(Failure::into_error)?)?;
        self.remember(space, found.marker.as_deref());
        Ok(found.entries)
    }

    /// Looks at the server once more.
    pub(super) async fn describe(self: &Arc<Self>) -> Result<Server, StoreError> {
        let deadline = self.deadline();
        let up = self.up(deadline).await?;
        let looked = timeout_at(deadline, inspect::inspect(&mut up.connection.clone(), &self.settings)).await;
        let mut server =
            looked.unwrap_or_else(|_| Err(error::timed_out(self.settings.timeout))).inspect_err(|_| {
                self.give_up(&up);
            })?;
        if self.unnotified.load(Ordering::Relaxed) {
            server.remarks.push(
                "this user may not PUBLISH on tenure's channels, so others find changes at their next beat only: \
                 allow `+publish &tenure:*`"
                    .to_owned(),
            );
        }
        Ok(server)
    }

    /// Another connection saw the server go: finds out in the background whether this connection is gone too.
    pub(super) fn suspect(self: &Arc<Self>) {
        let operations = self.clone();
        tokio::spawn(async move {
            let deadline = operations.deadline();
            if let Some(up) = operations.current().await {
                let _ = operations.ask(&up, deadline, &redis::cmd("PING")).await;
            }
        });
    }

    async fn current(&self) -> Option<Arc<Up>> {
        self.state.lock().await.up.clone()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.settings.timeout
    }

    /// The connection. An operation that comes while one is being made waits for it; one that comes after an attempt has failed,
    /// and before the next, is told at once.
    async fn up(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Up>, StoreError> {
        let Ok(mut state) = timeout_at(deadline, self.state.lock()).await else {
            return Err(unanswered(&self.settings));
        };
        if let Some(up) = state.up.as_ref().filter(|up| !up.spent.load(Ordering::Acquire)) {
            return Ok(up.clone());
        }
        state.up = None;
        if let Some(failed) = state.failed.as_ref().filter(|failed| Instant::now() < failed.retry_at) {
            return Err(failed.error());
        }
        let made =
            timeout_at(Instant::now() + self.settings.timeout, self.connect(state.moved.clone())).await;
        match made.unwrap_or_else(|_| Err(unanswered(&self.settings))) {
            Ok(up) => {
                *state = State { up: Some(up.clone()), moved: state.moved.take(), ..State::default() };
                Ok(up)
            }
            Err(error) => {
                state.moved = None;
                let wait = state.backoff.next_delay();
                state.failed = Some(Failed::new(&error, wait));
                self.mend();
                Err(error)
            }
        }
    }

    async fn connect(&self, moved: Option<(String, u16)>) -> Result<Arc<Up>, StoreError> {
        let place = self.settings.primary().await?.or(moved);
        let client = self.settings.client_for(place)?;
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection =
            connection.map_err(|error| error::unreachable(&self.settings.to_string(), &error))?;
        let server = inspect::inspect(&mut connection, &self.settings).await?;
        self.meet(&server);
        Ok(Arc::new(Up { connection, spent: AtomicBool::new(false) }))
    }

    /// Goes where the Redis Cluster says that the namespace is.
    async fn follow(
        self: &Arc<Self>,
        place: (String, u16),
        deadline: Instant,
    ) -> Result<Arc<Up>, StoreError> {
        {
            let mut state = self.state.lock().await;
            state.moved = Some(place);
            state.up = None;
            state.failed = None;
        }
        self.up(deadline).await
    }

    /// Makes a new connection in the background, so that the next operation finds one.
    fn mend(self: &Arc<Self>) {
        if self.mending.swap(true, Ordering::AcqRel) {
            return;
        }
        let operations = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(operations) = operations.upgrade() {
                let retry_at = operations.state.lock().await.failed.as_ref().map(|failed| failed.retry_at);
                tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now)).await;
                if operations.up(operations.deadline()).await.is_ok() {
                    operations.mending.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }

    fn give_up(self: &Arc<Self>, up: &Up) {
        if !up.spent.swap(true, Ordering::AcqRel) {
            self.listener.renew();
            self.mend();
        }
    }

    /// On a server that can forget, another start of it, or one whose starts cannot be told apart, may have.
    fn meet(&self, server: &Server) {
        let mut known = lock(&self.known);
        let now = (server.class, server.run.clone());
        let Some((class, run)) = known.server.replace(now) else { return };
        let same_start = run.is_some() && run == server.run;
        if !same_start && (class == Class::C || server.class == Class::C) {
            self.watches.send_all(&Signal::Forgot);
        }
    }

    /// A marker that is gone, or another one, means other data, whatever the server says of itself.
    fn remember(&self, space: &Name, marker: Option<&str>) {
        let mut known = lock(&self.known);
        let before = match marker {
            Some(marker) => known.markers.insert(space.clone(), marker.to_owned()),
            None => known.markers.remove(space),
        };
        if before.is_some() && before.as_deref() != marker {
            self.watches.send(space, &Signal::Forgot);
        }
    }

    async fn ask(self: &Arc<Self>, up: &Up, deadline: Instant, command: &Cmd) -> Result<Reply, Failure> {
        let mut connection = up.connection.clone();
        let asked = timeout_at(deadline, connection.send_packed_command(command)).await;
        let reply = self.answer(up, asked)?;
        self.check(up, &reply)?;
        Ok(reply)
    }

    async fn ask_all(
        self: &Arc<Self>,
        up: &Up,
        deadline: Instant,
        commands: &Pipeline,
    ) -> Result<Vec<Reply>, Failure> {
        let replies = self.send_all(up, deadline, commands).await?;
        replies.iter().try_for_each(|reply| self.check(up, reply))?;
        Ok(replies)
    }

    /// The answers to some commands; each may be an error.
    async fn send_all(
        self: &Arc<Self>,
        up: &Up,
        deadline: Instant,
        commands: &Pipeline,
    ) -> Result<Vec<Reply>, Failure> {
        let mut connection = up.connection.clone();
        let asked = timeout_at(deadline, connection.send_packed_commands(commands, 0, commands.len())).await;
        self.answer(up, asked)
    }

    fn answer<T>(
        self: &Arc<Self>,
        up: &Up,
        asked: Result<Result<T, RedisError>, tokio::time::error::Elapsed>,
    ) -> Result<T, Failure> {
        let error = match asked {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => error,
            Err(_) => {
                self.give_up(up);
                return Err(Failure::Other(error::timed_out(self.settings.timeout)));
            }
        };
        let (why, health) = error::of_operation(&error);
        Err(self.failure(up, error.code(), error.detail(), why, health))
    }

    /// An answer may be an error.
    fn check(self: &Arc<Self>, up: &Up, reply: &Reply) -> Result<(), Failure> {
        let Reply::ServerError(error) = reply else { return Ok(()) };
        let (why, health) = error::of_server(error);
        Err(self.failure(up, Some(error.code()), error.details(), why, health))
    }

    fn failure(
        self: &Arc<Self>,
        up: &Up,
        code: Option<&str>,
        detail: Option<&str>,
        why: StoreError,
        health: ConnectionHealth,
    ) -> Failure {
        let moved = detail.filter(|_| code == Some("MOVED")).and_then(place);
        match (code, moved) {
            (Some("NOSCRIPT"), _) => return Failure::NoScript,
            (_, Some(place)) => return Failure::Moved(place, why),
            _ => {}
        }
        if health == ConnectionHealth::Spent {
            self.give_up(up);
        }
        Failure::Other(why)
    }

    /// With fewer replicas than asked for, it is unknown whether a write will last.
    async fn wait_for_replicas(
        self: &Arc<Self>,
        up: &Up,
        deadline: Instant,
        outcomes: Vec<Outcome>,
    ) -> Result<Vec<Outcome>, StoreError> {
        let wanted = self.settings.wait;
        if wanted == 0 || !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Applied)) {
            return Ok(outcomes);
        }
        let left = deadline.saturating_duration_since(Instant::now()) * 9 / 10;
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(u64::try_from(left.as_millis()).unwrap_or(1).max(1));
        let reached = match self.ask(up, deadline, &command).await {
            Ok(Reply::Int(reached)) => reached,
            _ => 0,
        };
        let lacking = reached < i64::from(wanted);
        let doubt = |outcome| match outcome {
            Outcome::Applied if lacking => Outcome::Failed(too_few(reached, wanted)),
            other => other,
        };
        Ok(outcomes.into_iter().map(doubt).collect())
    }
}

impl Failure {
    fn into_error(self) -> StoreError {
        match self {
            Self::NoScript => {
                StoreError::not_applied(STORE, "the server forgets scripts at once: see who flushes them")
            }
            Self::Moved(_, error) | Self::Other(error) => error,
        }
    }
}

impl Failed {
    fn new(error: &StoreError, delay: Duration) -> Self {
        let message = error.to_string().trim_start_matches("redis: ").to_owned();
        Self { retry_at: Instant::now() + delay, message, permanent: error.retry() == Retry::Never }
    }

    fn error(&self) -> StoreError {
        let error = StoreError::not_applied(STORE, self.message.clone());
        error.permanent_if(self.permanent)
    }
}

/// `SLOT HOST:PORT`, as a node of a Redis Cluster says it.
fn place(detail: &str) -> Option<(String, u16)> {
    let (host, port) = detail.split_whitespace().next_back()?.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?)).filter(|_| !host.is_empty())
}

fn too_few(reached: i64, wanted: u32) -> StoreError {
    let message =
        format!("only {reached} of {wanted} replicas have it so far: it may be lost if the primary fails");
    StoreError::unknown(STORE, message)
}

fn unanswered(settings: &RedisSettings) -> StoreError {
    let patience = humantime::format_duration(settings.timeout);
    StoreError::not_applied(
        STORE,
        format!("{settings} does not answer within {patience}: see whether it runs"),
    )
}
