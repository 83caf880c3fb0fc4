//! Ten thousand roles in one file: the agent starts, answers and leads them all.

use crate::kit::{Agent, Store, eventually};

#[test]
fn an_agent_with_ten_thousand_roles_starts_and_leads_them() {
    let names: String = (0..10_000).map(|index| format!("[[role]]\nname = \"r{index:05}\"\n")).collect();
    let store = Store::file();
    let agent = Agent::launch(&store, "a", &names, |command| _ = command.args(["--set", "timing.ttl=15s"]));
    assert_eq!(agent.get("/livez").status, 200);
    // Nobody stands for ten thousand at once; that they become more is enough on a busy machine.
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
