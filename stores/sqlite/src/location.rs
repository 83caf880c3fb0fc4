//! Where the file is, what lies beside it, and whether it can live there.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::access::Access;
use super::{STORE, error};
use tenure_store::StoreError;

/// A file, and its companions.
#[derive(Debug)]
pub(super) struct FileLocation {
    /// The database itself.
    pub(super) file: PathBuf,
    /// Written after every commit that others have to know of.
    pub(super) notifier: PathBuf,
    /// One lock file for each session that is alive.
    pub(super) locks: PathBuf,
    /// Who shares them.
    pub(super) access: Access,
    /// What is doubtful about the place.
    remark: Option<String>,
}

impl FileLocation {
    /// Makes the directory if it is missing, for those who share the file, and refuses network file systems and what
    /// strangers could change.
    pub(super) fn prepare(path: &Path, access: Access) -> Result<Self, StoreError> {
        let absolute = std::path::absolute(path).map_err(|error| error::of_io("find", path, error))?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            let message = format!("{} is a directory: name a file in it", absolute.display());
            return Err(StoreError::not_applied(STORE, message).permanent());
        };
        let made = DirBuilder::new().recursive(true).mode(access.directory_mode()).create(parent);
        made.map_err(|error| error::of_io("create the directory", parent, error))?;
        let parent = parent.canonicalize().map_err(|error| error::of_io("find", parent, error))?;
        let file = fs::canonicalize(parent.join(name)).unwrap_or_else(|_| parent.join(name));
        if file.is_dir() {
            let message = format!("{} is a directory: name a file in it", file.display());
            return Err(StoreError::not_applied(STORE, message).permanent());
        }
        check_names(&file)?;
        let home = file.parent().unwrap_or(&parent);
        for directory in [&parent, home] {
            access.check(directory)?;
            access.check_above(directory)?;
        }
        let remark = check_file_system(home)?;
        let beside = |suffix: &str| {
            let mut path = file.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        let (notifier, locks) = (beside("-notify"), beside("-locks"));
        for ours in [&file, &notifier, &locks, &beside("-wal"), &beside("-shm")] {
            access.check(ours)?;
        }
        Ok(Self { notifier, locks, access, remark, file })
    }

    /// Makes the file if it is missing: left to SQLite, every user of this host could read and lock it.
    pub(super) fn make_file(&self) -> Result<(), StoreError> {
        if self.file.exists() {
            return Ok(());
        }
        self.access.open(&self.file).map(drop).map_err(|error| error::of_io("create", &self.file, error))
    }

    /// What is doubtful about the place.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        self.remark.clone().into_iter().chain(self.access.remarks(&self.file))
    }

    /// Device and inode of the file now; none if it is gone.
    pub(super) fn device_and_inode(&self) -> Option<(u64, u64)> {
        fs::metadata(&self.file).ok().map(|found| (found.dev(), found.ino()))
    }
}

/// SQLite's log and our locks lie beside the file, by its name. Under a second name the same file would have a log and
/// locks of its own, and a second leader with the same token.
fn check_names(file: &Path) -> Result<(), StoreError> {
    let Ok(found) = fs::metadata(file) else { return Ok(()) };
    let why = if found.nlink() > 1 {
        "has another name (a hard link): remove that, or copy the file while no process uses it"
    } else if is_mounted_by_itself(file) {
        "is mounted by itself: mount the directory that it lies in"
    } else {
        return Ok(());
    };
    let message = format!("{} {why}; under two names it would be two stores", file.display());
    Err(StoreError::not_applied(STORE, message).permanent())
}

/// Whether the file is on another mount than its directory, as one is that was bound into a container alone.
#[cfg(target_os = "linux")]
fn is_mounted_by_itself(file: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let mount = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
    };
    file.parent().is_some_and(|parent| mount(file) != mount(parent))
}

#[cfg(not(target_os = "linux"))]
fn is_mounted_by_itself(_: &Path) -> bool {
    false
}

/// The file used when none is named: `$XDG_STATE_HOME/tenure/tenure.db`, or below `~/.local/state`.
pub(super) fn default_path() -> Result<PathBuf, StoreError> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        let message =
            "neither XDG_STATE_HOME nor HOME names a directory: set one, or name a file as sqlite:PATH";
        StoreError::not_applied(STORE, message).permanent()
    })?;
    Ok(state.join("tenure").join("tenure.db"))
}

/// File systems that several machines share, or that a host lends to its guest. SQLite's log needs memory shared by
/// all who use the file, and file locks prove death only where one kernel holds them all.
#[cfg(target_os = "linux")]
const SHARED: [(u32, &str); 17] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x0102_1997, "9p"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x2003_0528, "OrangeFS"),
    (0x786F_4256, "VirtualBox shared folder"),
    (0x1983_0326, "BeeGFS"),
    (0x4750_4653, "GPFS"),
];

/// What hides behind FUSE and is shared all the same, as the mount table names it.
#[cfg(target_os = "linux")]
const SHARED_FUSE: [&str; 8] =
    ["glusterfs", "sshfs", "ceph", "s3fs", "rclone", "juicefs", "virtiofs", "davfs"];

/// Refuses a file system that several machines share; remarks on one that hides what it is.
#[cfg(target_os = "linux")]
fn check_file_system(directory: &Path) -> Result<Option<String>, StoreError> {
    const FUSE: u32 = 0x6573_5546;
    let Ok(found) = rustix::fs::statfs(directory) else { return Ok(None) };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = found.f_type as u32;
    if let Some((_, name)) = SHARED.iter().find(|(shared, _)| *shared == magic) {
        return Err(refused(directory, name));
    }
    if magic != FUSE {
        return Ok(None);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let kind = mounted_as(&mounts, directory).unwrap_or_else(|| "fuse".to_owned());
    if SHARED_FUSE.iter().any(|shared| kind.contains(shared)) {
        return Err(refused(directory, &kind));
    }
    Ok(Some(format!("the file lies on {kind}: make sure that no other machine can reach it, or move it")))
}

#[cfg(not(target_os = "linux"))]
fn check_file_system(_: &Path) -> Result<Option<String>, StoreError> {
    Ok(None)
}

/// The type of the file system that holds a path, by the longest mount point that is a part of it.
#[cfg(target_os = "linux")]
fn mounted_as(mountinfo: &str, path: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let point = line.split(' ').nth(4)?;
        let kind = line.split(" - ").nth(1)?.split(' ').next()?;
        path.starts_with(point).then(|| (point.len(), kind.to_owned()))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

#[cfg(target_os = "linux")]
fn refused(directory: &Path, kind: &str) -> StoreError {
    let message = format!(
        "{} is on a network file system ({kind}), where SQLite's log and the locks that prove death cannot be relied \
         on: name a file on a local disk, or use a store with a server",
        directory.display()
    );
    StoreError::not_applied(STORE, message).permanent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_longest_mount_point_tells_the_file_system() {
        let table = "21 1 0:1 / / rw - ext4 /dev/a rw\n22 21 0:2 / /mnt/x rw shared:1 - fuse.sshfs h:/ rw\n";
        assert_eq!(mounted_as(table, Path::new("/mnt/x/y")).as_deref(), Some("fuse.sshfs"));
        assert_eq!(mounted_as(table, Path::new("/mnt/xy")).as_deref(), Some("ext4"));
    }

    #[test]
    fn a_file_of_two_names_is_refused_under_both() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one.db"), dir.path().join("other.db"));
        fs::write(&one, "").unwrap();
        FileLocation::prepare(&one, Access::Owner).unwrap();
        fs::hard_link(&one, &other).unwrap();
        for name in [&one, &other] {
            let refused = FileLocation::prepare(name, Access::Owner).unwrap_err().to_string();
            assert!(refused.contains("hard link"), "{refused}");
        }
        fs::remove_file(&other).unwrap();
        FileLocation::prepare(&one, Access::Owner).unwrap();
    }

    #[test]
    fn companions_lie_beside_the_real_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("real.db"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("real.db"), dir.path().join("alias.db")).unwrap();
        let location = FileLocation::prepare(&dir.path().join("alias.db"), Access::Owner).unwrap();
        assert!(location.notifier.ends_with("real.db-notify"), "{location:?}");
    }
}
