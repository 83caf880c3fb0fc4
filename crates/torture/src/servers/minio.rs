//! Private MinIO servers: object storage with the interface of S3, on one directory.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Server, built, free_port, scratch};

/// The access key of every server.
pub const KEY: &str = "tenure-key";
/// Its secret, unless another was set.
pub const SECRET: &str = "correct-horse-battery";
/// The bucket of every server.
pub const BUCKET: &str = "bucket";

const PATIENCE: Duration = Duration::from_secs(60);

/// A server with one bucket; it keeps its port while it is down.
#[derive(Debug)]
pub struct Minio {
    port: u16,
    secret: String,
    server: Option<Server>,
    stopped: Option<TempDir>,
}

impl Minio {
    /// A server in memory, if there is a directory for that.
    ///
    /// # Panics
    /// If it does not start, or MinIO is not installed.
    #[must_use]
    pub fn start() -> Self {
        Self::start_in(scratch())
    }

    /// A server that keeps its data there.
    ///
    /// # Panics
    /// If it does not start, or MinIO is not installed.
    #[must_use]
    pub fn start_in(dir: TempDir) -> Self {
        let mut this =
            Self { port: free_port(), secret: SECRET.to_owned(), server: None, stopped: Some(dir) };
        this.launch();
        this
    }

    /// Where it answers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The URL of the store, by way of that address.
    #[must_use]
    pub fn url(&self, address: SocketAddr) -> String {
        format!("s3://{KEY}:{SECRET}@{BUCKET}/tenure?endpoint=http://{address}")
    }

    /// Starts it on what it had, if it is down, and waits until it answers.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn launch(&mut self) {
        if self.server.as_mut().is_some_and(Server::has_ended) {
            self.stop();
        }
        let Some(dir) = self.stopped.take() else { return };
        let data = dir.path().join("data");
        std::fs::create_dir_all(data.join(BUCKET)).expect("a folder for the bucket");
        let mut command = Command::new(built("minio"));
        command.arg("server").arg(&data).arg("--quiet").arg("--anonymous");
        command.args(["--address", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--console-address", &format!("127.0.0.1:{}", free_port())]);
        command.env("MINIO_ROOT_USER", KEY).env("MINIO_ROOT_PASSWORD", &self.secret);
        command.env("MINIO_BROWSER", "off").env("MINIO_UPDATE", "off").env("HOME", dir.path());
        self.server = Some(Server::start("minio", dir, self.port, &mut command, is_ready));
    }

    /// Ends it as a power loss would.
    pub fn stop(&mut self) {
        self.stopped = self.server.take().map(Server::crash).or_else(|| self.stopped.take());
    }

    /// Ends it, and starts it with another secret: clients with the old one are refused.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart_with(&mut self, secret: &str) {
        self.stop();
        secret.clone_into(&mut self.secret);
        self.launch();
    }

    /// What it has on its disk while it is down, to be replaced.
    pub fn stopped_data(&mut self) -> Option<&mut TempDir> {
        self.stopped.as_mut()
    }

    /// Where the objects of its bucket are, a folder each.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        let dir = self.server.as_ref().map(Server::dir).or(self.stopped.as_ref().map(TempDir::path));
        dir.unwrap_or(Path::new("/nowhere")).join("data").join(BUCKET)
    }

    /// Freezes or thaws it: SIGSTOP, SIGCONT. One that is down stays so.
    pub fn signal(&self, signal: Signal) {
        if let Some(server) = &self.server {
            server.signal(signal);
        }
    }
}

fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET /minio/health/ready HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(" 200 "))
}
