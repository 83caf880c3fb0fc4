//! Private ZooKeeper servers: one, or an ensemble of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::group::{Members, is_group};
use super::{Server, beside, free_port, program, scratch};

/// How long servers may take for what they do in a moment, on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(120);

/// What every server is told. A tick is a tenth of the usual one, so that a frozen leader is replaced within three seconds, and
/// a session may be as short as 400 ms.
const SETTINGS: &str = "tickTime=200\ninitLimit=50\nsyncLimit=10\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n";

/// An ensemble of servers.
#[derive(Debug)]
pub struct ZooKeeper {
    members: Members<ZooKeeperPorts>,
    settings: String,
}

is_group!(ZooKeeper, ZooKeeperPorts);

/// How servers reach each other.
#[derive(Debug)]
pub struct ZooKeeperPorts {
    quorum: u16,
    election: u16,
}

impl ZooKeeper {
    /// So many servers that know each other, with these lines of configuration beside those that every one needs.
    ///
    /// # Panics
    /// If they do not start, or ZooKeeper is not installed.
    #[must_use]
    pub fn start(count: usize, settings: &str) -> Self {
        Self::start_with(count, settings, scratch)
    }

    /// The same, where each keeps its data where `folder` says.
    ///
    /// # Panics
    /// If they do not start, or ZooKeeper is not installed.
    #[must_use]
    pub fn start_with(count: usize, settings: &str, folder: impl FnMut() -> TempDir) -> Self {
        let ports = |_| ZooKeeperPorts { quorum: free_port(), election: free_port() };
        let members = Members::new((0..count).map(ports), folder);
        let mut this = Self { members, settings: settings.to_owned() };
        this.launch_all();
        this
    }

    /// Starts every server that is down, and waits until all of them serve.
    ///
    /// # Panics
    /// If they do not come up.
    pub fn launch_all(&mut self) {
        (0..self.count()).for_each(|nth| self.launch(nth));
        let began = Instant::now();
        for nth in 0..self.count() {
            while self.mode(nth).is_none() {
                assert!(began.elapsed() < PATIENCE, "server {nth} of ZooKeeper does not serve");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Which server leads the others, as far as they answer.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.count()).find(|nth| self.mode(*nth).as_deref() == Some("leader"))
    }

    /// Deletes a znode and everything in it; gives how many those were.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn delete_all(&self, nth: usize, login: &str, path: &str) -> std::io::Result<u64> {
        let mut client = Client::connect(self.address(nth), login)?;
        client.delete(path)
    }

    /// What a znode holds, by name.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn children(&self, nth: usize, login: &str, path: &str) -> std::io::Result<Vec<String>> {
        Client::connect(self.address(nth), login)?.children(path)
    }

    /// Sets the data of a znode, whatever it was.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn set(&self, nth: usize, login: &str, path: &str, data: &str) -> std::io::Result<()> {
        let body = [text(path), text(data), (-1_i32).to_be_bytes().to_vec()].concat();
        Client::connect(self.address(nth), login)?.ask(SET_DATA, &body).map(drop)
    }

    /// Lets every client do everything with a znode and what is in it, or nothing but change these rights.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn permit(&self, nth: usize, login: &str, path: &str, allowed: bool) -> std::io::Result<()> {
        Client::connect(self.address(nth), login)?.permit(path, allowed)
    }

    /// How many packets a server has received from its clients, if it serves.
    #[must_use]
    pub fn received(&self, nth: usize) -> Option<u64> {
        self.srvr(nth, "Received: ")?.parse().ok()
    }

    /// Leader, follower or standalone, if it serves.
    fn mode(&self, nth: usize) -> Option<String> {
        self.srvr(nth, "Mode: ")
    }

    /// What a server says of itself in the line that begins with these words.
    fn srvr(&self, nth: usize, words: &str) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&self.address(nth), Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(b"srvr").ok()?;
        let mut said = String::new();
        stream.read_to_string(&mut said).ok()?;
        said.lines().find_map(|line| line.strip_prefix(words)).map(|rest| rest.trim().to_owned())
    }

    fn launch(&mut self, nth: usize) {
        let Some(dir) = self.take_down(nth) else { return };
        let data = dir.path().join("data");
        std::fs::create_dir_all(&data).expect("a folder for the data");
        std::fs::write(data.join("myid"), (nth + 1).to_string()).expect("its number can be written");
        let client = self.get(nth).client;
        let mut text = format!(
            "dataDir={}\nclientPort={client}\nclientPortAddress=127.0.0.1\n{SETTINGS}{}\n",
            data.display(),
            self.settings.replace("@DIR@", &dir.path().display().to_string())
        );
        if self.count() > 1 {
            for (nth, member) in self.iter().enumerate() {
                text += &format!(
                    "server.{}=127.0.0.1:{}:{}\n",
                    nth + 1,
                    member.ports.quorum,
                    member.ports.election
                );
            }
        }
        let file = dir.path().join("zoo.cfg");
        std::fs::write(&file, text).expect("a configuration can be written");
        let mut command = Command::new(program("java", "default-jre-headless", &[]));
        // It starts in half of the time without the optimising compiler.
        command.args([
            "-Xmx160m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dzookeeper.jmx.log4j.disable=true",
        ]);
        command.arg("-cp").arg(format!("{}/*", jars().display()));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(file);
        let listens = |address: SocketAddr| TcpStream::connect(address).is_ok();
        let server = Server::start("zookeeper", dir, client, &mut command, listens);
        self.put_up(nth, server);
    }
}

/// Where `./setup --stores` puts the server's archives.
fn jars() -> PathBuf {
    let place = beside().join("tools/zookeeper");
    let there = place.join("zookeeper.jar").is_file();
    assert!(there, "ZooKeeper is not installed: run ./setup --stores, which gets it");
    place
}

const DELETE: i32 = 2;
const SET_DATA: i32 = 5;
const SET_ACL: i32 = 7;
const GET_CHILDREN: i32 = 8;
const AUTH: i32 = 100;

/// Errors, as they are told.
const NO_NODE: &str = "error -101 ";
const NOT_EMPTY: &str = "error -111 ";

/// A connection that asks one thing at a time.
struct Client {
    stream: TcpStream,
    last: i32,
}

impl Client {
    fn connect(address: SocketAddr, login: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut this = Self { stream, last: 0 };
        let session =
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16];
        this.send(&[&session[..], &[0; 17]].concat())?;
        this.receive()?;
        if !login.is_empty() {
            this.ask(AUTH, &[vec![0; 4], text("digest"), text(login)].concat())?;
        }
        Ok(this)
    }

    /// Others may write there meanwhile.
    fn delete(&mut self, path: &str) -> std::io::Result<u64> {
        let mut count = 0;
        loop {
            let inside = match self.children(path) {
                Err(error) if error.to_string().contains(NO_NODE) => return Ok(count),
                inside => inside?,
            };
            for child in inside {
                count += self.delete(&format!("{path}/{child}"))?;
            }
            match self.ask(DELETE, &[text(path), (-1_i32).to_be_bytes().to_vec()].concat()) {
                Ok(_) => return Ok(count + 1),
                Err(error) if [NO_NODE, NOT_EMPTY].iter().any(|code| error.to_string().contains(code)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What may be listed only with rights is listed while there are some.
    fn permit(&mut self, path: &str, allowed: bool) -> std::io::Result<()> {
        let rights: i32 = if allowed { 31 } else { 16 };
        let any = [1_i32.to_be_bytes(), rights.to_be_bytes()].concat();
        let set = [text(path), any, text("world"), text("anyone"), (-1_i32).to_be_bytes().to_vec()].concat();
        if allowed {
            self.ask(SET_ACL, &set)?;
        }
        for child in self.children(path)? {
            match self.permit(&format!("{path}/{child}"), allowed) {
                // The marker of a version that was replaced meanwhile.
                Err(error) if error.to_string().contains(NO_NODE) => {}
                done => done?,
            }
        }
        if !allowed {
            self.ask(SET_ACL, &set)?;
        }
        Ok(())
    }

    fn children(&mut self, path: &str) -> std::io::Result<Vec<String>> {
        let answer = self.ask(GET_CHILDREN, &[text(path), vec![0]].concat())?;
        let (mut rest, mut names) = (answer.get(4..).unwrap_or_default(), Vec::new());
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (name, next) = after.split_at(u32::from_be_bytes(*length) as usize);
            names.push(String::from_utf8_lossy(name).into_owned());
            rest = next;
        }
        Ok(names)
    }

    /// What is answered, without its header; an error of the server is one.
    fn ask(&mut self, op: i32, body: &[u8]) -> std::io::Result<Vec<u8>> {
        self.last += 1;
        let number = if op == AUTH { -4 } else { self.last };
        self.send(&[&number.to_be_bytes()[..], &op.to_be_bytes(), body].concat())?;
        loop {
            let frame = self.receive()?;
            let (head, rest) = frame.split_at_checked(16).ok_or(std::io::ErrorKind::InvalidData)?;
            if head[..4] == number.to_be_bytes() {
                let code = i32::from_be_bytes([head[12], head[13], head[14], head[15]]);
                return match code {
                    0 => Ok(rest.to_vec()),
                    code => Err(std::io::Error::other(format!("error {code} of ZooKeeper"))),
                };
            }
        }
    }

    fn send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(frame.len()).unwrap_or_default();
        self.stream.write_all(&[&length.to_be_bytes()[..], frame].concat())
    }

    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or_default();
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}
