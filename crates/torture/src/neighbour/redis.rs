//! The neighbour on Redis: it has keys of its own, and may publish and subscribe everywhere.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::judge::NeighbourActivity;
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, Value};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::forgeries::{ForgedHint, HintForger};
use super::{Attempt, NAME, Neighbour, NeighbourLog, pause};

/// So many connections at once.
const FLOOD: usize = 150;

/// What it must be refused; `KEY` is a register of ours, `CLUSTER` the one that all depend on.
const FORBIDDEN: &[&str] = &[
    "GET KEY",
    "SET KEY forged",
    "DEL KEY",
    "UNLINK KEY",
    "EXPIRE KEY 1",
    "PERSIST KEY",
    "HGETALL CLUSTER",
    "HGET CLUSTER cluster",
    "HSET CLUSTER cluster forged",
    "HDEL CLUSTER cluster",
    "DUMP CLUSTER",
    "OBJECT ENCODING CLUSTER",
    "RENAME neighbour:own CLUSTER",
    "RENAME CLUSTER neighbour:own",
    "COPY CLUSTER neighbour:own",
    "SUNIONSTORE KEY neighbour:own",
    "MIGRATE 127.0.0.1 1 KEY 0 10",
    "RESTORE KEY 0 forged",
    "EVAL return(1) 0",
    "EVALSHA 0000000000000000000000000000000000000000 0",
    "SCRIPT FLUSH",
    "FUNCTION FLUSH",
    "FLUSHALL",
    "FLUSHDB",
    "SWAPDB 0 1",
    "KEYS *",
    "CONFIG SET maxclients 1",
    "CONFIG GET *",
    "ACL SETUSER neighbour allkeys",
    "CLIENT KILL TYPE normal",
    "CLIENT PAUSE 1000",
    "CLIENT LIST",
    "MONITOR",
    "SHUTDOWN NOSAVE",
    "REPLICAOF 127.0.0.1 1",
    "SAVE",
    "BGREWRITEAOF",
    "SLOWLOG GET",
    "INFO everything",
];

/// What it says of others' keys in its own.
const POISON: &[&str] =
    &["SET neighbour:KEY forged", "HSET neighbour:CLUSTER cluster forged", "DEL neighbour:KEY"];

struct NeighbourConnection {
    client: Client,
    address: SocketAddr,
    forger: HintForger,
    log: NeighbourLog,
}

pub(super) fn start(neighbour: &mut Neighbour, url: &str, forger: HintForger, log: NeighbourLog) {
    let place = url.replace("redis://", &format!("redis://{NAME}:any@"));
    let address = url.trim_start_matches("redis://").trim_end_matches("/0").parse();
    let (Ok(client), Ok(address)) = (Client::open(place), address) else { return };
    let place = Arc::new(NeighbourConnection { client, address, forger, log });
    let of = || place.clone();
    let (one, two, three, four) = (of(), of(), of(), of());
    neighbour.keep(move || one.clone().forge());
    neighbour.keep(move || two.clone().listen());
    neighbour.keep(move || three.clone().trespass());
    neighbour.keep(move || four.clone().flood());
}

impl NeighbourConnection {
    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        self.client.get_multiplexed_async_connection().await
    }

    async fn forge(self: Arc<Self>) -> Result<(), RedisError> {
        let (mut connection, mut random) = (self.connect().await?, self.log.random());
        loop {
            let forgeries = self.forger.forgeries(&mut random).await;
            let mut pipe = redis::pipe();
            for ForgedHint { namespace, epoch, kind, name } in &forgeries {
                let text = format!("tenure:{{{namespace}}}:{epoch}:{kind} {name}");
                pipe.publish(format!("tenure:{{{namespace}}}"), text).ignore();
            }
            pipe.query_async::<()>(&mut connection).await?;
            self.log
                .note(NeighbourActivity { forged: forgeries.len() as u64, ..NeighbourActivity::default() });
            pause(&mut random, 100..500).await;
        }
    }

    async fn listen(self: Arc<Self>) -> Result<(), RedisError> {
        let mut ear = self.client.get_async_pubsub().await?;
        ear.psubscribe("*").await?;
        let mut messages = ear.into_on_message();
        while let Some(message) = messages.next().await {
            self.log.received(&message.get_payload::<String>().unwrap_or_default());
        }
        Ok(())
    }

    async fn trespass(self: Arc<Self>) -> Result<(), RedisError> {
        let (mut connection, mut random) = (self.connect().await?, self.log.random());
        loop {
            for words in POISON {
                let _ = self.say(&mut connection, words).await;
            }
            for words in FORBIDDEN {
                let came = match self.say(&mut connection, words).await {
                    Ok(_) => Attempt::Done,
                    Err(error) => judge(error)?,
                };
                self.log.record(words, came);
                pause(&mut random, 5..30).await;
            }
            pause(&mut random, 1_000..3_000).await;
        }
    }

    async fn say(&self, connection: &mut MultiplexedConnection, words: &str) -> Result<Value, RedisError> {
        let prefix = format!("tenure:{{{}}}", self.forger.namespace);
        let word = |word: &str| {
            word.replace("CLUSTER", &format!("{prefix}:0:cluster")).replace("KEY", &format!("{prefix}:store"))
        };
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap_or_default());
        for argument in words {
            command.arg(word(argument));
        }
        command.query_async(connection).await
    }

    /// Connections that say nothing, that stop in the middle of a word, and that hear and never read.
    async fn flood(self: Arc<Self>) -> Result<(), RedisError> {
        const WORDS: [&str; 3] = ["", "*3\r\n$7\r\nPUB", "AUTH neighbour any\r\nPSUBSCRIBE *\r\n"];
        let (mut held, mut random) = (Vec::new(), self.log.random());
        for nth in 0..FLOOD {
            let Ok(mut stream) = TcpStream::connect(self.address).await else { break };
            if stream.write_all(WORDS[nth % WORDS.len()].as_bytes()).await.is_ok() {
                held.push(stream);
            }
        }
        self.log.note(NeighbourActivity { connections: held.len() as u64, ..NeighbourActivity::default() });
        pause(&mut random, 500..2_000).await;
        Ok(())
    }
}

/// What a refusal means; an error if the connection is gone.
fn judge(error: RedisError) -> Result<Attempt, RedisError> {
    const BUSY: [&str; 6] = ["LOADING", "NOREPLICAS", "MISCONF", "READONLY", "BUSY", "OOM"];
    match error.code() {
        Some("NOPERM") => Ok(Attempt::Refused),
        Some(code) if BUSY.contains(&code) => Ok(Attempt::Unknown),
        Some(_) => Ok(Attempt::Failed(error.to_string())),
        None => Err(error),
    }
}
