//! A link between a client and its agent that can be cut so that only the agent sees it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Passes bytes on. What the agent closes is *not* closed to the client until it is healed: a client that hears nothing
/// is the hard case.
pub(crate) struct Link {
    path: PathBuf,
    pairs: Arc<Mutex<Vec<Pair>>>,
}

struct Pair {
    client: UnixStream,
    agent: UnixStream,
}

impl Link {
    pub(crate) fn new(path: &Path, agent: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let pairs: Arc<Mutex<Vec<Pair>>> = Arc::default();
        let (agent, kept) = (agent.to_owned(), pairs.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if let Ok(agent) = UnixStream::connect(&agent) {
                    join(&client, &agent);
                    kept.lock().unwrap().push(Pair { client, agent });
                }
            }
        });
        Self { path: path.to_owned(), pairs }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The agent sees the connections close; the client sees nothing.
    pub(crate) fn cut(&self) {
        for pair in self.pairs.lock().unwrap().iter() {
            let _ = pair.agent.shutdown(Shutdown::Both);
        }
    }

    /// The client sees what was cut, and may connect anew.
    pub(crate) fn heal(&self) {
        for pair in self.pairs.lock().unwrap().drain(..) {
            let _ = pair.agent.shutdown(Shutdown::Both);
            let _ = pair.client.shutdown(Shutdown::Both);
        }
    }
}

fn join(client: &UnixStream, agent: &UnixStream) {
    let (mut from, mut to) = (client.try_clone().unwrap(), agent.try_clone().unwrap());
    std::thread::spawn(move || {
        copy(&mut from, &mut to);
        // A client that has died is seen.
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (agent.try_clone().unwrap(), client.try_clone().unwrap());
    // Nothing larger is kept here, so that a client that does not read is noticed by the agent.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&to, 4096);
    std::thread::spawn(move || copy(&mut from, &mut to));
}

fn copy(from: &mut UnixStream, to: &mut UnixStream) {
    let mut some = [0; 1024];
    while let Ok(length @ 1..) = from.read(&mut some) {
        if to.write_all(&some[..length]).is_err() {
            return;
        }
    }
}
