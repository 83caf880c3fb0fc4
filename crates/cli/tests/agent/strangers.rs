//! Clients that take more than their share: others are let in all the same.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::kit::{Agent, Store, eventually, get, over_tcp, port, tcp, tenure};

const ROLE: &str = "[[role]]\nname = \"job\"\nmode = \"campaign\"\n[http]\nlisten = [\"127.0.0.1:0\"]\nloopback = \"operator\"\n";

/// As many streams of events as this client is given.
fn hog(port: u16) -> Vec<TcpStream> {
    let mut open = Vec::new();
    loop {
        let mut stream = tcp(port);
        stream.write_all(get("/v1/events", "Host: localhost\r\n").as_bytes()).unwrap();
        let mut status = [0; 12];
        if stream.read_exact(&mut status).is_err() || !status.ends_with(b"200") {
            return open;
        }
        open.push(stream);
    }
}

fn probe(agent: &Agent, what: &str) -> bool {
    probe_at(agent.socket.to_str().unwrap(), what)
}

fn probe_at(place: &str, what: &str) -> bool {
    tenure().args(["probe", what, "--agent", place]).output().unwrap().status.success()
}

/// One who takes every stream it can get does not keep another's campaign out, nor a probe.
#[test]
fn one_clients_streams_keep_no_other_out() {
    let store = Store::file();
    let limits = "streams = 64\nstreams-per-client = 64\nconnections = 256\n";
    let agent = Agent::start(&store, "a", &format!("{ROLE}{limits}"));
    let port = port(&agent);
    let taken = hog(port);
    assert!((32..64).contains(&taken.len()), "most of them, and not all: {}", taken.len());
    let mut campaign = agent.stream("/v1/campaign/job", None);
    campaign.until("elected");
    assert!(probe(&agent, "live") && probe(&agent, "ready"));
    assert_eq!(over_tcp(port, &get("/livez", "Host: localhost\r\n")).status, 200);
    drop(taken);
}

/// Connections on which nothing is said, as many as there may be and more.
#[test]
fn connections_that_say_nothing_keep_no_client_out() {
    let store = Store::file();
    let limits = "connections = 80\nconnections-per-client = 60\nrequest-timeout = \"30m\"\n";
    let agent = Agent::start(&store, "a", &format!("{ROLE}{limits}"));
    let port = port(&agent);
    let silent: Vec<TcpStream> = (0..400).map(|_| tcp(port)).collect();
    agent.stream("/v1/campaign/job", None).until("elected");
    assert!(probe(&agent, "live") && probe(&agent, "ready"));
    assert!(probe_at(&format!("http://127.0.0.1:{port}"), "live"), "as one of the client that has too many");
    for path in ["/livez", "/leader/job"] {
        let answer = over_tcp(port, &get(path, "Host: localhost\r\n"));
        assert!([200, 503].contains(&answer.status), "{answer:?}");
    }
    let refused = over_tcp(port, &get("/v1/cluster", "Host: localhost\r\n"));
    assert_eq!(refused.status, 429, "{refused:?}");
    drop(silent);
    eventually("there is room again", || {
        over_tcp(port, &get("/v1/cluster", "Host: localhost\r\n")).status == 200
    });
}

/// A client that begins no handshake counts too, and goes first when there are too many.
#[test]
fn a_handshake_needs_a_permit() {
    let store = Store::file();
    let tls = crate::tokens::Tls::new();
    let limits = "connections = 80\nconnections-per-client = 60\nrequest-timeout = \"30m\"\n";
    let agent = Agent::start(
        &store,
        "a",
        &format!("{ROLE}{limits}{}", tls.keys()).replace("loopback = \"operator\"\n", ""),
    );
    let port = port(&agent);
    let silent: Vec<TcpStream> = (0..400).map(|_| tcp(port)).collect();
    let is_open = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let mut stream = stream;
        matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    eventually("no more are kept than there may be", || {
        silent.iter().filter(|stream| is_open(stream)).count() <= 80 + 64
    });
    assert_eq!(tls.curl(port, "/livez", "").0, "200");
}

/// A client that does nothing but handshakes costs a bounded share of the processor. Those that say nothing are not counted.
#[test]
fn handshakes_of_one_client_are_bounded() {
    let (store, tls) = (Store::file(), crate::tokens::Tls::new());
    let keys = format!("{ROLE}{}", tls.keys()).replace("loopback = \"operator\"\n", "");
    let agent = Agent::start(&store, "a", &keys);
    let port = port(&agent);
    let silent: Vec<TcpStream> = (0..200).map(|_| tcp(port)).collect();
    let (began, done) = (Instant::now(), tls.handshakes(port, 4));
    // Fifty at once, and fifty in each second.
    let most = 50.0 * (1.0 + began.elapsed().as_secs_f64());
    assert!(done > 0 && f64::from(done) <= most, "{done} of {most}");
    assert_eq!(tls.curl(port, "/livez", "").0, "200");
    drop(silent);
}

/// A client that asks for what takes long, over many connections and without reading an answer, waits for itself: probes are
/// answered, and the client that leads gets its renewals.
#[test]
fn one_clients_requests_wait_for_each_other_and_not_others_for_them() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", ROLE);
    let port = port(&agent);
    let mut campaign = agent.stream("/v1/campaign/job", None);
    let token = campaign.until("elected")["token"].clone();
    let mut greedy = Vec::new();
    for path in ["/openapi.json", "/v1/history", "/metrics"] {
        let requests = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(50);
        greedy.extend((0..80).map(|_| {
            let mut stream = tcp(port);
            stream.write_all(requests.as_bytes()).unwrap();
            stream
        }));
    }
    for _ in 0..3 {
        assert!(probe(&agent, "live") && probe_at(&format!("http://127.0.0.1:{port}"), "live"));
        assert_eq!(campaign.until("renewed")["token"], token, "it leads on");
    }
    drop(greedy);
}

/// A client that connects and says nothing, or falls silent after an answer, is cut off.
#[test]
fn a_client_that_says_nothing_is_cut_off() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", &format!("{ROLE}request-timeout = \"3s\"\n"));
    let port = port(&agent);
    let mut silent = tcp(port);
    let mut idle = tcp(port);
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    for stream in [&mut silent, &mut idle] {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut text = Vec::new();
        let closed = stream.read_to_end(&mut text);
        assert!(closed.is_ok(), "{closed:?}");
    }
}

/// What the system allows is known, said, and enough for those who lead.
#[test]
fn limits_follow_from_the_open_files_that_the_system_allows() {
    let store = Store::file();
    let agent = Agent::launch(&store, "a", ROLE, |command| {
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -n 400; exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        limited.current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        *command = limited;
    });
    let port = port(&agent);
    let limits = agent.get("/v1/cluster").json()["limits"].clone();
    assert_eq!(limits["open_files"], 400, "{limits}");
    let connections = limits["connections"].as_u64().unwrap();
    assert!((1..200).contains(&connections), "{limits}");
    assert!(agent.log().contains("open_files=400"), "{}", agent.log());
    let silent: Vec<TcpStream> = (0..500).map(|_| tcp(port)).collect();
    agent.stream("/v1/campaign/job", None).until("elected");
    assert!(probe(&agent, "live"));
    assert!(!agent.log().contains("Too many open files"), "{}", agent.log());
    drop(silent);
}
