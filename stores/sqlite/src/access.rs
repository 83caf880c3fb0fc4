//! Which other users may touch the files: one who can write them, or only lock them, can stop every node or depose its leaders.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid, getgroups};

use super::STORE;
use tenure_store::StoreError;
use tenure_store::trust::{objection, replaceable_above};

/// Which users of this host share the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// This user alone, beside root. The default.
    #[default]
    Owner,
    /// The members of the group of the file's directory, of which this process is one: files are made for the group,
    /// and may belong to any of its members.
    Group,
    /// Every user whom the file system lets in: nothing is checked.
    Anyone,
}

impl Access {
    /// What `access=` of a URL says.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "owner" => Some(Self::Owner),
            "group" => Some(Self::Group),
            "anyone" => Some(Self::Anyone),
            _ => None,
        }
    }

    /// The mode of a new file.
    fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o660,
            Self::Anyone => 0o666,
        }
    }

    /// The mode of a new directory: files in one that a group shares belong to that group.
    pub(super) fn directory_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Group => 0o2770,
            Self::Anyone => 0o777,
        }
    }

    /// Opens a file for reading and writing, and makes it if it is missing. Never another one behind a link, and never
    /// one that a stranger put there.
    pub(super) fn open(self, path: &Path) -> io::Result<File> {
        match self.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = Self::options().open(path)?;
                self.adopt(&file)?;
                Ok(file)
            }
            made => made,
        }
    }

    /// Makes a file that must not be there yet.
    pub(super) fn create(self, path: &Path) -> io::Result<File> {
        let file = Self::options().create_new(true).mode(self.mode()).open(path)?;
        // What the umask took away from the group, it gets back.
        file.set_permissions(Permissions::from_mode(self.mode()))?;
        Ok(file)
    }

    fn options() -> OpenOptions {
        #[allow(clippy::cast_possible_wrap)]
        let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        options
    }

    /// A file that was there: it must be ours to use, and no user beyond those who share it may so much as lock it.
    fn adopt(self, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        if !found.is_file() {
            return refuse("it is not a plain file".to_owned());
        }
        if let Some(why) = self.objection(&found) {
            return refuse(why);
        }
        let excess = found.mode() & 0o777 & !self.mode();
        if excess != 0 && self != Self::Anyone && found.uid() == geteuid().as_raw() {
            file.set_permissions(Permissions::from_mode(found.mode() & self.mode()))?;
        }
        Ok(())
    }

    /// Refuses a file or directory that others could change, or that belongs to a stranger. What is missing is fine.
    pub(super) fn check(self, path: &Path) -> Result<(), StoreError> {
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        match self.objection(&found) {
            Some(why) => Err(refused(path, &why)),
            None => Ok(()),
        }
    }

    /// The same for everything above: a user who may rename a directory can put another one in its place.
    pub(super) fn check_above(self, directory: &Path) -> Result<(), StoreError> {
        match replaceable_above(directory) {
            Some(above) if self != Self::Anyone => {
                Err(refused(above, "every user of this host can write it"))
            }
            _ => Ok(()),
        }
    }

    /// Why a file, as it was found, cannot be relied on.
    fn objection(self, found: &Metadata) -> Option<String> {
        match self {
            Self::Anyone => None,
            Self::Group if is_mine(found.gid()) => {
                (found.mode() & 0o002 != 0).then(|| "every user of this host can write it".to_owned())
            }
            Self::Owner | Self::Group => objection(found),
        }
    }

    /// What is worth knowing about the place.
    pub(super) fn remarks(self, file: &Path) -> Vec<String> {
        let mode = fs::metadata(file).map_or(0, |found| found.mode());
        let shown = file.display();
        let read = (self == Self::Owner && mode & 0o044 != 0).then(|| {
            format!("other users of this host can read {shown}, and hold its locks: chmod 600 {shown}*")
        });
        let anyone = (self == Self::Anyone).then(|| {
            "access=anyone: every user whom the file system lets in can depose leaders and stop elections"
                .to_owned()
        });
        read.into_iter().chain(anyone).collect()
    }
}

fn is_mine(group: u32) -> bool {
    let mine = getgroups().unwrap_or_default();
    mine.into_iter().chain([getegid()]).any(|known| known.as_raw() == group)
}

fn refused(path: &Path, why: &str) -> StoreError {
    let message = format!(
        "cannot rely on {}: {why}; let this process run as its owner, or change owner and mode (chown, chmod go-w), or \
         name a file elsewhere; if several users share it, say so in the URL: access=group, or access=anyone",
        path.display()
    );
    StoreError::not_applied(STORE, message).permanent()
}
