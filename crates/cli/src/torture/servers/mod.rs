//! Private servers, and what can be done to each.
//!
//! What cannot be done on a machine that has no time is *not done*, and says why: a fault that failed proves nothing
//! about leaders. A server that does not come back is another matter, and a panic.

mod home;
mod peers;
mod redis;
mod sql;

use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_testkit::servers::scratch;

use super::fault::Kind;
use super::ground::Attacked;
use crate::args::Private;
use home::Home;

/// How long a server may take for something that it does in a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Done; or why it could not be.
pub(super) type Done = Result<(), String>;

/// Starts one, on a disk that can be full if that is wanted.
pub(super) fn start(private: Private, small_disk: bool) -> Box<dyn Attacked> {
    match private {
        Private::Sqlite => {
            let home = Home::new(small_disk, || TempDir::new().expect("a temporary directory"));
            Box::new(Sqlite { dir: home.folder(), home })
        }
        Private::Redis => Box::new(redis::Redis::start(Home::new(small_disk, scratch))),
        Private::RedisFailover => Box::new(redis::Failover::start()),
        Private::Postgres => Box::new(sql::Sql::postgres(Home::new(small_disk, scratch))),
        Private::Mysql => Box::new(sql::Sql::mysql(Home::new(small_disk, scratch))),
        Private::Peers => Box::new(peers::Peers::start(Home::new(small_disk, scratch))),
    }
}

/// A file, its companions and nothing else.
struct Sqlite {
    dir: TempDir,
    home: Home,
}

impl Attacked for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.dir.path().join("tenure.db").display())
    }

    fn able(&self) -> &'static [Kind] {
        &[Kind::Flush, Kind::DiskFull]
    }

    fn has_disk(&self) -> bool {
        self.home.has_disk()
    }

    fn strike(&mut self, kind: Kind, _: Duration) -> Done {
        if kind == Kind::DiskFull {
            return self.home.fill();
        }
        let entries = std::fs::read_dir(self.dir.path()).map_err(|error| error.to_string())?;
        for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
            let _ = std::fs::remove_file(entry.path());
        }
        Ok(())
    }

    fn heal(&mut self, _: Kind) -> Done {
        self.home.clear()
    }
}

/// Waits for what comes in a moment.
fn until(what: &str, mut done: impl FnMut() -> bool) -> Done {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > PATIENCE {
            return Err(format!("within {PATIENCE:?} it never was that {what}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A client's command. A server that never answers must not keep us from healing it.
fn run(mut command: Command) -> Done {
    let log = tempfile::tempfile().and_then(|log| Ok((log.try_clone()?, log)));
    let (said, mut log) = log.map_err(|error| format!("no temporary file: {error}"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Err(format!("{command:?}: {error}; is the client installed?")),
    };
    let mut ended = None;
    let in_time = until("the server answers its client", || {
        ended = child.try_wait().ok().flatten();
        ended.is_some()
    });
    if in_time.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let mut words = String::new();
    let _ = log.rewind().and_then(|()| log.read_to_string(&mut words));
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(format!("{command:?}: {}", words.trim_end())),
        None => in_time,
    }
}
