//! What an agent believes and what it gives away: whose files it reads, and what its commands inherit.

use crate::duty::{Place, role, shell, task};
use crate::kit::{Agent, Store, eventually, tenure};

/// A command that notes the names of all variables it has, once.
fn listing(file: &std::path::Path, then: &str) -> String {
    let file = file.display();
    format!("env | cut -d= -f1 > {file}.new; mv {file}.new {file}; {then}")
}

fn secrets(command: &mut std::process::Command) {
    command.args(["--set", "timing.ttl=20s"]);
    for name in ["TENURE_AGENT_TOKEN", "TENURE_ANYTHING", "HOOK_KEY", "HOOK_URL", "HOME_MADE"] {
        command.env(name, "http://127.0.0.1:9/");
    }
}

/// Whether a work command, a health check and a task see a variable.
fn seen(name: &str, more: &str) -> [bool; 3] {
    let (store, place) = (Store::file(), Place::new());
    let [work, health, ticked] = ["work", "health", "task"].map(|name| place.file(name));
    let config = [
        role(""),
        format!("[[work]]\nname = \"w\"\n{}", shell(&listing(&work, "exec sleep 600"))),
        format!(
            "health = {{ {}, every = \"50ms\", within = \"10m\" }}\n",
            shell(&listing(&health, "true")).trim()
        ),
        task("t", &format!("every = \"1s\"\n{}", shell(&listing(&ticked, "true")))),
        "[[notify]]\nname = \"n\"\nurl-env = \"HOOK_URL\"\nkey-env = \"HOOK_KEY\"\n".to_owned(),
        more.to_owned(),
    ];
    let _agent = Agent::launch(&store, "a", &config.concat(), secrets);
    [work, health, ticked].map(|file| {
        eventually("it notes what it has", || file.exists());
        let names = std::fs::read_to_string(&file).unwrap();
        let has = |name: &str| names.lines().any(|line| line == name);
        assert!(has("HOME_MADE"), "what is not ours is left alone: {names}");
        for ours in ["TENURE_TOKEN", "TENURE_ROLE", "TENURE_NODE", "TENURE_SESSION"] {
            assert!(has(ours), "{ours}: {names}");
        }
        has(name)
    })
}

#[test]
fn commands_of_an_agent_inherit_no_secret_unless_told() {
    for secret in ["TENURE_AGENT_TOKEN", "TENURE_ANYTHING", "HOOK_URL", "HOOK_KEY"] {
        assert_eq!(seen(secret, ""), [false; 3], "{secret}");
    }
    let pass = "[children]\npass-env = [\"TENURE_ANYTHING\", \"HOOK_KEY\"]\n";
    assert_eq!(seen("TENURE_ANYTHING", pass), [true; 3]);
    assert_eq!(seen("HOOK_KEY", pass), [true; 3]);
    assert_eq!(seen("HOOK_URL", pass), [false; 3]);
}

/// How `agent --print-config` ends, and what it says.
fn printed(dir: &std::path::Path, args: &[&str]) -> (Option<i32>, String) {
    let done = tenure().current_dir(dir).args(["agent", "--print-config"]).args(args).output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn chmod(file: &std::path::Path, mode: u32) {
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_configuration_in_the_working_directory_is_read_only_when_named() {
    let place = Place::new();
    let file = place.file("tenure.toml");
    std::fs::write(&file, "[node]\nname = \"planted\"\n").unwrap();
    let dir = file.parent().unwrap();
    let (code, said) = printed(dir, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("planted") && said.contains("--config"), "it says that it did not: {said}");
    let (code, said) = printed(dir, &["--config", "tenure.toml"]);
    assert!(code == Some(0) && said.contains("planted"), "{said}");
}

#[test]
fn a_configuration_that_another_user_can_change_is_rejected() {
    let place = Place::new();
    let file = place.file("tenure.toml");
    std::fs::write(&file, "[node]\nname = \"planted\"\n").unwrap();
    let refused = |what: &str| {
        let (code, said) = printed(file.parent().unwrap(), &["--config", "tenure.toml"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("tenure.toml") && said.contains(what) && !said.contains("planted"), "{said}");
    };
    chmod(&file, 0o666);
    refused("every user of this host can write it");
    chmod(&file, 0o644);
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65534), Some(65534)).unwrap();
        refused("it belongs to user 65534");
    }
}

#[test]
fn a_configuration_with_secrets_that_every_user_can_read_is_rejected() {
    let place = Place::new();
    let file = place.file("tenure.toml");
    for (text, key) in [
        ("store = \"postgres://ann:hunter2@127.0.0.1/x\"", "store"),
        ("store = \"redis://:hunter2@127.0.0.1\"", "store"),
        ("[[notify]]\nname = \"n\"\nurl = \"http://127.0.0.1:9/hunter2\"", "notify[0].url"),
        (
            "[[role]]\nname = \"r\"\n[[task]]\nname = \"t\"\nevery = \"1h\"\nhttp.url = \"http://127.0.0.1:9/\"\n\
             http.headers = { authorization = \"hunter2\" }",
            "task[0].http.headers",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        chmod(&file, 0o644);
        let (code, said) = printed(file.parent().unwrap(), &["--config", "tenure.toml"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(key) && said.contains("chmod 600 tenure.toml"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        chmod(&file, 0o640);
        let (code, said) = printed(file.parent().unwrap(), &["--config", "tenure.toml"]);
        assert_eq!(code, Some(0), "{said}");
    }
    std::fs::write(&file, "store = \"postgres://ann@127.0.0.1/x\"").unwrap();
    chmod(&file, 0o644);
    assert_eq!(printed(file.parent().unwrap(), &["--config", "tenure.toml"]).0, Some(0), "no secret in it");
}
