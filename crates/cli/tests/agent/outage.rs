//! What agents say is what happened, on every store whose server most machines have; `tests/rare_stores` has the others.

use tenure_torture::servers::free_port;

use crate::kit::{Agent, Store, eventually, tenure};
use crate::outage_kit::{ALL, TestStore, run_steps};

#[test]
fn what_agents_on_redis_say_is_what_happened() {
    run_steps(TestStore::on(Store::redis()), ALL);
}

#[test]
fn what_agents_on_postgres_say_is_what_happened() {
    run_steps(TestStore::on(Store::postgres()), ALL);
}

#[test]
fn what_agents_on_mariadb_say_is_what_happened() {
    run_steps(TestStore::on(Store::mysql()), ALL);
}

#[test]
fn what_agents_on_peers_say_is_what_happened() {
    run_steps(TestStore::peers(), ALL);
}

#[test]
fn what_agents_on_a_file_say_is_what_happened() {
    run_steps(TestStore::on(Store::file()), ALL);
}

/// An agent says how it is without waiting for its store.
#[test]
fn an_agent_answers_while_its_store_is_not_up_yet() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}/0");
    let agent = Agent::start(&Store::Beyond(url.clone()), "a", "[[role]]\nname = \"job\"\n");
    assert_eq!(agent.get("/livez").status, 200);
    eventually("it says for what it waits", || agent.log().contains("waiting for the store"));
    let ready = agent.get("/readyz");
    assert!(ready.status == 503 && ready.body.contains("has not been reached yet"), "{ready:?}");
    let status = tenure().arg("--agent").arg(&agent.socket).arg("status").output().unwrap();
    let why = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(status.status.code() == Some(122) && why.contains("has not reached its store yet"), "{why}");
    let mut hasty = tenure();
    hasty.args(["--store", &url, "agent", "--node", "b", "--set", "timing.store-timeout=300ms", "--socket"]);
    let hasty = hasty.arg(agent.socket.with_extension("b")).output().unwrap();
    assert_eq!(hasty.status.code(), Some(122), "store-timeout: {hasty:?}");
    let _server = tenure_torture::servers::redis::start_in(
        tenure_torture::servers::scratch(),
        port,
        tenure_torture::servers::redis::DURABLE,
    );
    eventually("it leads", || agent.leads("job"));
    eventually("and is ready", || agent.get("/readyz").status == 200);
}

/// Redis without persistence is flushed: the token must not fall, and people must hear of it.
#[test]
fn a_store_that_forgets_raises_an_alert_and_is_not_healthy() {
    let server = tenure_torture::servers::redis::start(tenure_torture::servers::redis::FORGETFUL);
    let url = format!("redis://127.0.0.1:{}/0", server.port());
    let more = "[alerting]\ninterval = \"200ms\"\n[[role]]\nname = \"job\"\n";
    let agent = Agent::hasty(&Store::Beyond(url), "a", more);
    eventually("it leads", || agent.leads("job") && agent.role("job")["state"] == "led");
    let token = agent.token("job");
    let state = || {
        let alerts = agent.get("/v1/alerts").json();
        let found =
            alerts["alerts"].as_array().unwrap().iter().find(|alert| alert["alert"] == "store-forgot");
        found.unwrap()["state"].clone()
    };
    eventually("it has been evaluated", || state() == "inactive");
    assert_eq!(agent.metric("tenure_store_forgot_total"), Some(0.0));
    tenure_torture::servers::redis::command(server.address(), &["FLUSHALL"]);
    eventually("the alert fires", || state() == "firing");
    let cluster = agent.get("/v1/cluster").json();
    assert_eq!(cluster["health"], "unhealthy", "{cluster}");
    assert!(cluster["why"].to_string().contains("lost acknowledged writes"), "{cluster}");
    eventually("it leads again, with a later token", || agent.token("job") > token);
    assert!(agent.metric("tenure_store_forgot_total") >= Some(1.0));
}
