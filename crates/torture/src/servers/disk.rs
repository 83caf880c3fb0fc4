//! A disk of one's own, which can be full: a file system in memory, mounted for as long as it is wanted.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::scratch;

/// Room for an hour of everything that servers here write: three members of etcd behind an API server filled 1 GiB in half an hour.
/// Memory is taken only for what is there.
const ROOM: u64 = 8 << 30;

/// A mounted disk. Unmounted when dropped; its users must be gone by then.
#[derive(Debug)]
pub struct Disk {
    place: TempDir,
}

impl Disk {
    /// Mounts one.
    ///
    /// # Errors
    /// With the words of `mount`, which is for root as a rule.
    pub fn mount() -> Result<Self, String> {
        let disk = Self { place: scratch() };
        let room = format!("size={ROOM},mode=0755");
        say(Command::new("mount").args(["-t", "tmpfs", "-o", &room, "tenure-test"]).arg(disk.place.path()))?;
        Ok(disk)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// A new folder on it.
    ///
    /// # Panics
    /// If there is no room.
    #[must_use]
    pub fn folder(&self) -> TempDir {
        TempDir::new_in(self.path()).expect("a folder on a disk with room")
    }

    /// From now on there is no room for one more page.
    ///
    /// # Errors
    /// With the words of `mount`.
    pub fn fill(&self) -> Result<(), String> {
        let mut last = String::new();
        // A server that writes while we look makes the size that we ask for too small.
        for _ in 0..100 {
            let found = rustix::fs::statvfs(self.path()).map_err(|error| error.to_string())?;
            match self.resize((found.f_blocks - found.f_bfree) * found.f_frsize) {
                Ok(()) => return Ok(()),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    /// There is room again.
    ///
    /// # Errors
    /// With the words of `mount`.
    pub fn clear(&self) -> Result<(), String> {
        self.resize(ROOM)
    }

    fn resize(&self, bytes: u64) -> Result<(), String> {
        say(Command::new("mount").args(["-o", &format!("remount,size={bytes}")]).arg(self.path()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = say(Command::new("umount").arg("-l").arg(self.path()));
    }
}

fn say(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_and_has_room_again() {
        // Where no process may mount anything, the error says so.
        let disk = match Disk::mount() {
            Ok(disk) => disk,
            Err(why) => return assert!(!why.is_empty()),
        };
        let page = [1; 4096];
        std::fs::write(disk.path().join("before"), page).unwrap();
        disk.fill().unwrap();
        let full = std::fs::write(disk.path().join("after"), page).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        disk.clear().unwrap();
        std::fs::write(disk.path().join("after"), page).unwrap();
        let place = disk.path().to_owned();
        drop(disk);
        assert!(!place.exists());
    }
}
