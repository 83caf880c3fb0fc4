//! Files that decide what this process does, or that hold a secret: they must belong to this user or to root, and no
//! other user may change them, or read the secret.

use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getegid, geteuid};

/// Why a file or a directory cannot be relied on: another user owns it, or can write it.
#[must_use]
pub fn objection(found: &Metadata) -> Option<String> {
    let (me, owner, group) = (geteuid().as_raw(), found.uid(), found.gid());
    if owner != me && owner != 0 {
        return Some(format!("it belongs to user {owner}, and this process runs as user {me}"));
    }
    if found.mode() & 0o002 != 0 {
        return Some("every user of this host can write it".to_owned());
    }
    // Many systems give each user a group of its own; any other group is shared on purpose.
    let shared = found.mode() & 0o020 != 0 && group != getegid().as_raw();
    shared.then(|| format!("the members of group {group} can write it"))
}

/// Why a directory cannot be relied on: others can change what is in it, or put another one in its place. The path must have no
/// links in it.
#[must_use]
pub fn directory_objection(directory: &Path) -> Option<String> {
    let own = fs::metadata(directory).ok().and_then(|found| objection(&found));
    let told = |above: &Path| format!("every user of this host can write {}", above.display());
    own.or_else(|| replaceable_above(directory).map(told))
}

/// The first directory above this one in which every user can put something else in the place of what is there. In a sticky
/// one, only owners can.
#[must_use]
pub fn replaceable_above(directory: &Path) -> Option<&Path> {
    directory.ancestors().skip(1).find(|above| {
        let mode = fs::metadata(above).map_or(0, |found| found.mode());
        mode & 0o002 != 0 && mode & STICKY == 0
    })
}

const STICKY: u32 = 0o1000;

/// Whether every user of this host can read a file.
#[must_use]
pub fn is_exposed(found: &Metadata) -> bool {
    found.mode() & 0o004 != 0
}

/// Reads a file that no other user can change. The file that was checked is the one that is read, whatever happens to
/// its name meanwhile.
///
/// # Errors
/// Why it cannot be read or relied on, and what to do.
pub fn read(path: &Path) -> Result<(Vec<u8>, Metadata), String> {
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let mut file = File::open(path).map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    if let Some(why) = objection(&found) {
        return Err(format!(
            "cannot rely on {shown}: {why}; `chown {} {shown}` and `chmod go-w {shown}`, or name another file",
            geteuid().as_raw()
        ));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(cannot)?;
    Ok((bytes, found))
}

/// The same for a file that is nothing but a secret: nor may every user of this host read it.
///
/// # Errors
/// Why it cannot be read or relied on, and what to do. No error shows the secret.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let (bytes, found) = read(path)?;
    if is_exposed(&found) {
        let shown = path.display();
        return Err(format!(
            "cannot rely on {shown}: every user of this host can read the secret in it; `chmod 600 {shown}`"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_can_change_or_read_is_told_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        fs::write(&file, "hunter2").unwrap();
        let chmod = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        for (mode, readable, secret) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o640, true, true),
            (0o644, true, false),
            (0o622, false, false),
            (0o666, false, false),
        ] {
            chmod(mode);
            assert_eq!(read(&file).is_ok(), readable, "{mode:o}");
            let found = read_secret(&file);
            assert_eq!(found.is_ok(), secret, "{mode:o}");
            if let Err(why) = found {
                assert!(why.contains("chmod") && !why.contains("hunter2"), "{why}");
            }
        }
        chmod(0o600);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            let why = read(&file).unwrap_err();
            assert!(why.contains("user 65534") && why.contains("chown 0"), "{why}");
        }
        assert!(read(&dir.path().join("none")).unwrap_err().contains("cannot read"));
    }
}
