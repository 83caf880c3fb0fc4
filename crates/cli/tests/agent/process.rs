//! How the agent starts, reloads, tells its manager, and ends.

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use rustix::process::Signal;

use crate::kit::{Agent, PATIENCE, Store, eventually, tenure, write_private};

const ROLE: &str = "[[role]]\nname = \"job\"\n";

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenure.toml");
    for (text, part) in [
        ("[timing]\ntll = \"1s\"", "tenure.toml:2: unknown key timing.tll; did you mean ttl?"),
        ("[role]\nname = \"a\"", "use [[role]] instead of [role]"),
        ("[http]\nlisten = [\"0.0.0.0:7654\"]", "set http.tokens"),
        ("store = \"memory:\"", "cannot use memory: it lives in one process"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ran =
            tenure().current_dir(dir.path()).args(["agent", "--config", "tenure.toml"]).output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{text}: {err}");
        assert!(err.contains(part), "{text}: {err}");
    }
}

#[test]
fn the_configuration_that_counts_is_printed_with_its_origins() {
    let dir = tempfile::tempdir().unwrap();
    let text = "store = \"redis://u:hunter2@h/0\"\n[node]\nname = \"a\"\n";
    write_private(&dir.path().join("tenure.toml"), text);
    let mut command = tenure();
    command.current_dir(dir.path()).env("TENURE_TTL", "3s");
    command.args(["agent", "--config", "tenure.toml", "--print-config", "--role", "x"]);
    let ran = command.output().unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    for part in ["node.name = \"a\"  # tenure.toml:3", "timing.ttl = \"3s\"  # TENURE_TTL", "# command line"]
    {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(!out.contains("hunter2"), "{out}");
}

#[test]
fn a_reload_changes_what_can_change_and_says_what_cannot() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", ROLE);
    eventually("it leads", || agent.leads("job"));
    agent.rewrite(&store, "b", &format!("{ROLE}eligible = false\n[[role]]\nname = \"new\""));
    agent.process.signal(Signal::HUP);
    eventually("it gives up one and takes the other", || !agent.leads("job") && agent.leads("new"));
    eventually("it says so", || agent.log().contains("node.name needs a restart to change"));
    agent.rewrite(&store, "a", "[[role]]\nnmae = \"x\"");
    agent.process.signal(Signal::HUP);
    eventually("what is wrong changes nothing", || agent.log().contains("did you mean name?"));
    assert!(agent.leads("new"));
}

#[test]
fn a_log_that_is_not_read_holds_nothing_up() {
    let store = Store::file();
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let names: String = (0..100).map(|index| format!("[[role]]\nname = \"r{index}\"\n")).collect();
    let agent = Agent::launch_into(&store, "a", &names, Some(Stdio::from(writer)), |command| {
        command.env("TENURE_LOG", "trace").args(["--set", "timing.ttl=1s"]);
    });
    eventually("it leads them all", || agent.metric("tenure_leading") == Some(100.0));
    let beats = agent.metric("tenure_beat_seconds_count").unwrap();
    eventually("it goes on beating", || agent.metric("tenure_beat_seconds_count").unwrap() > beats + 10.0);
    eventually("it leads them all", || agent.metric("tenure_leading") == Some(100.0));
    assert_eq!(agent.get("/livez").status, 200);
    // It was more than the pipe holds, or this shows nothing.
    let mut text = vec![0; 4096];
    (&reader).read_exact(&mut text).unwrap();
}

/// A rolling restart is no series of fail-overs, and no operator is paged for it.
#[test]
fn a_leader_that_stops_in_order_hands_over_and_one_that_dies_fails_over() {
    let store = Store::file();
    // A ttl so long that a busy machine costs no node a role.
    let slow = |command: &mut std::process::Command| _ = command.args(["--set", "timing.ttl=10s"]);
    let mut agents = ["a", "b", "c"].map(|name| Agent::launch(&store, name, ROLE, slow));
    let counted = |agent: &Agent, what: &str| agent.metric(&format!("tenure_{what}")).unwrap_or(0.0);
    for (round, signal) in [Signal::TERM, Signal::KILL].into_iter().enumerate() {
        let mut leader = None;
        eventually("all see that a node leads", || {
            let mut there =
                agents.iter_mut().filter_map(|agent| agent.process.ended().is_none().then_some(&*agent));
            there.all(|agent| agent.role("job")["state"] == "led")
        });
        eventually("a node leads", || {
            leader =
                agents.iter_mut().position(|agent| agent.process.ended().is_none() && agent.leads("job"));
            leader.is_some()
        });
        let dying = &mut agents[leader.unwrap()];
        dying.process.signal(signal);
        eventually("it ends", || dying.process.ended().is_some());
        let left: Vec<&Agent> = agents
            .iter_mut()
            .filter_map(|agent| agent.process.ended().is_none().then_some(&*agent))
            .collect();
        eventually("another leads", || left.iter().any(|agent| agent.leads("job")));
        let of_all = |what: &str| left.iter().map(|agent| counted(agent, what)).sum::<f64>();
        eventually("all saw how", || {
            of_all("handover_seconds_count") + of_all("failover_seconds_count")
                == (left.len() * (round + 1)) as f64
        });
        let failovers = if signal == Signal::KILL { left.len() as f64 } else { 0.0 };
        assert_eq!(of_all("failover_seconds_count"), failovers, "after {signal:?}");
        assert_eq!(of_all("failovers_total"), failovers.min(1.0), "after {signal:?}");
    }
}

#[test]
fn the_service_manager_is_told() {
    let (store, dir) = (Store::file(), tempfile::tempdir().unwrap());
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut agent = Agent::launch(&store, "a", ROLE, |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    });
    let hear = |wanted: &str| loop {
        let mut text = [0; 100];
        let length = manager.recv(&mut text).unwrap_or_else(|error| panic!("{wanted}: {error}"));
        if &text[..length] == wanted.as_bytes() {
            return;
        }
    };
    hear("READY=1");
    hear("WATCHDOG=1");
    hear("WATCHDOG=1");
    agent.process.signal(Signal::HUP);
    hear("RELOADING=1");
    agent.process.signal(Signal::TERM);
    hear("STOPPING=1");
    let mut ended = None;
    eventually("it ends", || {
        ended = agent.process.ended();
        ended.is_some()
    });
    assert_eq!(ended, Some(0), "{}", agent.log());
    assert!(!agent.socket.exists());
}

/// While the store is gone no node leads for longer than a lease, and everything that looks says so; afterwards all is as
/// before.
#[test]
fn a_store_that_is_gone_is_seen_everywhere() {
    let store = Store::redis();
    let Store::Redis(server) = &store else { return };
    let agent = Agent::hasty(&store, "a", ROLE);
    eventually("it leads", || agent.leads("job") && agent.get("/readyz").status == 200);
    server.signal(Signal::STOP);
    eventually("it doubts", || agent.metric("tenure_in_doubt") == Some(1.0) || !agent.leads("job"));
    eventually("it does not lead", || !agent.leads("job"));
    assert_eq!(agent.metric("tenure_is_leader{role=\"job\"}"), Some(0.0));
    assert_eq!(agent.metric("tenure_lease_remaining_seconds{role=\"job\"}"), Some(0.0));
    eventually("it is not ready", || agent.get("/readyz").status == 503);
    assert_eq!(agent.get("/livez").status, 200, "the loop is alive");
    assert_eq!(agent.get("/v1/cluster").json()["health"], "unhealthy");
    assert!(agent.metric("tenure_cluster_view_age_seconds").unwrap() > 1.0);
    assert!(agent.metric("tenure_store_errors_total").unwrap() > 0.0);
    server.signal(Signal::CONT);
    eventually("it leads again", || agent.leads("job") && agent.get("/readyz").status == 200);
    assert!(agent.metric("tenure_doubts_total").unwrap() >= 1.0);
    eventually("all is well", || agent.get("/v1/cluster").json()["health"] == "healthy");
    assert!(agent.metric("tenure_elections_total{role=\"job\"}").unwrap() >= 2.0);
}
