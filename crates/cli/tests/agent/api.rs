//! The API from outside: who may ask what, and what comes of what cannot be.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kit::{Agent, Store, eventually, get, over_tcp, port, raw, tenure};

const ROLE: &str = "[[role]]\nname = \"job\"";
const READ: &str = "read-0123456789abcdef";
const ACT: &str = "operator-0123456789abcdef";

#[test]
fn what_is_wrong_is_named() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", &format!("{ROLE}\n[http]\nmax-body = 1000"));
    eventually("it leads", || agent.leads("job"));
    let long = format!("{{\"why\": \"{}\"}}", "x".repeat(2000));
    for (method, path, body, status, field) in [
        ("GET", "/v1/roles?limit=0", None, 400, "limit"),
        ("GET", "/v1/roles?limit=x", None, 400, "limit"),
        ("GET", "/v1/roles?after=a%20b", None, 400, "after"),
        ("GET", "/v1/roles?order=x", None, 400, "order"),
        ("GET", "/v1/roles/a%20b", None, 400, "role"),
        ("GET", "/v1/roles/missing", None, 404, "role"),
        ("GET", "/leader/missing", None, 404, "role"),
        ("GET", "/v1/history?role=%00", None, 400, "role"),
        ("POST", "/v1/roles/job/transfer", Some("{}"), 400, "to"),
        ("POST", "/v1/roles/job/transfer", Some("{\"to\": \"a b\"}"), 400, "to"),
        ("POST", "/v1/roles/job/transfer", Some("{\"to\": \"a\", \"who\": 1}"), 400, "who"),
        ("POST", "/v1/roles/job/transfer", Some("{\"to\": \"a\", \"at\": \"soon\"}"), 400, "at"),
        (
            "POST",
            "/v1/roles/job/transfer",
            Some("{\"to\": \"a\", \"at\": \"2001-01-01T00:00:00Z\"}"),
            400,
            "at",
        ),
        ("POST", "/v1/roles/job/step-down", Some("{\"wait\": \"5\"}"), 400, "wait"),
        ("POST", "/v1/roles/job/pause", Some("not json"), 400, "body"),
        ("POST", "/v1/roles/job/pause", Some("{} {}"), 400, "body"),
        ("POST", "/v1/roles/job/pause", Some("[]"), 400, "body"),
        ("POST", "/v1/roles/job/pause", Some("{\"why\": 5}"), 400, "why"),
        ("POST", "/v1/roles/job/resume", Some("{\"wait\": \"5s\"}"), 400, "wait"),
        ("POST", "/v1/roles/job/eligible", Some("{\"eligible\": \"yes\"}"), 400, "eligible"),
        ("POST", "/v1/campaign/job/ready", Some("{\"token\": -1}"), 400, "token"),
        ("DELETE", "/v1/roles/job/pin?who=x", None, 400, "who"),
        ("POST", "/v1/roles/job/pin", Some("{\"node\": \"\"}"), 400, "node"),
        ("POST", "/v1/roles/missing/eligible", Some("{\"eligible\": true}"), 404, ""),
        ("POST", "/v1/roles/missing/pause", Some("{}"), 404, ""),
        ("POST", "/v1/nodes/missing/drain", Some("{}"), 404, "node"),
        ("POST", "/v1/roles/job/transfer", Some("{\"to\": \"missing\"}"), 409, ""),
        ("DELETE", "/v1/roles/job/transfer", None, 404, ""),
        ("POST", "/v1/roles/job/pause", Some(&long), 413, ""),
        ("GET", "/nothing", None, 404, ""),
        ("PUT", "/v1/roles", None, 405, ""),
    ] {
        let answer = agent.ask(method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert!(answer.head.contains("application/problem+json"), "{method} {path}: {answer:?}");
        let problem = answer.json();
        assert_eq!(problem["field"].as_str().unwrap_or(""), field, "{method} {path}: {problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
    let plain =
        b"POST /v1/roles/job/pause HTTP/1.0\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(raw(UnixStream::connect(&agent.socket).unwrap(), plain).unwrap().status, 415);
}

#[test]
fn over_tcp_a_token_is_asked_for_and_strange_pages_are_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, format!("read {READ}\noperator ci {ACT}\n")).unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let http =
        format!("{ROLE}\n[http]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"me.test\"]\ntokens = {tokens:?}");
    let store = Store::file();
    let agent = Agent::start(&store, "a", &http);
    let port = port(&agent);
    let auth = |token: &str| format!("Host: localhost:{port}\r\nAuthorization: Bearer {token}\r\n");
    for (headers, status) in [
        (format!("Host: localhost:{port}\r\n"), 401),
        (auth("wrong-0123456789abcdef"), 401),
        (auth(READ), 200),
        (auth(ACT), 200),
        (auth(READ).replace("localhost", "127.0.0.1"), 200),
        (auth(READ).replace("localhost", "me.test"), 200),
        (auth(READ).replace("localhost", "evil.test"), 421),
        (format!("Authorization: Bearer {READ}\r\n"), 421),
        (format!("{}Origin: http://localhost:{port}\r\n", auth(READ)), 200),
        (format!("{}Origin: http://evil.test\r\n", auth(READ)), 403),
        (format!("{}Origin: null\r\n", auth(READ)), 403),
    ] {
        let answer = over_tcp(port, &get("/v1/cluster", &headers));
        assert_eq!(answer.status, status, "{headers}: {answer:?}");
        assert!(answer.head.contains("content-security-policy: default-src 'none'"), "{answer:?}");
        assert!(!answer.head.contains("access-control") && !answer.head.contains("set-cookie"), "{answer:?}");
        assert!(!answer.body.contains("0123456789abcdef"));
    }
    eventually("it stands", || agent.leads("job"));
    let body = "{\"eligible\":true}";
    for (token, status) in [(READ, 403), (ACT, 200)] {
        let (headers, length) = (auth(token), body.len());
        let head =
            format!("POST /v1/roles/job/eligible HTTP/1.0\r\n{headers}Content-Type: application/json\r\n");
        let answer = over_tcp(port, &format!("{head}Content-Length: {length}\r\n\r\n{body}"));
        assert_eq!(answer.status, status, "{answer:?}");
    }
    assert!(!agent.log().contains("0123456789abcdef"));
}

#[test]
fn on_loopback_without_tokens_one_may_look_but_not_act_and_not_too_often() {
    let http = format!("{ROLE}\n[http]\nlisten = [\"127.0.0.1:0\"]\nrate = 20\nstreams-per-client = 2");
    let store = Store::file();
    let agent = Agent::start(&store, "a", &http);
    let port = port(&agent);
    let answer = over_tcp(port, &get("/v1/campaign/job", "Host: localhost\r\n"));
    assert_eq!(answer.status, 403, "{answer:?}");
    let asked = |path: &str| over_tcp(port, &get(path, "Host: localhost\r\n")).status;
    let statuses: Vec<u16> = (0..200).map(|_| asked("/v1/cluster")).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    let probes: Vec<u16> = (0..50).map(|_| asked("/livez")).collect();
    assert!(probes.iter().all(|status| *status == 200), "a probe is never refused: {probes:?}");

    let (_one, _two) = (agent.stream("/v1/events", None), agent.stream("/v1/events", None));
    eventually("the third stream is refused", || agent.get("/v1/events").status == 429);
}

#[test]
fn over_tls_the_agent_answers_and_in_clear_it_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key, tokens) = (dir.path().join("cert"), dir.path().join("key"), dir.path().join("tokens"));
    let mut openssl = std::process::Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]);
    openssl.args(["-subj", "/CN=localhost", "-keyout"]).arg(&key).arg("-out").arg(&cert);
    assert!(openssl.output().unwrap().status.success());
    std::fs::write(&tokens, format!("read {READ}\n")).unwrap();
    for file in [&key, &tokens] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let http = format!(
        "{ROLE}\n[http]\nlisten = [\"127.0.0.1:0\"]\ntls-cert = {cert:?}\ntls-key = {key:?}\ntokens = {tokens:?}"
    );
    let store = Store::file();
    let agent = Agent::start(&store, "a", &http);
    let port = port(&agent);
    let mut curl = std::process::Command::new("curl");
    curl.args(["-sS", "--cacert"]).arg(&cert).arg("-H").arg(format!("Authorization: Bearer {READ}"));
    let ran = curl.arg(format!("https://localhost:{port}/v1/cluster")).output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stdout).contains("\"health\""), "{ran:?}");
    assert_eq!(over_tcp(port, &get("/livez", "Host: localhost\r\n")).status, 0, "not HTTP in clear");
}

#[test]
fn events_go_on_where_they_were() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", ROLE);
    eventually("it leads", || agent.leads("job"));
    let mut stream = agent.stream("/v1/events?role=job", None);
    assert_eq!(agent.post("/v1/roles/job/pause", &json!({ "why": "x" })).status, 200);
    let paused = stream.until("paused");
    let id = paused["id"].as_str().unwrap().to_owned();
    drop(stream);
    // What comes and goes between two looks is not told.
    eventually("it is seen", || agent.role("job")["state"] == "paused");
    assert_eq!(agent.post("/v1/roles/job/resume", &json!({ "why": "x" })).status, 200);
    eventually("it leads", || agent.leads("job"));
    let mut back = agent.stream("/v1/events", Some(&id));
    assert_eq!(back.until("resumed")["role"], "job");
    assert_eq!(agent.stream("/v1/events", Some("0-1")).next()["event"], "missed");
}

#[test]
fn with_many_roles_pages_are_small_and_metrics_are_added_up() {
    let names: String = (0..300).map(|index| format!("[[role]]\nname = \"r{index:03}\"\n")).collect();
    let store = Store::file();
    let agent = Agent::start(&store, "a", &format!("{names}[metrics]\nroles = 100"));
    eventually("it leads them all", || agent.metric("tenure_leading") == Some(300.0));
    eventually("they are seen", || agent.get("/v1/cluster").json()["roles"]["led"] == 300);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = agent.get(&format!("/v1/roles?limit=70{after}")).json();
        seen.extend(
            page["roles"].as_array().unwrap().iter().map(|role| role["role"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen.len(), 300);
    assert!(seen.is_sorted());
    assert_eq!(agent.get("/v1/roles?search=r29").json()["total"], 10);
    assert_eq!(agent.get("/v1/history?limit=5").json()["tenures"].as_array().unwrap().len(), 5);
    assert_eq!(agent.metric("tenure_is_leader"), None, "not for each of so many");
}

/// An operator who asks again at once sees what was done, and not what was before.
#[test]
fn the_next_answer_shows_what_an_operator_did() {
    let store = Store::file();
    let (a, b) = (Agent::start(&store, "a", ROLE), Agent::start(&store, "b", ROLE));
    eventually("one leads", || a.leads("job") || b.leads("job"));
    eventually("both stand", || a.role("job")["candidates"].as_array().is_some_and(|line| line.len() == 1));
    for _ in 0..5 {
        let before = a.token("job");
        assert_eq!(a.post("/v1/roles/job/pause", &json!({ "why": "x" })).status, 200);
        let paused = a.role("job");
        assert_eq!((&paused["state"], &paused["leader"]), (&json!("paused"), &json!(null)), "{paused}");
        let mut resume = tenure();
        let resumed =
            resume.arg("--agent").arg(&a.socket).args(["resume", "job", "--format", "json"]).output();
        let resumed: Value = serde_json::from_slice(&resumed.unwrap().stdout).unwrap();
        assert!(resumed["token"].as_u64() > Some(before), "token {before} led before the pause: {resumed}");
        assert_eq!(a.role("job")["paused"], json!(null));
        for (node, pinned) in [("a", json!("a")), ("b", json!("b"))] {
            assert_eq!(a.post("/v1/roles/job/pin", &json!({ "node": node, "why": "x" })).status, 200);
            assert_eq!(a.role("job")["pinned"], pinned);
        }
        assert_eq!(a.ask("DELETE", "/v1/roles/job/pin", None).status, 200);
        assert_eq!(a.role("job")["pinned"], json!(null));
        eventually("one leads", || a.leads("job") || b.leads("job"));
        eventually("a sees it", || a.role("job")["state"] == "led");
    }
    assert_eq!(a.post("/v1/nodes/b/drain", &json!({ "why": "x" })).status, 200);
    let nodes = a.get("/v1/nodes").json();
    let b = nodes["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "b").unwrap();
    assert!(!b["drained"].is_null(), "{b}");
}

#[test]
fn a_drained_node_gives_up_and_a_pinned_role_stays() {
    let store = Store::file();
    let (a, b) = (Agent::start(&store, "a", ROLE), Agent::start(&store, "b", ROLE));
    eventually("one leads", || a.leads("job") || b.leads("job"));
    eventually("both stand", || a.role("job")["candidates"].as_array().is_some_and(|line| line.len() == 1));
    assert_eq!(a.post("/v1/roles/job/pin", &json!({ "node": "b", "why": "x" })).status, 200);
    eventually("b leads", || b.leads("job"));
    assert_eq!(a.ask("DELETE", "/v1/roles/job/pin", None).status, 200);
    eventually("b is seen", || a.get("/v1/nodes").json()["total"] == 2);
    assert_eq!(a.post("/v1/nodes/b/drain", &json!({ "why": "x" })).status, 200);
    eventually("a leads", || a.leads("job"));
    assert_eq!(a.ask("DELETE", "/v1/nodes/b/drain", None).status, 200);
    assert_eq!(a.post("/v1/roles/job/eligible", &json!({ "eligible": false, "why": "x" })).status, 200);
    eventually("b leads", || b.leads("job"));
    let acts: Vec<_> =
        a.get("/v1/audit").json()["entries"].as_array().unwrap().iter().map(|d| d["act"].clone()).collect();
    assert_eq!(acts, ["pin", "unpin", "drain", "undrain", "ineligible"]);

    // Later: kept in mind, carried out, and cancelled.
    let at = |seconds| (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string();
    assert_eq!(a.post("/v1/roles/job/eligible", &json!({ "eligible": true })).status, 200);
    eventually("a stands", || a.role("job")["candidates"][0] == "a");
    let later = a.post("/v1/roles/job/transfer", &json!({ "to": "a", "why": "x", "at": at(3600) }));
    assert_eq!(later.status, 202, "{later:?}");
    assert_eq!(a.ask("DELETE", "/v1/roles/job/transfer", None).status, 200);
    let soon = a.post("/v1/roles/job/transfer", &json!({ "to": "a", "why": "x", "at": at(2) }));
    assert_eq!(soon.status, 202, "{soon:?}");
    eventually("a leads", || a.leads("job"));
    let far = a.post("/v1/roles/job/transfer", &json!({ "to": "b", "at": at(32 * 24 * 3600) }));
    assert_eq!((far.status, far.json()["field"].as_str()), (400, Some("at")), "{far:?}");
}

/// A client that does not finish what it began is not waited for.
#[test]
fn a_client_that_dawdles_is_cut_off() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", &format!("{ROLE}\n[http]\nrequest-timeout = \"3s\""));
    let send = |bytes: &[u8]| raw(UnixStream::connect(&agent.socket).unwrap(), bytes).unwrap();
    // Half a head: the connection is closed, with an answer or without.
    let answer = send(b"GET /livez HTTP/1.1\r\nHost: local");
    assert!([0, 408].contains(&answer.status), "{answer:?}");
    let half = b"POST /v1/roles/job/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Connection: close\r\nContent-Length: 100\r\n\r\n{";
    let answer = send(half);
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!(answer.head.contains("application/problem+json"), "{answer:?}");
}

/// Whatever comes in, the agent answers the next request.
#[test]
fn nothing_that_comes_in_harms_it() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", &format!("{ROLE}\n[http]\nrequest-timeout = \"30s\""));
    let paths = [
        "/v1/roles",
        "/v1/roles/job",
        "/v1/nodes",
        "/v1/history",
        "/v1/roles/job/transfer",
        "/v1/roles/job/pause",
        "/v1/roles/job/pin",
        "/v1/nodes/a/drain",
        "/v1/campaign/job/ready",
        "/v1/alerts",
        "/v1/alerts/no-leader/silence",
        "/v1/alerts/no-leader/acknowledge",
        "/leader/job",
        "/metrics",
    ];
    let request = (
        prop::sample::select(vec!["GET", "POST", "DELETE", "HEAD", "OPTIONS", "X"]),
        prop::sample::select(paths.to_vec()),
        "[ -~]{0,40}",
        prop::collection::vec(any::<u8>(), 0..200),
        any::<bool>(),
    );
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 150, ..ProptestConfig::default() });
    let ran = runner.run(&request, |(method, path, query, body, honest)| {
        let length = if honest { body.len() } else { body.len() / 2 };
        let query = query.replace(' ', "+");
        let head = format!("{method} {path}?{query} HTTP/1.0\r\nContent-Type: application/json\r\n");
        let mut bytes = format!("{head}Content-Length: {length}\r\n\r\n").into_bytes();
        bytes.extend_from_slice(&body);
        let answer = raw(UnixStream::connect(&agent.socket).unwrap(), &bytes).unwrap();
        // An agent that does not lead, or not yet, says so with 503.
        let no = path == "/leader/job" && answer.status == 503;
        prop_assert!(answer.status < 500 || no, "{answer:?}");
        Ok(())
    });
    ran.unwrap();
    for garbage in [&b"\0\0\0\0"[..], b"GET", b"GET / HTTP/9.9\r\n\r\n", &[b'a'; 100_000], b"\r\n\r\n\r\n"] {
        let mut stream = UnixStream::connect(&agent.socket).unwrap();
        let _ = stream.write_all(garbage);
    }
    assert_eq!(agent.get("/livez").status, 200);
}
