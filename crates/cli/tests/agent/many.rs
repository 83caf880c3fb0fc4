//! Ten thousand roles in one file: the agent starts, answers and leads them all.

use std::time::Duration;

use rustix::process::Signal;

use crate::kit::{Agent, Store, eventually};

#[test]
fn an_agent_with_ten_thousand_roles_starts_and_leads_them() {
    let names: String = (0..10_000).map(|index| format!("[[role]]\nname = \"r{index:05}\"\n")).collect();
    let store = Store::file();
    let agent = Agent::launch(&store, "a", &names, |command| _ = command.args(["--set", "timing.ttl=15s"]));
    assert_eq!(agent.get("/livez").status, 200);
    // A node does not campaign for ten thousand at once; that they become more is enough on a busy machine.
    let mut leading = 0.0;
    for _ in 0..10 {
        eventually("it leads more of them, or all", || {
            let now = agent.metric("tenure_leading").unwrap_or(0.0);
            let more = now > leading || now >= 10_000.0;
            leading = now.max(leading);
            more
        });
    }
    eventually("it leads them all", || agent.metric("tenure_leading") == Some(10_000.0));
    assert!(agent.leads("r04242"));
}

/// What happens to hundreds of roles at once is some lines and a count; a freeze raises no alarm where nothing was worked on.
#[test]
fn a_burst_is_one_line_and_a_freeze_without_work_is_no_alarm() {
    const ROLES: usize = 300;
    let names: String = (0..ROLES).map(|index| format!("[[role]]\nname = \"r{index:05}\"\n")).collect();
    let store = Store::file();
    let mut agent = Agent::hasty(&store, "a", &names);
    let led = || agent.metric("tenure_leading") == Some(ROLES as f64);
    eventually("it leads them all", led);
    let before = agent.token("r00042");
    agent.process.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(2));
    agent.process.signal(Signal::CONT);
    eventually("it has noticed, and leads them all again", || led() && agent.token("r00042") > before);
    eventually("the rest of both bursts is told", || {
        agent.log().matches("the same of more roles").count() >= 3
    });
    let log = agent.log();
    assert!(!log.contains("only the token protects"), "{log}");
    let single = log.lines().filter(|line| line.contains(" elected ")).count();
    assert!(single < ROLES / 2, "{single} lines of elections");
    // Those of its last moments are told too.
    let told = log.matches("the same of more roles").count();
    agent.process.signal(Signal::TERM);
    eventually("it has ended", || agent.process.ended().is_some());
    let log = agent.log();
    assert!(log.matches("the same of more roles").count() >= told + 2, "{log}");
}
