//! What is shown, logged and sent by commands: nothing that others wrote moves a cursor, and no secret comes out.

use std::process::Output;

use serde_json::{Value, json};

use crate::duty::{calm, shell};
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually, tenure, write_private};

const WILD: &str = "x\u{9b}2J\u{1b}]0;mine\u{7}\u{202e}\u{2028}\u{7f}\ntenure: all is well";

fn run(args: &[&str], variables: &[(&str, &str)]) -> Output {
    tenure().args(args).envs(variables.iter().copied()).output().unwrap()
}

/// Whether a terminal would find anything in it to obey.
fn is_tame(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    !text.chars().any(|c| (c.is_control() && c != '\n') || ['\u{202e}', '\u{2028}'].contains(&c))
}

/// An operator's reason, as it comes out of every command.
#[test]
fn what_others_wrote_is_printed_and_not_obeyed() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", "[[role]]\nname = \"job\"");
    eventually("it leads", || agent.leads("job"));
    assert_eq!(agent.post("/v1/roles/job/pause", &json!({ "why": WILD })).status, 200);
    let socket = agent.socket.to_str().unwrap();
    for args in [&["audit"][..], &["audit", "--format", "json"], &["status"], &["status", "--format", "json"]]
    {
        let ran = run(&[args, &["--agent", socket]].concat(), &[]);
        assert!(is_tame(&ran.stdout) && is_tame(&ran.stderr), "{args:?}: {ran:?}");
        assert!(!String::from_utf8_lossy(&ran.stdout).contains("\ntenure:"), "{args:?}: {ran:?}");
    }
    assert!(is_tame(agent.log().as_bytes()), "{:?}", agent.log());
    let ran = run(&["audit", "--format", "json", "--agent", socket], &[]);
    let entries: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(entries.to_string().contains('\u{9b}'), "it means the same: {entries}");
    for path in ["/v1/roles", "/v1/audit"] {
        let answer = agent.get(path);
        assert!(is_tame(answer.body.as_bytes()), "{path}: {:?}", answer.body);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        assert!(answer.json().to_string().contains('\u{9b}'), "{path}: it means the same");
    }
}

/// What a command says on stderr stands in the agent's log, and could hide or forge what comes after it.
#[test]
fn what_a_command_says_is_logged_and_not_obeyed() {
    let said = r"\033[8m\033[30;40mhidden\033]0;mine\007\rtenure: all is well\n\tsecond line\n";
    let script = format!("printf '{said}' >&2; sleep 1000");
    let more =
        format!("[[role]]\nname = \"job\"\n[[work]]\nname = \"w\"\nrole = \"job\"\n{}", shell(&script));
    let store = Store::file();
    let agent = calm(&store, "a", &more);
    eventually("it has said it", || agent.log().contains("second line"));
    let log = agent.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("work w: ")).collect();
    assert!(is_tame(lines.join("\n").as_bytes()), "{lines:?}");
    assert!(lines.len() == 2 && lines[0].ends_with("tenure: all is well"), "{lines:?}");
}

/// The agent that this host has, beside a store that may be another one's.
#[test]
fn doctor_shows_how_much_the_agent_has_room_for() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", "[http]\nconnections-per-client = 77");
    let ran = |format: &str| {
        let args = ["doctor", "--store", &store.url(), "--format", format];
        let ran = run(&args, &[("TENURE_AGENT", agent.socket.to_str().unwrap())]);
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let limits = agent.get("/v1/cluster").json()["limits"].clone();
    let found: Value = serde_json::from_str(&ran("json")).unwrap();
    assert_eq!((&found["agent"], &limits["connections_per_client"]), (&limits, &json!(77)));
    let (shown, files) = (ran("pretty"), limits["open_files"].to_string());
    assert!(shown.contains("(77 of one client)") && shown.contains(&files), "{shown}");
}

/// An agent that lies, and says so with more than words.
#[test]
fn what_an_agent_says_is_one_message() {
    let hook = Hook::start();
    hook.say(409, &json!({ "detail": WILD }));
    let address = format!("http://127.0.0.1:{}", hook.port());
    let ran = run(&["status", "--agent", &address], &[]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.starts_with("tenure: x"), "{said:?}");
    assert!(is_tame(&ran.stderr) && said.trim_end().lines().count() == 1, "{said:?}");
}

#[test]
fn the_configuration_is_printed_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[[role]]\nname = \"jobs\"\n[[task]]\nname = \"t\"\nevery = \"1h\"\nhttp = { url = \"https://h.test/HUNTER2\", \
                  headers = { x-key = \"HUNTER2\" }, body = \"HUNTER2\" }\n[outbound]\nproxy = \"http://u:HUNTER2@proxy:1\"\n";
    for store in [
        "postgres://u:HUN?HUNTER2@db/t",
        "postgres://u:HUN/HUNTER2@db/t",
        "mysql://u:p@db/t?x=@HUNTER2",
        "postgres://u:HUNTER2@db/plain",
    ] {
        write_private(&dir.path().join("tenure.toml"), config);
        let mut command = tenure();
        command.current_dir(dir.path()).env("TENURE_STORE", store);
        let ran = command.args(["agent", "--config", "tenure.toml", "--print-config"]).output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(!text.contains("HUN"), "{store}: {text}");
        assert!(!store.ends_with("plain") || text.contains("http.body = \"…\""), "{text}");
    }
}

/// `0.0.0.0` reaches this host, but is not its loopback address.
#[test]
fn a_token_is_sent_in_clear_only_within_this_host() {
    let hook = Hook::start();
    hook.say(200, &json!({ "namespace": "default" }));
    let token = [("TENURE_AGENT_TOKEN", "token-0123456789abcdef")];
    let (far, near) =
        (format!("http://0.0.0.0:{}", hook.port()), format!("http://127.0.0.1:{}", hook.port()));
    let refused = run(&["status", "--agent", &far], &token);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), hook.all().len()), (Some(2), 0), "{said}");
    assert!(said.contains("--allow-plaintext-token") && said.contains("https://"), "{said}");
    let seen =
        || hook.all().iter().filter(|told| told.head.contains("bearer token-0123456789abcdef")).count();
    run(&["status", "--agent", &near], &token);
    let near = seen();
    assert!(near > 0, "{:?}", hook.all());
    run(&["status", "--agent", &far, "--allow-plaintext-token"], &token);
    assert!(seen() > near, "{:?}", hook.all());
    run(&["status", "--agent", &far], &[]);
    assert!(
        hook.all().last().is_some_and(|told| !told.head.contains("bearer")),
        "without one nothing is secret"
    );
}
