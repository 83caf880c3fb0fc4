//! What a command says on stderr: passed on line by line under the command's name, and the last of it kept for the record.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;

use crate::log::LogWriter;

/// So many of the last lines are kept, each so long.
const KEPT: usize = 5;
const LENGTH: usize = 200;
/// A longer line is passed on in pieces.
const LONGEST: u64 = 4096;
/// How long the end of it is waited for, once the command and all it started are gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CapturedOutput {
    last: JoinHandle<VecDeque<String>>,
}

impl CapturedOutput {
    /// What is to be the command's stderr, and who listens at the other end.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub(crate) fn start(name: String) -> io::Result<(OwnedFd, Self)> {
        let (here, there) = pipe_with(PipeFlags::CLOEXEC)?;
        let lines = Receiver::from_owned_fd(here)?;
        Ok((there, Self { last: tokio::spawn(forward_lines(lines, name)) }))
    }

    /// The last lines, joined; empty if there was no output. All writers are gone by then.
    pub(crate) async fn last_lines(self) -> String {
        let last = tokio::time::timeout(PATIENCE, self.last).await;
        let last = last.ok().and_then(Result::ok).unwrap_or_default();
        last.into_iter().collect::<Vec<_>>().join(" | ")
    }

    /// Why it failed, with its last words.
    pub(crate) async fn explain(self, why: String) -> String {
        let last = self.last_lines().await;
        if last.is_empty() { why } else { format!("{why}; last output: {last}") }
    }
}

async fn forward_lines(lines: Receiver, name: String) -> VecDeque<String> {
    let (mut lines, mut line, mut last) = (BufReader::new(lines), Vec::new(), VecDeque::new());
    while let Ok(1..) = (&mut lines).take(LONGEST).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        // Colours too: what one line turns on would go on in the lines of others.
        let text = crate::text::sanitize(&text.trim_end().replace('\t', "    "));
        let _ = LogWriter.write_all(format!("{name}: {text}\n").as_bytes());
        if !text.is_empty() {
            last.push_back(text.chars().take(LENGTH).collect());
        }
        if last.len() > KEPT {
            last.pop_front();
        }
        line.clear();
    }
    last
}
