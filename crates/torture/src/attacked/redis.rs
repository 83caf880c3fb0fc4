//! One durable Redis server, and a primary with a replica and Sentinels.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::servers::{Server, free_port, redis, scratch};
use rustix::process::Signal;
use tempfile::TempDir;

use super::data_dir::DataDir;
use super::{FaultResult, PATIENCE, until};
use crate::fault::FaultKind;
use crate::target::{AttackedServer, ServerUse};
use tenure_process::clock::lease_now;

/// The login of the neighbour: keys of its own, and all channels, which is more than our documentation allows it.
const NEIGHBOUR: &[&str] = &[
    "--user",
    crate::neighbour::NAME,
    "on",
    "nopass",
    "~neighbour:*",
    "&*",
    "-@all",
    "+@read",
    "+@write",
    "+@pubsub",
    "+@connection",
    "-@admin",
    "-@dangerous",
    "-@scripting",
];

/// One durable server.
pub(super) struct Redis {
    server: Option<Server>,
    port: u16,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
    /// A connection from before there were too many.
    kept: Option<TcpStream>,
    data_dir: DataDir,
}

impl Redis {
    pub(super) fn start(data_dir: DataDir) -> Self {
        let (dir, port) = (data_dir.folder(), free_port());
        let mut this = Self { server: None, port, stopped: None, older: None, kept: None, data_dir };
        this.launch(dir);
        this
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn crash(&mut self) -> Result<TempDir, String> {
        self.server.take().map(Server::crash).ok_or_else(|| "it does not run".to_owned())
    }

    fn launch(&mut self, dir: TempDir) {
        let settings = [redis::DURABLE, NEIGHBOUR].concat();
        self.server = Some(redis::start_in(dir, self.port, &settings));
    }

    fn signal(&self, signal: Signal) {
        if let Some(server) = &self.server {
            server.signal(signal);
        }
    }

    fn command(&self, words: &[&str]) -> FaultResult {
        command(self.address(), words)
    }

    fn crowd(&mut self) -> FaultResult {
        let connected = TcpStream::connect(self.address()).map_err(|error| error.to_string());
        let kept = self.kept.insert(connected?);
        say(kept, "CONFIG SET maxclients 1")?;
        say(kept, "CLIENT KILL TYPE normal SKIPME yes")
    }

    /// On the connection that was kept; on a new one if that is gone, for then there is room.
    fn disperse(&mut self) -> FaultResult {
        const ROOM: &str = "CONFIG SET maxclients 10000";
        match self.kept.take().map(|mut kept| say(&mut kept, ROOM)) {
            Some(Ok(())) => Ok(()),
            _ => self.command(&ROOM.split(' ').collect::<Vec<_>>()),
        }
    }

    /// The server holds back every answer, also that to our own next question: the call lasts as long as the pause.
    fn pause(&self, lasts: Duration) -> FaultResult {
        let began = Instant::now();
        self.command(&["CLIENT", "PAUSE", &lasts.as_millis().to_string(), "ALL"])?;
        std::thread::sleep(lasts.saturating_sub(began.elapsed()));
        Ok(())
    }

    /// A server that cannot write its log gives up, and is started again when there is room.
    fn make_room(&mut self) -> FaultResult {
        self.data_dir.clear()?;
        until("the server answers again", || {
            if self.server.as_mut().is_some_and(Server::has_ended)
                && let Ok(dir) = self.crash()
            {
                self.launch(dir);
            }
            self.command(&["PING"]).is_ok()
        })
    }
}

/// One command, each word one argument.
fn command(address: SocketAddr, words: &[&str]) -> FaultResult {
    match redis::try_query(address, words, PATIENCE) {
        Ok(answer) if answer.starts_with('-') => Err(format!("{words:?}: {answer}")),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{words:?}: {error}")),
    }
}

/// One command on a connection that is kept.
fn say(stream: &mut TcpStream, command: &str) -> FaultResult {
    let mut answer = [0; 256];
    let said = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.write_all(format!("{command}\r\n").as_bytes()))
        .and_then(|()| stream.read(&mut answer));
    match said {
        Ok(length) if length > 0 && answer[0] != b'-' => Ok(()),
        Ok(length) => Err(format!("{command}: {}", String::from_utf8_lossy(&answer[..length]))),
        Err(error) => Err(format!("{command}: {error}")),
    }
}

const DELETE_SESSIONS: &str =
    "for _, key in ipairs(redis.call('KEYS', 'tenure:*:session')) do redis.call('DEL', key) end return 1";

impl AttackedServer for Redis {
    fn url(&self) -> String {
        format!("redis://{}/0", self.address())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{
            Crowd, DeleteRows, DiskFull, Flush, Neighbour, ReadOnly, Restore, Slow, StoreFreeze, StoreKill,
        };
        &[StoreKill, StoreFreeze, Crowd, ReadOnly, Slow, DiskFull, Flush, DeleteRows, Restore, Neighbour]
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn usage(&self) -> Option<ServerUse> {
        let cpu = self.server.as_ref()?.cpu();
        let counted = redis::try_query(self.address(), &["INFO", "everything"], PATIENCE).ok()?;
        let count = |name: &str| -> Option<u64> {
            counted.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
        };
        let bytes = count("total_net_input_bytes").zip(count("total_net_output_bytes"));
        // The connection that asks is one of them.
        let connections = count("connected_clients")?.saturating_sub(1);
        Some(ServerUse { cpu, connections, requests: count("total_commands_processed")?, bytes })
    }

    fn inject(&mut self, kind: FaultKind, lasts: Duration) -> FaultResult {
        match kind {
            FaultKind::StoreKill => self.stopped = Some(self.crash()?),
            FaultKind::StoreFreeze => self.signal(Signal::STOP),
            FaultKind::Crowd => return self.crowd(),
            FaultKind::ReadOnly => return self.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
            FaultKind::Slow => return self.pause(lasts),
            FaultKind::DiskFull => return self.data_dir.fill(),
            FaultKind::Flush => return self.command(&["FLUSHALL"]),
            FaultKind::DeleteRows => return self.command(&["EVAL", DELETE_SESSIONS, "0"]),
            FaultKind::Restore => {
                let dir = self.crash()?;
                self.older = Some(self.data_dir.copy_of(dir.path()));
                self.launch(dir);
            }
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::StoreKill => {
                if let Some(dir) = self.stopped.take() {
                    self.launch(dir);
                }
            }
            FaultKind::StoreFreeze => self.signal(Signal::CONT),
            FaultKind::Crowd => return self.disperse(),
            FaultKind::DiskFull => return self.make_room(),
            FaultKind::ReadOnly => return self.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
            FaultKind::Restore => {
                if let Some(older) = self.older.take() {
                    drop(self.crash()?);
                    self.launch(older);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A primary, a replica, three Sentinels: acknowledged writes can vanish.
pub(super) struct Failover {
    servers: [Option<Server>; 2],
    ports: [u16; 2],
    sentinels: Vec<Server>,
    failovers: Arc<Mutex<Vec<u64>>>,
}

/// How often a Sentinel is asked which server is the primary.
const GLANCE: Duration = Duration::from_millis(200);

/// Notes when a Sentinel names another primary than before, until it is told to stop.
fn note_failovers(sentinel: SocketAddr, noted: &Weak<Mutex<Vec<u64>>>) {
    let mut last = None;
    while let Some(noted) = noted.upgrade() {
        let words = ["SENTINEL", "get-master-addr-by-name", "main"];
        let primary = redis::try_query(sentinel, &words, GLANCE * 10).ok();
        if let Some(primary) = primary.filter(|answer| answer.starts_with('*'))
            && let Some(before) = last.replace(primary.clone())
            && before != primary
        {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(lease_now());
        }
        drop(noted);
        std::thread::sleep(GLANCE);
    }
}

/// After how long Sentinels that have not promoted the replica by themselves are answer to, and answer again. They try again
/// by themselves only seconds after a try that failed, and on a machine that stands still every try may.
const NUDGE: Duration = Duration::from_secs(10);

/// A replica is sent the data at once, and does not wait five seconds for others to ask for it too.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

impl Failover {
    pub(super) fn start() -> Self {
        let primary = redis::start(&[redis::FORGETFUL, &AT_ONCE].concat());
        let ports = [primary.port(), free_port()];
        let failovers = Arc::default();
        let mut this = Self { servers: [Some(primary), None], ports, sentinels: Vec::new(), failovers };
        this.launch(1, Some(0));
        this.sentinels = (0..3).map(|_| redis::sentinel(ports[0], 2)).collect();
        until("the Sentinels know each other, the primary and the replica", || this.is_well(0))
            .unwrap_or_else(|why| panic!("{why}"));
        let (sentinel, noted) = (this.sentinels[0].address(), Arc::downgrade(&this.failovers));
        std::thread::spawn(move || note_failovers(sentinel, &noted));
        this
    }

    /// Starts a server without data, as a primary or as a replica of the other.
    fn launch(&mut self, which: usize, of: Option<usize>) {
        let port = of.map(|other| self.ports[other].to_string());
        let follow: Vec<&str> =
            port.iter().flat_map(|port| ["--replicaof", "127.0.0.1", port.as_str()]).collect();
        let settings = [redis::FORGETFUL, &AT_ONCE, &follow].concat();
        self.servers[which] = Some(redis::start_in(scratch(), self.ports[which], &settings));
    }

    /// What a Sentinel answers, cut into words; nothing if it does not.
    fn query(sentinel: &Server, words: &[&str]) -> Vec<String> {
        let answer = redis::try_query(sentinel.address(), words, Duration::from_secs(5)).unwrap_or_default();
        answer.split("\r\n").map(str::to_owned).collect()
    }

    /// Which of the two all Sentinels say is the primary.
    fn primary(&self) -> Option<usize> {
        let held = |sentinel: &Server| {
            let answer = Self::query(sentinel, &["SENTINEL", "get-master-addr-by-name", "main"]);
            (0..2).find(|which| answer.contains(&self.ports[*which].to_string()))
        };
        let first = held(&self.sentinels[0])?;
        self.sentinels.iter().all(|sentinel| held(sentinel) == Some(first)).then_some(first)
    }

    /// Whether every Sentinel holds this one for the primary, sees nothing wrong with either, and sees the others.
    fn is_well(&self, primary: usize) -> bool {
        let replica = self.ports[1 - primary].to_string();
        let sees = |sentinel: &Server| {
            let about = Self::query(sentinel, &["SENTINEL", "master", "main"]);
            let replicas = Self::query(sentinel, &["SENTINEL", "replicas", "main"]);
            let others = Self::query(sentinel, &["SENTINEL", "ckquorum", "main"]);
            of(&about, "flags") == Some("master")
                && of(&about, "num-other-sentinels") == Some("2")
                && of(&replicas, "port") == Some(replica.as_str())
                && of(&replicas, "flags") == Some("slave")
                && of(&replicas, "master-link-status") == Some("ok")
                && others.first().is_some_and(|word| word.starts_with("+OK 3"))
        };
        self.primary() == Some(primary) && self.sentinels.iter().all(sees)
    }

    /// Waits for the promotion; the Sentinels do it by themselves, as a rule.
    fn promotion(&self, of: usize) -> FaultResult {
        let (mut asked, address) = (Instant::now(), SocketAddr::from(([127, 0, 0, 1], self.ports[of])));
        until("the Sentinels promote the replica", || {
            if asked.elapsed() > NUDGE {
                asked = Instant::now();
                let _ = Self::query(&self.sentinels[0], &["SENTINEL", "failover", "main"]);
            }
            let role = || redis::try_query(address, &["INFO", "replication"], NUDGE).unwrap_or_default();
            self.primary() == Some(of) && role().contains("role:master")
        })
    }
}

/// The value after a name, in an answer of names and values.
fn of<'a>(answer: &'a [String], name: &str) -> Option<&'a str> {
    let at = answer.iter().position(|word| word == name)?;
    answer.get(at + 2).map(String::as_str)
}

impl AttackedServer for Failover {
    fn url(&self) -> String {
        let sentinels: Vec<String> =
            self.sentinels.iter().map(|server| server.address().to_string()).collect();
        format!("redis+sentinel://{}/main/0?timeout=500ms", sentinels.join(","))
    }

    fn able(&self) -> &'static [FaultKind] {
        &[FaultKind::Failover]
    }

    /// What the primary acknowledges while the replica stands still is lost with it.
    fn inject(&mut self, _: FaultKind, lasts: Duration) -> FaultResult {
        let mut primary = None;
        until("the Sentinels see both servers well after the last time", || {
            primary = (0..2).find(|which| self.is_well(*which));
            primary.is_some()
        })?;
        let primary = primary.unwrap_or_default();
        let replica = 1 - primary;
        let (old, new) = (self.servers[primary].take(), self.servers[replica].as_ref());
        if let Some(new) = new {
            new.signal(Signal::STOP);
            // Otherwise the kernel keeps for it what the primary sends, and gives it to a replica that goes on.
            command(
                SocketAddr::from(([127, 0, 0, 1], self.ports[primary])),
                &["CLIENT", "KILL", "TYPE", "replica"],
            )?;
            std::thread::sleep(lasts);
            drop(old);
            new.signal(Signal::CONT);
        }
        self.promotion(replica)
    }

    /// A Sentinel that lags behind the others may still turn the servers round once more, and lose what came in between.
    fn is_settled(&self) -> bool {
        (0..2).any(|which| self.is_well(which))
    }

    fn failovers(&self) -> Vec<u64> {
        self.failovers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server that is down comes back, without data: behind the other if that is the primary now, and otherwise as what the
    /// Sentinels still hold it for.
    fn heal(&mut self, _: FaultKind) -> FaultResult {
        let Some(down) = (0..2).find(|which| self.servers[*which].is_none()) else { return Ok(()) };
        let other = 1 - down;
        let follows = (self.primary() == Some(other)).then_some(other);
        self.launch(down, follows);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fail-over that loses nothing would show nothing of class C.
    #[test]
    fn what_the_primary_acknowledges_before_it_dies_is_lost() {
        let mut servers = Failover::start();
        let primary = SocketAddr::from(([127, 0, 0, 1], servers.ports[0]));
        let writer = std::thread::spawn(move || {
            let mut acknowledged = 0_u64;
            while command(primary, &["SET", "x", &(acknowledged + 1).to_string()]).is_ok() {
                acknowledged += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            acknowledged
        });
        servers.inject(FaultKind::Failover, Duration::from_secs(1)).unwrap();
        let acknowledged = writer.join().unwrap();
        let promoted = SocketAddr::from(([127, 0, 0, 1], servers.ports[1]));
        let answer = redis::try_query(promoted, &["GET", "x"], PATIENCE).unwrap();
        // Without a second word there is no such key.
        let kept: u64 = answer.split("\r\n").nth(1).map_or(0, |word| word.parse().unwrap());
        assert!(kept + 10 < acknowledged, "{acknowledged} writes were acknowledged, and {kept} were kept");
    }
}
