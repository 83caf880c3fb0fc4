//! Where a private server keeps its data: on a disk of its own that can be full, if one can be had.

use std::path::Path;
use std::process::Command;

use crate::servers::disk::Disk;
use crate::servers::scratch;
use tempfile::TempDir;

use crate::servers::group::Members;

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

/// Copies of what every server of a group had at some time.
#[derive(Default)]
pub(super) struct GroupCopies(Vec<TempDir>);

impl GroupCopies {
    /// Ends every server and copies what it has. They are to be launched again.
    pub(super) fn keep<P>(&mut self, group: &mut Members<P>, data_dir: &DataDir) {
        group.stop_all();
        let count = group.count();
        self.0 = (0..count).filter_map(|nth| Some(data_dir.copy_of(group.data(nth)?.path()))).collect();
    }

    /// Ends every server and gives it what it had then. They are to be launched again.
    pub(super) fn put_back<P>(&mut self, group: &mut Members<P>) {
        let older = std::mem::take(&mut self.0);
        if older.is_empty() {
            return;
        }
        group.stop_all();
        for (nth, older) in older.into_iter().enumerate() {
            if let Some(data) = group.data(nth) {
                *data = older;
            }
        }
    }
}
