//! The hostile neighbour: a second login on a private server, with the least rights that a login can have, which does
//! what it can for as long as the torture lasts.
//!
//! It forges notifications, listens to everything, floods connections, gets hold of the locks that nodes use, and tries
//! what it may not. What it did is noted. What it must be refused and was not is noted as a trespass, and is a violation
//! to the judge. Whether it harmed an election the judge sees by the same rules as ever: it excuses nothing.

mod forgeries;
mod mysql;
mod postgres;
mod redis;

use std::net::SocketAddr;
use std::time::Duration;

use crate::judge::{NeighbourActivity, NoteKind, NoteWriter};
use tenure::{Name, SharedStore};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Error;
use forgeries::HintForger;

/// Its login, and the prefix of what is its own.
pub(super) const NAME: &str = "neighbour";

/// After this it comes again, if the server was down or has thrown it out.
const AGAIN: Duration = Duration::from_millis(200);

/// See the [module](self).
pub(super) struct Neighbour(JoinSet<()>);

impl Neighbour {
    /// Lets it in; none if that store has no other logins.
    pub(super) async fn start(
        url: &str,
        store: SharedStore,
        namespace: &Name,
        seed: u64,
        notes_to: NoteWriter,
    ) -> Result<Option<Self>, Error> {
        let forger = HintForger::new(store, namespace.clone());
        let log = NeighbourLog { notes_to, seed };
        let mut this = Self(JoinSet::new());
        match url.split(':').next() {
            Some("postgres") => postgres::start(&mut this, url, forger, log).await?,
            Some("mysql") => mysql::start(&mut this, url, forger, log).await?,
            Some("redis") => redis::start(&mut this, url, forger, log),
            _ => return Ok(None),
        }
        Ok(Some(this))
    }

    /// Does something over and over, also after the server was down.
    fn keep<F: Future<Output = Result<(), E>> + Send, E>(
        &mut self,
        act: impl Fn() -> F + Send + Sync + 'static,
    ) {
        self.0.spawn(async move {
            loop {
                let _ = act().await;
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    /// Throws it out.
    pub(super) async fn end(mut self) -> Result<(), Error> {
        self.0.abort_all();
        while let Some(ended) = self.0.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                return Err(Error::Failed(format!("the neighbour failed: {error}")));
            }
        }
        Ok(())
    }
}

/// What it writes down, and the seed of what it does.
#[derive(Debug, Clone)]
struct NeighbourLog {
    notes_to: NoteWriter,
    seed: u64,
}

impl NeighbourLog {
    fn random(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }

    fn note(&self, done: NeighbourActivity) {
        if done != NeighbourActivity::default() {
            self.notes_to.note(NoteKind::Neighbour(done));
        }
    }

    fn trespass(&self, how: String) {
        self.notes_to.note(NoteKind::Trespass { how });
    }

    /// A payload on a channel that every login may listen to. Forged hints with content carry a mark.
    fn received(&self, payload: &str) {
        if payload.contains('"') && !payload.contains(forgeries::MARK) {
            self.trespass(format!("it received the content of a register: {payload}"));
        }
    }
}

/// The outcome of something that must be refused.
enum Attempt {
    Refused,
    /// The server cannot answer right now.
    Unknown,
    Done,
    /// It failed for another reason, so that it proves nothing.
    Failed(String),
}

impl NeighbourLog {
    /// Notes the outcome of an attempt.
    fn record(&self, what: &str, outcome: Attempt) {
        match outcome {
            Attempt::Refused => self.note(NeighbourActivity { refused: 1, ..NeighbourActivity::default() }),
            Attempt::Unknown => {}
            Attempt::Done => self.trespass(format!("{what} was done")),
            Attempt::Failed(why) => self.trespass(format!("{what} could not be tried: {why}")),
        }
    }
}

/// Connections that the server gives this login, as our documentation tells people, and connections that never log in.
const LIMIT: usize = 20;
const HALF_OPEN: usize = 20;

impl NeighbourLog {
    /// Takes all connections that the login is given, and some that never say who they are; gives them up after a while.
    async fn flood<C, E, F: Future<Output = Result<C, E>>>(
        &self,
        address: SocketAddr,
        connect: impl Fn() -> F,
        is_refusal: impl Fn(&E) -> bool,
    ) {
        let (mut held, mut silent, mut random) = (Vec::new(), Vec::new(), self.random());
        let mut done = NeighbourActivity::default();
        for _ in 0..HALF_OPEN {
            silent.extend(TcpStream::connect(address).await);
        }
        while held.len() < LIMIT {
            match connect().await {
                Ok(connection) => held.push(connection),
                Err(error) => {
                    done.refused += u64::from(is_refusal(&error));
                    break;
                }
            }
        }
        done.connections = (held.len() + silent.len()) as u64;
        self.note(done);
        pause(&mut random, 500..2_000).await;
        drop((held, silent));
        pause(&mut random, 500..2_000).await;
    }
}

async fn pause(random: &mut fastrand::Rng, millis: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(random.u64(millis))).await;
}
