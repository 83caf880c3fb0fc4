//! `peers`: a group of three members that only store, looked at and changed from outside.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::{CommandOutput, PATIENCE, bare, ran};

/// Members as processes. Dropping them kills them.
struct Members {
    dir: tempfile::TempDir,
    addresses: Vec<String>,
    children: Vec<Child>,
}

impl Members {
    fn of(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, tenure::store::Peers::new_secret()).unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let ports = (0..count).map(|_| tenure_torture::servers::free_port());
        let addresses = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        let mut members = Self { dir, addresses, children: Vec::new() };
        for nth in 0..count {
            let url = members.member_url(nth);
            let mut command = bare(&["peers", "serve", "--store", &url]);
            members.children.push(command.stderr(Stdio::null()).spawn().unwrap());
        }
        members
    }

    fn url(&self) -> String {
        let secret = self.dir.path().join("secret");
        format!("peers://{}?secret-file={}&timeout=20s", self.addresses.join(","), secret.display())
    }

    fn member_url(&self, nth: usize) -> String {
        format!(
            "{}&me={}&dir={}",
            self.url(),
            self.addresses[nth],
            self.dir.path().join(nth.to_string()).display()
        )
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        ran(bare(args).env("TENURE_STORE", self.url()).output().unwrap())
    }

    /// Waits until the list of members is as it should be.
    fn until(&self, wanted: impl Fn(&[Value]) -> bool) {
        let begun = Instant::now();
        loop {
            let listed = self.run(&["peers", "list", "--format", "json"]);
            let found: Value = serde_json::from_str(&listed.out).unwrap_or_default();
            if found["members"].as_array().is_some_and(|members| wanted(members)) {
                return;
            }
            assert!(begun.elapsed() < 2 * PATIENCE, "{listed:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn members_are_listed_added_and_removed_and_stop_when_told() {
    let mut members = Members::of(3);
    members.until(|found| {
        found.len() == 3
            && found.iter().all(|member| member["votes"] == true && member["reached"] == true)
            && found.iter().filter(|member| member["leads"] == true).count() == 1
    });
    let listed = members.run(&["peers", "list"]);
    assert!(
        listed.out.contains("leads the group") && listed.out.contains(&members.addresses[0]),
        "{listed:?}"
    );
    let ran = members.run(&["doctor"]);
    assert!(ran.out.contains("A: ") && ran.out.contains("Raft group of 3"), "{ran:?}");
    // A member's own URL gives a client: its address is in use, and that is no matter.
    let status = bare(&["status", "--store", &members.member_url(0)]).output().unwrap();
    assert_eq!(status.status.code(), Some(0), "{status:?}");
    let added = members.run(&["peers", "add", "127.0.0.1:1"]);
    assert!(added.code == Some(0) && added.out.contains("me=127.0.0.1:1"), "{added:?}");
    members.until(|found| found.len() == 4 && found.iter().any(|member| member["votes"] == false));
    let removed = members.run(&["peers", "remove", "127.0.0.1:1"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    members.until(|found| found.len() == 3);
    let again = members.run(&["peers", "remove", "127.0.0.1:1"]);
    assert!(again.code == Some(122) && again.err.contains("is not a member"), "{again:?}");
    let mut first = members.children.remove(0);
    kill_process(Pid::from_raw(i32::try_from(first.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_no_group_of_peers_has_no_members() {
    let ran = ran(bare(&["peers", "list", "--store", "memory:x"]).output().unwrap());
    assert!(ran.code == Some(2) && ran.err.contains("peers://"), "{ran:?}");
}
