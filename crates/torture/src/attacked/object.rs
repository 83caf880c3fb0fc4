//! A MinIO server, for object storage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::FaultResult;
use super::data_dir::DataDir;
use crate::fault::FaultKind;
use crate::servers::minio::Minio;
use crate::target::AttackedServer;

/// A running server.
pub(super) struct Object {
    server: Minio,
    older: Option<TempDir>,
    data_dir: DataDir,
}

impl Object {
    pub(super) fn start(data_dir: DataDir) -> Self {
        Self { server: Minio::start_in(data_dir.folder()), older: None, data_dir }
    }

    fn delete(&self, which: impl Fn(&Path) -> bool) -> FaultResult {
        let mut folders = vec![self.server.objects().join("tenure")];
        let mut chosen: Vec<PathBuf> = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match which(&path) {
                    true => chosen.push(path),
                    false if path.is_dir() => folders.push(path),
                    false => {}
                }
            }
        }
        for path in chosen {
            std::fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

impl AttackedServer for Object {
    fn url(&self) -> String {
        self.server.url(self.server.address())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{DeleteRows, DiskFull, Flush, Restore, StoreFreeze, StoreKill};
        &[StoreKill, StoreFreeze, Flush, DeleteRows, Restore, DiskFull]
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        match kind {
            FaultKind::StoreKill => self.server.stop(),
            FaultKind::StoreFreeze => self.server.signal(Signal::STOP),
            FaultKind::DiskFull => return self.data_dir.fill(),
            FaultKind::Flush => return self.delete(Path::is_dir),
            FaultKind::DeleteRows => {
                let is_session = |path: &Path| {
                    path.is_dir() && path.parent().is_some_and(|folder| folder.ends_with("session"))
                };
                return self.delete(is_session);
            }
            FaultKind::Restore => {
                self.server.stop();
                self.older = self.server.stopped_data().map(|data| self.data_dir.copy_of(data.path()));
                self.server.launch();
            }
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::StoreFreeze => self.server.signal(Signal::CONT),
            FaultKind::Restore => {
                if let Some(older) = self.older.take() {
                    self.server.stop();
                    if let Some(data) = self.server.stopped_data() {
                        *data = older;
                    }
                }
            }
            _ => {}
        }
        let cleared = self.data_dir.clear();
        self.server.launch();
        cleared
    }
}
