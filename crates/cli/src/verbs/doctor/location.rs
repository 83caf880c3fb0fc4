//! Which kind of file system a file lies on.

use std::path::Path;

/// What the kernel calls the local file systems that people use.
const KNOWN: [(u32, &str); 10] = [
    (0xEF53, "ext4 (or ext2, ext3)"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x794C_7630, "overlay"),
    (0x6573_5546, "fuse"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
];

/// The file system of the file that a store is kept in.
pub(super) fn of(path: &Path) -> Option<String> {
    let found = rustix::fs::statfs(path.parent()?).ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = found.f_type as u32;
    let known = KNOWN.iter().find(|(known, _)| *known == magic);
    Some(known.map_or_else(|| format!("type {magic:#x}"), |(_, name)| (*name).to_owned()))
}

/// Whether nothing of it survives a restart of the machine.
pub(super) fn is_memory(name: &str) -> bool {
    matches!(name, "tmpfs" | "ramfs")
}
