//! Files that are nothing but a secret: tokens, the key of the certificate, keys of those who are notified.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Reads a file that belongs to this user or to root, and that no other user can read or write.
///
/// # Errors
/// Why it cannot be read or relied on, and what to do. No error shows the secret.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let (bytes, found) = tenure::trust::read(path)?;
    match found.mode() & 0o777 {
        mode if mode & 0o077 == 0 => Ok(bytes),
        mode => {
            let shown = path.display();
            Err(format!("{shown} has mode {mode:04o}: other users can read it; run `chmod 600 {shown}`"))
        }
    }
}

/// The same, as text.
///
/// # Errors
/// As [`read`], or if it is no text.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    String::from_utf8(read(path)?).map_err(|_| format!("{} is not UTF-8 text", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// The owner of the file with the tokens decides which clients may act.
    #[test]
    fn a_secret_that_belongs_to_another_user_is_rejected_even_by_root() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        std::fs::write(&file, "operator evil 0123456789abcdef").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert!(read_text(&file).is_ok());
        let readers: [fn(&Path) -> Option<String>; 2] = [
            |file| crate::http::tokens::Tokens::read(file).err(),
            |file| crate::http::serve::acceptor(Path::new("/dev/null"), file).err(),
        ];
        for mode in [0o640, 0o602] {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            for reader in readers {
                let why = reader(&file).unwrap();
                assert!(why.contains("chmod") && !why.contains("0123456789"), "{why}");
            }
        }
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(65534), None).unwrap();
            for reader in readers {
                let why = reader(&file).unwrap();
                assert!(why.contains("user 65534"), "{why}");
            }
        }
    }
}
