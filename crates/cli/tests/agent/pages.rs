//! A page in the operator's browser, and another user of this host: what neither can do to those who lead.

use serde_json::json;

use crate::browser::{Browser, Size};
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually, get, over_tcp, port, raw};

const OPEN: &str = "[[role]]\nname = \"job\"\nmode = \"campaign\"\n[http]\nlisten = [\"127.0.0.1:0\"]\nloopback = \"operator\"\n";

/// What browsers say of themselves, and what they are told.
#[test]
fn pages_of_other_origins_are_refused_everywhere() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", OPEN);
    let port = port(&agent);
    let host = format!("Host: localhost:{port}\r\n");
    for (more, status) in [
        ("", 200),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", 403),
        ("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("Origin: http://evil.test\r\n", 403),
        ("Host: evil.test\r\n", 400),
    ] {
        for path in ["/v1/cluster", "/metrics", "/livez", "/leader/job", "/v1/events?role=%00", "/nothing"] {
            let answer = over_tcp(port, &get(path, &format!("{host}{more}")));
            let fine = ![400, 403].contains(&answer.status) || (path.contains("events") && status == 200);
            assert_eq!(fine, status == 200, "{path} {more}: {answer:?}");
            assert!(fine || answer.status == status, "{path} {more}: {answer:?}");
        }
    }
    // A link to the page may stand anywhere: the page itself holds nothing, and cannot be framed.
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: ";
    let page = |dest: &str| over_tcp(port, &get("/", &format!("{host}{link}{dest}\r\n"))).status;
    assert_eq!((page("document"), page("iframe")), (200, 403));
    // Two names, or one in the first line that is another than the one below it.
    let two = get("http://evil.test/v1/cluster", &host);
    assert_eq!(over_tcp(port, &two).status, 400);
    let twice = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let stream = std::os::unix::net::UnixStream::connect(&agent.socket).unwrap();
    assert_eq!(raw(stream, twice).unwrap().status, 400, "also through the socket");
}

/// What load balancers and Prometheus ask needs no more than before.
#[test]
fn campaigning_needs_a_header_that_no_simple_request_has() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", OPEN);
    let port = port(&agent);
    let host = format!("Host: localhost:{port}\r\n");
    for headers in [host.clone(), format!("{host}Accept: text/event-stream\r\nContent-Type: text/plain\r\n")]
    {
        let refused = over_tcp(port, &get("/v1/campaign/forged", &headers));
        assert_eq!(refused.status, 400, "{refused:?}");
        assert_eq!(refused.json()["field"], "Tenure-Request", "{refused:?}");
    }
    agent.beats();
    assert_eq!(agent.get("/v1/roles/forged").status, 404);
    for path in ["/leader/job", "/metrics", "/readyz"] {
        assert_ne!(over_tcp(port, &get(path, &host)).status, 400, "{path}");
    }
}

/// A real browser, with a real page of another origin in it that asks for a role.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_elsewhere_creates_no_role() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", OPEN);
    let (port, elsewhere) = (port(&agent), Hook::start());
    let browser = Browser::open(&elsewhere.url(), Size::Desktop).await;
    let asks = format!(
        "window.asked = 0;
         const there = 'http://127.0.0.1:{port}/v1/campaign/forged';
         const image = new Image(); image.onerror = () => window.asked++; image.src = there;
         new EventSource(there).onerror = () => window.asked++;
         fetch(there, {{ mode: 'no-cors' }}).finally(() => window.asked++);
         fetch(there, {{ headers: {{ 'Tenure-Request': 'true' }} }}).finally(() => window.asked++);"
    );
    browser.run(&asks).await;
    browser.until("window.asked >= 4").await;
    browser.close().await;
    agent.beats();
    assert_eq!(agent.get("/v1/roles/forged").status, 404, "{}", agent.log());
}

/// The same user, the same address, and the right token of the tenure, which every client can read: not enough.
#[test]
fn only_the_stream_that_leads_can_say_that_it_is_ready() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", OPEN);
    let (mut stream, mut other) =
        (agent.stream("/v1/campaign/job", None), agent.stream("/v1/campaign/job", None));
    let (standing, beside) = (stream.until("standing"), other.until("standing"));
    let elected = stream.until("elected");
    let (token, id) = (elected["token"].clone(), elected["campaign"].clone());
    let ready = |body: &serde_json::Value| agent.post("/v1/campaign/job/ready", body);
    assert_eq!(ready(&json!({ "token": token })).status, 400, "the stream is not named");
    assert!(id.as_str().is_some_and(|id| id.len() >= 32), "{elected}");
    assert!(standing["campaign"] == id && beside["campaign"] != id, "{standing} {beside}");
    for wrong in
        [beside["campaign"].clone(), json!(""), json!("0".repeat(32)), json!(&id.as_str().unwrap()[1..])]
    {
        let refused = ready(&json!({ "token": token, "campaign": wrong }));
        assert_eq!(
            (refused.status, refused.json()["field"].as_str()),
            (404, Some("campaign")),
            "{refused:?}"
        );
    }
    stream.until("renewed");
    assert!(agent.leads("job"));
    eventually("it is seen", || agent.token("job") == token);
    for path in ["/v1/roles/job", "/v1/cluster", "/v1/audit", "/v1/history", "/metrics"] {
        assert!(!agent.get(path).body.contains(id.as_str().unwrap()), "{path} tells it");
    }
    assert!(!agent.log().contains(id.as_str().unwrap()));
    assert_eq!(ready(&json!({ "token": token, "campaign": id })).status, 200);
    stream.until("lost");
}
