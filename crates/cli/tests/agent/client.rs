//! Whom a command asks: what was named last in this order wins: the usual store, `TENURE_STORE`, the usual socket,
//! `TENURE_AGENT`, `--agent`, `--store`.

use std::os::unix::fs::symlink;

use crate::kit::{Agent, Store, eventually, tenure};

#[test]
fn commands_ask_what_was_named() {
    let (here, there) = (Store::file(), Store::file());
    let ours = Agent::start(&here, "a", "[[role]]\nname = \"ours\"");
    let theirs = Agent::start(&there, "b", "[[role]]\nname = \"theirs\"");
    eventually("both are led", || {
        ours.role("ours")["state"] == "led" && theirs.role("theirs")["state"] == "led"
    });
    let (agent, other, store) =
        (ours.socket.display().to_string(), theirs.socket.display().to_string(), there.url());
    // Where commands look for an agent when none is named.
    let (usual, nowhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(usual.path().join("tenure")).unwrap();
    symlink(&ours.socket, usual.path().join("tenure/agent.sock")).unwrap();
    let asked = |args: &[&str], variables: &[(&str, &str)], runtime: &tempfile::TempDir| {
        let mut command = tenure();
        command.env_remove("RUNTIME_DIRECTORY").env("XDG_RUNTIME_DIR", runtime.path());
        let ran = command.args(args).arg("status").envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{args:?} {variables:?}: {text}");
        match (text.contains("ours"), text.contains("theirs")) {
            (true, false) => "ours",
            (false, true) => "theirs",
            _ => panic!("{args:?} {variables:?}: {text}"),
        }
    };
    let both = [("TENURE_AGENT", agent.as_str()), ("TENURE_STORE", store.as_str())];
    let stored = [("TENURE_STORE", store.as_str())];
    assert_eq!(asked(&["--store", &store], &both, &usual), "theirs", "always the store");
    assert_eq!(asked(&["--agent", &other], &both, &usual), "theirs");
    assert_eq!(asked(&[], &both, &nowhere), "ours");
    assert_eq!(asked(&[], &stored, &usual), "ours", "the usual socket");
    assert_eq!(asked(&[], &stored, &nowhere), "theirs");
}
