//! Who a member is, and under which disk it knew the others: the little that is kept beside the log.
//!
//! A member that lost its disk has also lost its votes and what it acknowledged; under its old id it could help to
//! elect a leader that lacks what was promised. So each disk has a number, and every member notes the disk of another
//! before it listens to it. Under one id there is only ever one disk.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tenure_core::Entropy;

use super::file::{PRIVATE, private, replace};
use super::frame::MemberInfo;
use super::settings::refuse;
use super::{PeersSettings, STORE};
use tenure_store::StoreError;
use tenure_store::entropy::KernelEntropy;
use tenure_store::trust::directory_objection;

/// The directory of a member, for this process alone.
#[derive(Debug)]
pub(super) struct MemberDirectory {
    dir: PathBuf,
    /// Held for as long as the member lives.
    _lock: File,
}

impl MemberDirectory {
    /// Takes the directory, and makes it if it is missing. A user who can change what is in it can change votes and registers,
    /// and can have this process write wherever a link leads: such a directory is refused, unless told otherwise.
    pub(super) fn take(dir: &Path, checked: bool) -> Result<Self, StoreError> {
        let shown = dir.display();
        let fault = |error: std::io::Error| {
            refuse(&format!("{shown}, where this member keeps its log, cannot be used: {error}"))
                .caused_by(error)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fault)?;
        let dir = dir.canonicalize().map_err(fault)?;
        if let Some(why) = directory_objection(&dir).filter(|_| checked) {
            return Err(refuse(&format!(
                "cannot rely on {shown}, where this member keeps its log: {why}; change owner and mode (chown, chmod go-w), or \
                 name another dir; if no other user of this host can reach it, as in a container, add access=anyone"
            )));
        }
        let lock = private().open(dir.join("lock")).map_err(fault)?;
        // A user who can read a file can lock it, and former versions let every user read it.
        let _ = lock.set_permissions(Permissions::from_mode(PRIVATE));
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            refuse(&format!(
                "{shown} is in use: another process is this member; let this one be a client, with member=false"
            ))
        })?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(super) fn identity(&self) -> PathBuf {
        self.dir.join("member.json")
    }
}

/// Who a member is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Identity {
    cluster: String,
    pub(super) id: u64,
    /// In hexadecimal.
    disk: String,
    pub(super) address: String,
    /// The disks of the others.
    seen: BTreeMap<u64, String>,
    #[serde(skip)]
    path: PathBuf,
    /// Not a promise: what this life of the process was told.
    #[serde(skip)]
    voting_only: bool,
}

impl Identity {
    /// Who the member in this directory is; none if it never started.
    pub(super) fn load(
        directory: &MemberDirectory,
        settings: &PeersSettings,
    ) -> Result<Option<Self>, StoreError> {
        let path = directory.identity();
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| refuse(&format!("{}: {error}", path.display())))?,
        };
        let found: Self = serde_json::from_slice(&text)
            .map_err(|error| refuse(&format!("{} cannot be read: {error}", path.display())))?;
        if found.cluster != settings.cluster.as_str() {
            return Err(refuse(&format!(
                "{} belongs to a member of cluster {:?}, not {:?}: name another dir, or another cluster",
                path.display(),
                found.cluster,
                settings.cluster.as_str()
            )));
        }
        if let Some(me) = settings.me.as_ref().filter(|me| **me != found.address) {
            return Err(refuse(&format!(
                "{} belongs to the member {}, not {me}: name another dir, or remove and add the member",
                path.display(),
                found.address
            )));
        }
        Ok(Some(Self { path, voting_only: settings.voting_only, ..found }))
    }

    /// A member that starts for the first time.
    pub(super) fn create(
        directory: &MemberDirectory,
        settings: &PeersSettings,
        id: u64,
        address: &str,
    ) -> Result<Self, StoreError> {
        let identity = Self {
            cluster: settings.cluster.as_str().to_owned(),
            id,
            disk: format!("{:032x}", KernelEntropy.nonce()),
            address: address.to_owned(),
            seen: BTreeMap::new(),
            path: directory.identity(),
            voting_only: settings.voting_only,
        };
        identity.save()?;
        Ok(identity)
    }

    /// How this member shows who it is.
    pub(super) fn info(&self) -> MemberInfo {
        let disk = u128::from_str_radix(&self.disk, 16).unwrap_or_default();
        MemberInfo { id: self.id, disk, address: self.address.clone(), voting_only: self.voting_only }
    }

    /// Notes the disk of another member, on our own disk, before it is listened to. An error is that it has another.
    pub(super) fn note(&mut self, other: &MemberInfo) -> Result<(), StoreError> {
        let disk = format!("{:032x}", other.disk);
        match self.seen.get(&other.id) {
            Some(known) if *known == disk => Ok(()),
            Some(_) => Err(refuse(&lost_disk(&other.address))),
            None => {
                self.seen.insert(other.id, disk);
                self.save().inspect_err(|_| drop(self.seen.remove(&other.id)))
            }
        }
    }

    /// Whether a disk was ever seen under that id.
    pub(super) fn has_seen(&self, id: u64) -> bool {
        self.seen.contains_key(&id) || id == self.id
    }

    fn save(&self) -> Result<(), StoreError> {
        let text = serde_json::to_vec_pretty(self).expect("it is text and numbers");
        replace(&self.path, &text).map_err(|error| {
            let message = format!("{} cannot be written: {error}; is the disk full?", self.path.display());
            StoreError::not_applied(STORE, message).caused_by(error)
        })
    }
}

/// What to do about a member that came back with an empty disk.
pub(super) fn lost_disk(address: &str) -> String {
    format!(
        "{address} took part before with another disk, and what it promised there is lost: run `tenure peers remove \
         {address}` and `tenure peers add {address}`; then it is let in as a new member"
    )
}

#[cfg(test)]
mod tests {
    use std::fs::set_permissions;

    use super::*;

    #[test]
    fn under_one_id_there_is_only_ever_one_disk() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, super::super::trust::new_secret()).unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let url = format!("peers://a:1,b:2?secret-file={}", secret.display());
        let settings = PeersSettings::parse(&url).unwrap();
        let directory = MemberDirectory::take(&dir.path().join("member"), true).unwrap();
        assert!(Identity::load(&directory, &settings).unwrap().is_none());
        let mut identity = Identity::create(&directory, &settings, 5, "a:1").unwrap();
        let other = MemberInfo { id: 7, disk: 70, address: "b:2".to_owned(), voting_only: false };
        identity.note(&other).unwrap();
        let mut again = Identity::load(&directory, &settings).unwrap().unwrap();
        assert_eq!(again.info(), identity.info());
        again.note(&other).unwrap();
        let error = again.note(&MemberInfo { disk: 71, ..other }).unwrap_err();
        assert!(error.to_string().contains("peers add b:2"), "{error}");
        let elsewhere = PeersSettings::parse(&format!("{url}&cluster=other")).unwrap();
        assert!(Identity::load(&directory, &elsewhere).is_err());
        assert!(MemberDirectory::take(&dir.path().join("member"), true).is_err(), "one process at a time");
    }

    /// As root, also one that belongs to another user.
    #[test]
    fn a_directory_that_others_can_change_is_rejected_unless_told() {
        let place = tempfile::tempdir().unwrap();
        let (open, below) = (place.path().join("open"), place.path().join("open/member"));
        let chmod = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        std::fs::create_dir(&open).unwrap();
        chmod(&open, 0o777);
        for dir in [&open, &below] {
            let error = MemberDirectory::take(dir, true).unwrap_err().to_string();
            assert!(error.contains("every user") && error.contains("access=anyone"), "{error}");
            assert!(!dir.join("lock").exists(), "nothing was made in it");
            MemberDirectory::take(dir, false).unwrap();
        }
        chmod(&open, 0o1777);
        MemberDirectory::take(&below, true).expect("what is below a sticky one cannot be replaced");
        chmod(&open, 0o755);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&open, Some(65534), None).unwrap();
            let error = MemberDirectory::take(&open, true).unwrap_err().to_string();
            assert!(error.contains("user 65534"), "{error}");
        }
    }

    #[test]
    fn files_of_a_member_are_for_its_user_and_links_in_their_place_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (member, precious) = (place.path().join("member"), place.path().join("precious"));
        std::fs::create_dir(&member).unwrap();
        std::fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, member.join("lock")).unwrap();
        MemberDirectory::take(&member, false).expect_err("a link is not followed");
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        std::fs::remove_file(member.join("lock")).unwrap();
        std::fs::write(member.join("lock"), "").unwrap();
        set_permissions(member.join("lock"), Permissions::from_mode(0o644)).unwrap();
        let directory = MemberDirectory::take(&member, true).unwrap();
        for new in ["log.new", "member.new"] {
            std::os::unix::fs::symlink(&precious, member.join(new)).unwrap();
        }
        assert!(replace(&directory.identity(), b"x").is_err(), "nor when a file is replaced");
        assert!(super::super::file::Records::replace(&directory.log(), &[]).is_err());
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        for new in ["log.new", "member.new"] {
            std::fs::remove_file(member.join(new)).unwrap();
        }
        replace(&directory.identity(), b"x").unwrap();
        super::super::file::Records::replace(&directory.log(), &[]).unwrap();
        for file in ["lock", "log", "member.json"] {
            let mode = std::fs::metadata(member.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }
}
