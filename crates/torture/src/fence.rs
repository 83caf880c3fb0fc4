//! The fence: a register for each role outside of the store, that takes a write only under the highest token it has
//! seen. It stands for whatever leaders write to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::judge::{NoteKind, NoteWriter};
use crate::workload::{self, Fence};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

fn socket(dir: &Path) -> PathBuf {
    dir.join("fence.sock")
}

/// Decides about writes until it is dropped with its runtime.
pub(crate) fn serve(dir: &Path) -> std::io::Result<()> {
    let notes_to = NoteWriter::in_dir(dir, "fence", 0)?;
    let listener = UnixListener::bind(socket(dir))?;
    let highest = Arc::new(Mutex::new(BTreeMap::new()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(decide(stream, highest.clone(), notes_to.clone()));
        }
    });
    Ok(())
}

/// One line for each write: role, token, node, life.
async fn decide(stream: UnixStream, highest: Arc<Mutex<BTreeMap<String, u64>>>, notes_to: NoteWriter) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [role, token, node, life] = words[..] else { return };
        let (Ok(token), Ok(life)) = (token.parse::<u64>(), life.parse()) else { return };
        {
            // Decided and noted under one lock, so that the notes are in the order of the decisions.
            let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = highest.entry(role.to_owned()).or_insert(0);
            let taken = token >= *seen;
            *seen = token.max(*seen);
            notes_to.of(node, life).note(NoteKind::Fenced { role: role.to_owned(), token, taken });
        }
        if stream.write_all(b"\n").await.is_err() {
            return;
        }
        line.clear();
    }
}

/// A leader's side of it.
pub(crate) fn client(dir: &Path, node: &str, life: u32) -> Fence {
    let (path, node) = (socket(dir), node.to_owned());
    let connection = Arc::new(tokio::sync::Mutex::new(None));
    Arc::new(move |role, token| {
        let line = format!("{role} {token} {node} {life}\n");
        workload::ignore(write(path.clone(), connection.clone(), line))
    })
}

/// A write whose future is dropped half way would leave an answer behind: the connection is put back only when it came.
async fn write(
    path: PathBuf,
    connection: Arc<tokio::sync::Mutex<Option<BufReader<UnixStream>>>>,
    line: String,
) -> std::io::Result<()> {
    let kept = connection.lock().await.take();
    let mut stream = match kept {
        Some(stream) => stream,
        None => BufReader::new(UnixStream::connect(path).await?),
    };
    stream.write_all(line.as_bytes()).await?;
    stream.read_line(&mut String::new()).await?;
    *connection.lock().await = Some(stream);
    Ok(())
}
