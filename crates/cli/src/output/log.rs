//! Log lines on stderr, written by a thread of their own: whoever does not read them holds up nobody else, least of all
//! the election loop, in which most of them arise. What does not fit into the queue is dropped and counted.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// So many lines wait for a slow reader.
const QUEUE: usize = 4096;
/// How long the end of the process waits for them.
const LAST_WORDS: Duration = Duration::from_millis(500);

static QUEUED: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Takes lines and never waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lines;

/// How many lines were dropped so far.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Waits a moment for what was logged to be read.
pub fn flush() {
    let began = Instant::now();
    while WRITTEN.load(Ordering::Acquire) < QUEUED.load(Ordering::Acquire) && began.elapsed() < LAST_WORDS {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for Lines {
    /// A line comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        QUEUED.fetch_add(1, Ordering::AcqRel);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = queue().try_send(line.to_vec()) {
            QUEUED.fetch_sub(1, Ordering::AcqRel);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn queue() -> &'static SyncSender<Vec<u8>> {
    static SENDER: OnceLock<SyncSender<Vec<u8>>> = OnceLock::new();
    SENDER.get_or_init(|| {
        let (sender, lines) = sync_channel::<Vec<u8>>(QUEUE);
        let thread = std::thread::Builder::new().name("tenure-log".to_owned());
        // Without a thread every line is dropped, and counted.
        let _ = thread.spawn(move || {
            let mut told = 0;
            for line in lines {
                let dropped = dropped();
                if dropped > told {
                    let _ = writeln!(
                        io::stderr(),
                        "tenure: {} log lines were dropped: nobody read them",
                        dropped - told
                    );
                    told = dropped;
                }
                let _ = io::stderr().write_all(&line);
                WRITTEN.fetch_add(1, Ordering::AcqRel);
            }
        });
        sender
    })
}
