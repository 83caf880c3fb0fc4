//! Where a private server keeps its data: on a disk of its own that can be full, if one can be had.

use std::path::Path;
use std::process::Command;

use crate::servers::disk::Disk;
use crate::servers::scratch;
use tempfile::TempDir;

use super::FaultResult;

/// See the [module](self). To be dropped after the servers that use it.
pub(super) struct DataDir {
    disk: Option<Disk>,
}

impl DataDir {
    /// Folders on a small disk, if that is wanted and possible; otherwise in memory, where there is such a directory.
    pub(super) fn new(small_disk: bool) -> Self {
        Self { disk: small_disk.then(Disk::mount).and_then(Result::ok) }
    }

    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// A new folder.
    pub(super) fn folder(&self) -> TempDir {
        self.disk.as_ref().map_or_else(scratch, Disk::folder)
    }

    /// A new folder on a real disk: SQLite's locks and flushes are to cost what they cost.
    pub(super) fn durable_folder(&self) -> TempDir {
        let durable = || TempDir::new().expect("a temporary directory can be made");
        self.disk.as_ref().map_or_else(durable, Disk::folder)
    }

    /// A copy of a folder.
    pub(super) fn copy_of(&self, dir: &Path) -> TempDir {
        let copy = self.folder();
        let done = Command::new("cp").arg("-a").arg(format!("{}/.", dir.display())).arg(copy.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "{} can be copied", dir.display());
        copy
    }

    pub(super) fn fill(&self) -> FaultResult {
        self.disk.as_ref().map_or(Ok(()), Disk::fill)
    }

    pub(super) fn clear(&self) -> FaultResult {
        self.disk.as_ref().map_or(Ok(()), Disk::clear)
    }
}
