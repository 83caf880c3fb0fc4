//! Where a private server keeps its data: on a disk of its own that can be full, if one can be had.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tenure_testkit::servers::disk::Disk;

use super::Done;

/// See the [module](self). To be dropped after the servers that use it.
pub(super) struct Home {
    disk: Option<Disk>,
    elsewhere: fn() -> TempDir,
}

impl Home {
    /// A home on a small disk, if that is wanted and possible; otherwise wherever folders are made.
    pub(super) fn new(small_disk: bool, elsewhere: fn() -> TempDir) -> Self {
        Self { disk: small_disk.then(Disk::mount).and_then(Result::ok), elsewhere }
    }

    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// A new folder.
    pub(super) fn folder(&self) -> TempDir {
        self.disk.as_ref().map_or_else(self.elsewhere, Disk::folder)
    }

    /// A copy of a folder.
    pub(super) fn copy_of(&self, dir: &Path) -> TempDir {
        let copy = self.folder();
        let done = Command::new("cp").arg("-a").arg(format!("{}/.", dir.display())).arg(copy.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "{} can be copied", dir.display());
        copy
    }

    pub(super) fn fill(&self) -> Done {
        self.disk.as_ref().map_or(Ok(()), Disk::fill)
    }

    pub(super) fn clear(&self) -> Done {
        self.disk.as_ref().map_or(Ok(()), Disk::clear)
    }
}
