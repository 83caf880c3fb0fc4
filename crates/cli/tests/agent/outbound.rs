//! What an agent sends: to whom it was told, over no detour, and never where clouds keep their secrets.

use crate::duty::{calm, role, task, triggered};
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually, tenure, write_private};

const RARE: &str = "cron = \"30 2 1 1 *\"\n";
const SECRET: &str = ", headers = { x-key = \"hunter2\" }, body = \"{\\\"key\\\": \\\"hunter2\\\"}\"";

fn call(name: &str, url: &str) -> String {
    task(name, &format!("{RARE}http = {{ url = \"{url}\"{SECRET} }}\n"))
}

/// A command whose health is asked for at that URL; without a yes it never becomes ready.
fn work(url: &str) -> String {
    let health = format!("health = {{ http = \"{url}\", every = \"50ms\", within = \"10m\", failures = 1 }}");
    format!(
        "[[role]]\nname = \"checked\"\ncool-down = \"1h\"\n[[work]]\nname = \"w\"\nrole = \"checked\"\n{health}\n\
         command = [\"sleep\", \"600\"]\nready-within = \"10m\"\nrestart = \"never\"\n"
    )
}

fn led(store: &Store, config: &str, variables: &[(&str, &str)]) -> Agent {
    let agent = Agent::launch(store, "a", config, |command| {
        command.args(["--set", "timing.ttl=20s"]).envs(variables.iter().copied());
    });
    eventually("it leads", || agent.leads("jobs"));
    agent
}

#[test]
fn redirects_are_not_followed_and_never_to_another_origin() {
    let (store, first, thief) = (Store::file(), Hook::start(), Hook::start());
    first.redirect(&thief.url());
    let config = [role(""), call("call", &first.url()), work(&first.url())].concat();
    let config = config.replace("[[task]]\n", "[[task]]\nrole = \"jobs\"\n");
    for more in ["", "[outbound]\nredirects = \"same-origin\"\n"] {
        let agent = led(&store, &format!("{config}{more}"), &[]);
        let run = triggered(&agent, "call");
        assert_eq!(run["state"], "failed", "{run}");
        assert!(run["why"].as_str().unwrap().contains("307"), "{run}");
        eventually("the health check has come", || {
            first.all().iter().any(|told| told.head.starts_with("get /"))
        });
        agent.beats();
        assert_eq!(thief.all().len(), 0, "{more}: {:?}", thief.all());
    }
}

#[test]
fn redirects_within_one_origin_are_followed_if_that_is_said() {
    let (store, hook) = (Store::file(), Hook::start());
    hook.redirect("/elsewhere");
    let config = [role(""), call("call", &hook.url())].concat();
    let arrived = || hook.all().iter().any(|told| told.head.starts_with("post /elsewhere"));
    let agent = led(&store, &config, &[]);
    assert_eq!(triggered(&agent, "call")["state"], "failed");
    assert!(!arrived(), "none by default");
    drop(agent);
    let agent = led(&store, &format!("{config}[outbound]\nredirects = \"same-origin\"\n"), &[]);
    assert_eq!(triggered(&agent, "call")["state"], "succeeded");
    assert!(arrived());
}

#[test]
fn a_proxy_is_used_only_if_the_configuration_names_it() {
    let (store, hook, proxy) = (Store::file(), Hook::start(), Hook::start());
    let address = format!("http://127.0.0.1:{}", proxy.port());
    let variables =
        ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, address.as_str()));
    let config = [role(""), call("call", &hook.url()), work(&hook.url())].concat();
    let config = config.replace("[[task]]\n", "[[task]]\nrole = \"jobs\"\n");
    let agent = led(&store, &config, &variables);
    assert_eq!(triggered(&agent, "call")["state"], "succeeded");
    eventually("the health check has come", || hook.all().iter().any(|told| told.head.starts_with("get /")));
    assert_eq!(proxy.all().len(), 0, "from the environment: {:?}", proxy.all());
    drop(agent);

    // Only the proxy knows that name; this host is reached without it.
    let config = [role(""), call("far", "http://service.invalid/x"), call("near", &hook.url())].concat();
    let agent = led(&store, &format!("{config}[outbound]\nproxy = \"{address}\"\n"), &[]);
    assert_eq!(triggered(&agent, "far")["state"], "succeeded");
    assert_eq!(triggered(&agent, "near")["state"], "succeeded");
    let [asked] = &proxy.all()[..] else { panic!("{:?}", proxy.all()) };
    assert!(asked.head.contains("post http://service.invalid/x"), "{asked:?}");
}

/// Also in the clothes of an IPv6 address or of a number. Names are checked when they are resolved
/// (`a_name_that_leads_elsewhere_is_refused_when_it_is_resolved`).
#[test]
fn where_clouds_keep_their_secrets_nothing_is_sent() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tenure.toml");
    let checked = |config: &str| {
        write_private(&file, &format!("store = \"sqlite:x.db\"\n{config}"));
        let ran =
            tenure().current_dir(place.path()).args(["check", "--config", "tenure.toml"]).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    for address in [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fd00:ec2::23]",
        "[fd20:ce::254]",
        "168.63.129.16",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "2852039166",
        "0xa9fea9fe",
        "100.100.100.200",
    ] {
        for config in [
            [role(""), call("c", &format!("http://{address}/x"))].concat(),
            work(&format!("http://{address}/")),
        ] {
            let (code, said) = checked(&config);
            assert_eq!(code, Some(2), "{address}: {said}");
            assert!(said.contains("link-local") || said.contains("cloud metadata"), "{said}");
            let (code, said) = checked(&format!("{config}[outbound]\nlink-local = true\n"));
            assert_eq!(code, Some(0), "{address}: {said}");
        }
    }
}

/// A webhook that sends the agent on gets its refusal on record, and the place it named gets nothing.
#[test]
fn alerts_are_not_sent_on_either() {
    let (store, first, thief) = (Store::file(), Hook::start(), Hook::start());
    first.redirect(&thief.url());
    let config = format!(
        "{}[alerting]\ndefaults = false\ninterval = \"100ms\"\n[[alert]]\nname = \"x\"\ncondition = \"tenure_leading > 0\"\n\
         [[notify]]\nname = \"hook\"\nurl = \"{}\"\n[outbound]\nredirects = \"same-origin\"\n",
        role(""),
        first.url()
    );
    let agent = calm(&store, "a", &config);
    eventually("it was told", || !first.all().is_empty());
    agent.beats();
    assert_eq!(thief.all().len(), 0, "{:?}", thief.all());
}
