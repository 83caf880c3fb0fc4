//! Keys of `[http]` that no other test changes.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::kit::{Agent, PATIENCE, Store, eventually, raw, try_ask};

const ROLE: &str = "[[role]]\nname = \"job\"\n";

#[test]
fn what_is_open_at_once_is_limited_as_it_is_said() {
    let http = "[http]\nsocket-mode = \"0660\"\nconnections = 3\nstreams = 1\nevents-kept = 1\n";
    let store = Store::file();
    let agent = Agent::start(&store, "a", &format!("{ROLE}{http}"));
    let mode = std::fs::metadata(&agent.socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660, "socket-mode");
    eventually("it leads", || agent.leads("job"));
    eventually("it is seen", || agent.role("job")["state"] == "led");

    let mut stream = agent.stream("/v1/events", None);
    eventually("streams: there is one", || agent.get("/v1/events").status == 429);
    assert_eq!(agent.post("/v1/roles/job/pause", &json!({ "why": "x" })).status, 200);
    let id =
        std::iter::repeat_with(|| stream.next()).find_map(|event| Some(event["id"].as_str()?.to_owned()));
    drop(stream);
    // The first event of this life of the agent is long gone.
    let first = format!("{}-1", id.unwrap().rsplit_once('-').unwrap().0);
    eventually("events-kept: what came between is gone", || {
        try_stream(&agent, &first).is_some_and(|text| text.contains("missed"))
    });

    let asks = |path: &str| try_ask(&agent.socket, "GET", path, None).map_or(0, |answer| answer.status);
    eventually("it answers", || asks("/v1/cluster") == 200);
    let open: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(&agent.socket).unwrap()).collect();
    eventually("connections: there are three", || asks("/v1/cluster") == 429);
    assert_eq!(asks("/livez"), 200, "how it is can always be asked");
    drop(open);
    eventually("it answers again", || asks("/v1/cluster") == 200);
}

/// The first event of a stream that goes on after that one, if there may be another stream.
fn try_stream(agent: &Agent, last: &str) -> Option<String> {
    let mut wire = UnixStream::connect(&agent.socket).ok()?;
    wire.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(wire, "GET /v1/events HTTP/1.0\r\nHost: localhost\r\nLast-Event-ID: {last}\r\n\r\n").ok()?;
    let (mut text, mut some) = (String::new(), [0; 4096]);
    while !text.contains("data:") {
        match wire.read(&mut some).ok()? {
            0 => return None,
            length => text.push_str(&String::from_utf8_lossy(&some[..length])),
        }
    }
    Some(text)
}

/// A client that begins and does not go on is answered when the time is over, which otherwise is as long as this would wait.
#[test]
fn a_request_takes_no_longer_than_it_may() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", &format!("{ROLE}[http]\nrequest-timeout = \"600ms\"\n"));
    let half =
        b"POST /v1/roles/job/pause HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    let answer = raw(UnixStream::connect(&agent.socket).unwrap(), half).unwrap();
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!(answer.body.contains("600ms"), "{answer:?}");
}
