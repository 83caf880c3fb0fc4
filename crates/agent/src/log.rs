//! Log lines on stderr, written by a thread of their own: a reader that does not read holds up nothing else, least of all
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
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

static QUEUED: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Takes lines and never waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogWriter;

/// How many lines were dropped so far.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Waits a moment for what was logged to be read.
pub fn flush() {
    let began = Instant::now();
    while WRITTEN.load(Ordering::Acquire) < QUEUED.load(Ordering::Acquire) && began.elapsed() < FLUSH_LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for LogWriter {
    /// A line comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        QUEUED.fetch_add(1, Ordering::AcqRel);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = queue().try_send(one_line(line)) {
            QUEUED.fetch_sub(1, Ordering::AcqRel);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One line, whatever others made it say.
fn one_line(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let mut line = crate::text::for_terminal(&text.replace('\n', "\u{fffd}"));
    line.push('\n');
    line.into_bytes()
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
                        "tenure: {} log lines were dropped: stderr was not read",
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

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_stays_one_line() {
        let line = super::one_line("\u{1b}[32m INFO\u{1b}[0m x=\u{9b}2J\nERROR forged\n".as_bytes());
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, "\u{1b}[32m INFO\u{1b}[0m x=\u{fffd}2J\u{fffd}ERROR forged\n");
    }
}
