//! Keys of `[alerting]`, `[[alert]]` and `[[notify]]`, in agents that run: who is told, how, and how often.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::duty::Place;
use crate::hook::{Hook, Told};
use crate::kit::{Agent, Store, eventually};

const JOB: &str = "[[role]]\nname = \"job\"\n";

/// A file that only its owner can read.
fn secret(place: &Place, name: &str, text: &str) -> PathBuf {
    let file = place.file(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// An alert that fires as soon as anything is led, with more to say.
fn alert(name: &str, more: &str) -> String {
    format!("[[alert]]\nname = \"{name}\"\ncondition = \"tenure_leading > 0\"\n{more}\n")
}

fn notify(name: &str, more: &str) -> String {
    format!("[[notify]]\nname = \"{name}\"\n{more}\n")
}

/// Waits until a target was told something like that.
fn until_told(hook: &Hook, wanted: impl Fn(&Told) -> bool) -> Told {
    let mut found = None;
    eventually("a target is told", || {
        found = hook.all().into_iter().find(&wanted);
        found.is_some()
    });
    found.unwrap()
}

fn shown(agent: &Agent, name: &str) -> Value {
    let all = agent.get("/v1/alerts").json();
    let found = all["alerts"].as_array().unwrap().iter().find(|alert| alert["alert"] == name).cloned();
    found.unwrap_or_default()
}

#[test]
fn a_named_target_is_told_in_its_own_way() {
    let (store, place) = (Store::file(), Place::new());
    let hooks = [(); 7].map(|()| Hook::start());
    let [usual, by_file, by_env, chat, pager, keyed, scraped] = &hooks;
    let (url_file, key_file) = (secret(&place, "url", &by_file.url()), secret(&place, "key", "R0UT1NG"));
    let scraped_url = scraped.url();
    let config = [
        JOB.to_owned(),
        "[alerting]\ninterval = \"200ms\"\ndefaults = false\nnotify = [\"usual\"]\n".to_owned(),
        format!("scrape = [\"{scraped_url}\"]\nscrape-token = {key_file:?}\n"),
        notify("usual", &format!("url = \"{}\"", usual.url())),
        notify("by-file", &format!("url-file = {url_file:?}")),
        notify("by-env", "url-env = \"HOOK_URL\""),
        notify("chat", &format!("kind = \"slack\"\nurl = \"{}\"\nchannel = \"#ops\"", chat.url())),
        notify("pager", &format!("kind = \"pagerduty\"\nurl = \"{}\"\nkey-file = {key_file:?}", pager.url())),
        notify("keyed", &format!("url = \"{}\"\nkey-env = \"HOOK_KEY\"", keyed.url())),
        alert("default", ""),
        alert(
            "named",
            "notify = [\"by-file\", \"by-env\", \"chat\", \"pager\", \"keyed\"]\nseverity = \"critical\"",
        ),
    ]
    .concat();
    let agent = Agent::launch(&store, "a", &config, |command| {
        command.env("HOOK_URL", by_env.url()).env("HOOK_KEY", "t0k3n");
    });
    let told = until_told(usual, |told| told.body["alert"] == "default");
    assert_eq!(told.body["severity"], "warning", "{told:?}");
    for hook in [by_file, by_env] {
        assert_eq!(until_told(hook, |_| true).body["severity"], "critical");
    }
    assert_eq!(until_told(chat, |_| true).body["channel"], "#ops");
    assert_eq!(until_told(pager, |_| true).body["routing_key"], "R0UT1NG");
    assert!(until_told(keyed, |_| true).head.contains("authorization: bearer t0k3n"));
    assert!(until_told(scraped, |_| true).head.contains("authorization: bearer r0ut1ng"));
    assert!(usual.all().iter().all(|told| told.body["alert"] == "default"), "only whom it names");
    assert!(!agent.log().contains("R0UT1NG") && !agent.log().contains("t0k3n"));
}

#[test]
fn alerts_are_told_when_and_as_often_as_they_say() {
    let (store, other, hook) = (Store::file(), Store::file(), Hook::start());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = format!("url = \"http://{}/\"", silent.local_addr().unwrap());
    let config = [
        notify("hook", &format!("url = \"{}\"", hook.url())),
        notify("hasty", &format!("{mute}\ntimeout = \"200ms\"")),
        notify("patient", &format!("{mute}\ntimeout = \"1h\"")),
        alert("once", "notify = [\"hook\"]\ncool-down = \"0s\"\nrepeat = \"0s\"\nsummary = \"{value} led\""),
        alert("again", "notify = [\"hook\"]\ncool-down = \"0s\"\nrepeat = \"100ms\""),
        alert("cooling", "notify = [\"hook\"]\ncool-down = \"1h\"\nrepeat = \"100ms\""),
        alert("later", "notify = [\"hook\"]\nfor = \"1h\""),
        alert("unheard", "notify = [\"hasty\", \"patient\"]"),
    ]
    .concat();
    let every =
        |interval: &str| format!("{JOB}[alerting]\ninterval = \"{interval}\"\ndefaults = false\n{config}");
    let (agent, seldom) =
        (Agent::start(&store, "a", &every("200ms")), Agent::start(&other, "b", &every("1h")));
    eventually("both lead", || agent.leads("job") && seldom.leads("job"));
    eventually("repeat: it is told again and again", || hook.heard("again", "firing") >= 3);
    eventually("the others are told", || {
        hook.heard("once", "firing") >= 1 && hook.heard("cooling", "firing") >= 1
    });
    agent.beats();
    assert_eq!((hook.heard("once", "firing"), hook.heard("cooling", "firing")), (1, 1), "repeat, cool-down");
    assert_eq!(
        (hook.heard("later", "firing"), &shown(&agent, "later")["state"]),
        (0, &json!("pending")),
        "for"
    );
    until_told(&hook, |told| told.body["summary"] == "1 led");
    until_told(&hook, |told| told.body["summary"] == "tenure_leading > 0");
    let told = |target: &str| {
        let told = shown(&agent, "unheard")["deliveries"].as_array().cloned().unwrap_or_default();
        told.into_iter().find(|told| told["target"] == target)
    };
    eventually("timeout: one gives up waiting", || {
        told("hasty").is_some_and(|told| told["error"].is_string())
    });
    assert_eq!(told("patient"), None, "and the other does not");
    let node = |told: &Told| told.body["node"] == "b";
    assert!(!hook.all().iter().any(node), "interval: it has not looked yet");
}
