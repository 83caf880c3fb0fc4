//! What API servers seldom say, said by one that follows a script: too many requests, lists that are forgotten, watches that are
//! too old, lag or are cut, failures after a write.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::{Epoch, Fate, Kind, Kubernetes, Outcome, Query, Retry, Signal, Store, Value, Version};

use crate::server_kit::{get, heard, key, name, put, soon};

/// What it was asked: method, path, token, body.
type Asked = (String, String, String, String);
/// What it says: a status, further headers, and a body; a body without an end stays open.
type Answer = (u16, &'static str, String);

/// An API server that says what `say` makes of each question and of how many came before it.
struct Scripted {
    asked: Arc<Mutex<Vec<Asked>>>,
    dir: tempfile::TempDir,
    port: u16,
}

impl Scripted {
    fn start(say: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, say) = (Arc::new(Mutex::new(Vec::new())), Arc::new(say));
        let seen = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, say) = (seen.clone(), say.clone());
                std::thread::spawn(move || serve(&stream, &seen, &*say));
            }
        });
        Self { asked, dir: tempfile::tempdir().unwrap(), port }
    }

    fn open(&self, parameters: &str) -> Kubernetes {
        let (config, token) = (self.dir.path().join("config"), self.token_file());
        if !token.exists() {
            std::fs::write(&token, "first\n").unwrap();
        }
        let text = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{}'}}}}], \
             users: [{{name: u, user: {{tokenFile: token}}}}]}}",
            self.port
        );
        std::fs::write(&config, text).unwrap();
        Kubernetes::open(&format!("kubernetes:x?kubeconfig={}&{parameters}", config.display())).unwrap()
    }

    fn token_file(&self) -> std::path::PathBuf {
        self.dir.path().join("token")
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, seen: &Mutex<Vec<Asked>>, say: &dyn Fn(&Asked, usize) -> Answer) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let mut words = line.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (mut length, mut token) = (0, String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok().filter(|read| *read > 0)?;
            let header = header.trim().to_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
            if let Some(value) = header.strip_prefix("authorization: bearer ") {
                token = value.to_owned();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let asked = (method, path, token, String::from_utf8(body).ok()?);
        let nth = {
            let mut seen = seen.lock().unwrap();
            seen.push(asked.clone());
            seen.len() - 1
        };
        let (status, headers, body) = say(&asked, nth);
        let mut stream = stream;
        if asked.1.contains("watch=true") && status == 200 {
            write!(stream, "HTTP/1.1 200 OK\r\n\r\n{body}").ok()?;
            if headers == "end" {
                return None;
            }
            // Until the client has enough of it.
            let _ = reader.read(&mut [0]);
            return None;
        }
        write!(stream, "HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
            .ok()?;
    }
}

fn status(code: u16, reason: &str) -> String {
    format!("{{\"kind\":\"Status\",\"code\":{code},\"reason\":\"{reason}\",\"message\":\"{reason}\"}}")
}

/// What a real server makes of a Lease: it gets a revision and a uid.
fn kept(lease: &str, revision: u64) -> String {
    lease.replace(
        "\"metadata\":{",
        &format!("\"metadata\":{{\"resourceVersion\":\"{revision}\",\"uid\":\"u\","),
    )
}

fn list(revision: u64, more: &str, items: &[String]) -> String {
    format!(
        "{{\"metadata\":{{\"resourceVersion\":\"{revision}\",\"continue\":\"{more}\"}},\"items\":[{}]}}",
        items.join(",")
    )
}

fn is_watch(asked: &Asked) -> bool {
    asked.1.contains("watch=true")
}

/// Refused for its load, the server is left alone for as long as it asks, and asked again.
#[tokio::test]
async fn too_many_requests_are_waited_for_and_proven_not_applied() {
    let server = Scripted::start(|asked, nth| match nth {
        0 => (429, "Retry-After: 1\r\n", status(429, "TooManyRequests")),
        1 => (201, "", kept(&asked.3, 5)),
        _ => (429, "Retry-After: 60\r\n", status(429, "TooManyRequests")),
    });
    let store = server.open("timeout=20s");
    let space = name("space");
    let outcomes = store.write(&space, &[put(&key(Kind::Node, "n"), None, "x")]).await.unwrap();
    assert!(matches!(outcomes[0], Outcome::Applied), "{outcomes:?}");
    let outcomes = store.write(&space, &[put(&key(Kind::Node, "m"), None, "x")]).await.unwrap();
    let Outcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Soon), "{error}");
    assert!(error.to_string().contains("priority and fairness"), "{error}");
}

/// A token that is replaced in its file is used at once when the one before is refused.
#[tokio::test]
async fn a_token_that_is_replaced_is_read_again() {
    let server = Scripted::start(|asked, _| match asked.2.as_str() {
        "second" => (404, "", status(404, "NotFound")),
        _ => (401, "", status(401, "Unauthorized")),
    });
    let store = server.open("");
    let space = name("space");
    let query = Query { keys: vec![key(Kind::Node, "n")], kinds: Vec::new() };
    let error = store.read(&space, &query).await.unwrap_err();
    assert!(error.to_string().contains("token") && error.retry() == Retry::Soon, "{error}");
    std::fs::write(server.token_file(), "second\n").unwrap();
    assert_eq!(store.read(&space, &query).await.unwrap(), Vec::new());
    let tokens: Vec<_> = server.asked().into_iter().map(|asked| asked.2).collect();
    assert_eq!(tokens, ["first", "first", "second"]);
}

/// What failed on the server's side may have been written; it is not sent again, and the next write tells.
#[tokio::test]
async fn failures_after_a_write_are_unknown_and_nothing_is_sent_twice() {
    for code in [500, 503, 504] {
        let server = Scripted::start(move |_, _| (code, "", status(code, "InternalError")));
        let store = server.open("");
        let outcomes = store.write(&name("s"), &[put(&key(Kind::Node, "n"), None, "x")]).await.unwrap();
        let Outcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
        assert_eq!(error.fate(), Fate::Unknown, "{error}");
        assert_eq!(server.asked().len(), 1, "{:?}", server.asked());
    }
}

/// A beat is one request: what an answer said of a Lease is what the next write shows, uid and revision.
#[tokio::test]
async fn a_beat_is_one_request_that_names_the_very_state_it_replaces() {
    let server = Scripted::start(|asked, nth| match asked.0.as_str() {
        "POST" => (201, "", kept(&asked.3, 5)),
        _ => (
            200,
            "",
            asked.3.replace(
                &format!("\"resourceVersion\":\"{}\"", nth + 4),
                &format!("\"resourceVersion\":\"{}\"", nth + 5),
            ),
        ),
    });
    let store = server.open("");
    let space = name("s");
    let mut last = None;
    for _ in 0..3 {
        let write = put(&key(Kind::Node, "n"), last, "x");
        let outcomes = store.write(&space, std::slice::from_ref(&write)).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Applied), "{outcomes:?}");
        last = write.put.map(|(version, _)| version);
    }
    let asked = server.asked();
    let methods: Vec<_> = asked.iter().map(|asked| asked.0.as_str()).collect();
    assert_eq!(methods, ["POST", "PUT", "PUT"]);
    assert!(asked[2].3.contains("\"resourceVersion\":\"6\",\"uid\":\"u\""), "{}", asked[2].3);
}

/// A list whose rest was forgotten begins anew, and nothing is in it twice.
#[tokio::test]
async fn a_list_that_is_forgotten_halfway_begins_anew() {
    let leases: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = leases.clone();
    let server = Scripted::start(move |asked, nth| {
        if asked.0 == "POST" {
            let lease = kept(&asked.3, nth as u64 + 1);
            seen.lock().unwrap().push(lease.clone());
            return (201, "", lease);
        }
        let (leases, first) = (seen.lock().unwrap().clone(), !asked.1.contains("continue="));
        match nth {
            2 | 4 => (200, "", list(10, "more", &leases[..1])),
            3 => (410, "", status(410, "Expired")),
            _ if first => (200, "", list(11, "", &leases)),
            _ => (200, "", list(11, "", &leases[1..])),
        }
    });
    let store = server.open("");
    let space = name("s");
    for node in ["a", "b"] {
        let outcomes = store.write(&space, &[put(&key(Kind::Node, node), None, "x")]).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Applied), "{outcomes:?}");
    }
    let query = Query { keys: Vec::new(), kinds: vec![(Epoch::new(5), Kind::Node)] };
    let found = store.read(&space, &query).await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(server.asked().len(), 6);
}

/// Whatever a watch says that it cannot go on with means looking again; an end as servers make it means going on, from the last
/// bookmark.
#[tokio::test]
async fn a_watch_goes_on_from_its_bookmark_and_410_means_looking_again() {
    let server = Scripted::start(|asked, _| match asked.1.as_str() {
        path if path.contains("resourceVersion=7&") => {
            let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Lease\",\"metadata\":{\"resourceVersion\":\"9\"}}}\n";
            (200, "end", bookmark.to_owned())
        }
        path if path.contains("resourceVersion=9&") => {
            (200, "", format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "Expired")))
        }
        _ => (200, "", list(7, "", &[])),
    });
    let store = server.open("");
    let mut watch = store.watch(&name("s"));
    for _ in 0..2 {
        heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    }
    let from: Vec<_> =
        server.asked().iter().filter(|asked| is_watch(asked)).map(|asked| asked.1.contains("=9&")).collect();
    assert_eq!(from[..3], [false, true, false], "{:?}", server.asked());
}

/// A server that takes writes and whose watch never shows them lags behind: another stream is opened, and everything looked at.
#[tokio::test]
async fn a_watch_that_does_not_come_to_our_own_writes_is_left() {
    let server = Scripted::start(|asked, _| match asked.0.as_str() {
        "POST" => (201, "", kept(&asked.3, 20)),
        _ => (200, "", if is_watch(asked) { String::new() } else { list(10, "", &[]) }),
    });
    let store = server.open("timeout=300ms");
    let mut watch = store.watch(&name("s"));
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    let outcomes = store.write(&name("s"), &[put(&key(Kind::Node, "n"), None, "x")]).await.unwrap();
    assert!(matches!(outcomes[0], Outcome::Applied), "{outcomes:?}");
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
}

/// A list that shows a lower revision than an answer before it comes from older data.
#[tokio::test]
async fn lower_revisions_are_older_data() {
    let server = Scripted::start(|asked, nth| match asked.0.as_str() {
        _ if is_watch(asked) => (200, "", String::new()),
        _ if nth < 4 => (200, "", list(50, "", &[])),
        _ => (200, "", list(40, "", &[])),
    });
    let store = server.open("");
    let mut watch = store.watch(&name("s"));
    let query = Query { keys: Vec::new(), kinds: vec![(Epoch::new(5), Kind::Node)] };
    soon(async {
        loop {
            store.read(&name("s"), &query).await.unwrap();
            if server.asked().len() > 6 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
}

/// A Lease of that name that is another register's, or none at all, is there and cannot be read.
#[tokio::test]
async fn a_lease_that_is_not_ours_is_unreadable_and_never_replaced() {
    let foreign =
        "{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"3\",\"uid\":\"u\",\"annotations\":{}}}";
    let server = Scripted::start(move |asked, _| match asked.0.as_str() {
        "POST" => (409, "", status(409, "AlreadyExists")),
        "GET" => (200, "", foreign.to_owned()),
        _ => (500, "", status(500, "it is written")),
    });
    let store = server.open("");
    let found = get(&store, &name("s"), &key(Kind::Node, "n")).await.unwrap();
    assert_eq!(found.value, Value::unreadable().1);
    for expect in [None, Some(Version::new(7))] {
        let write = put(&key(Kind::Node, "n"), expect, "mine");
        match store.write(&name("s"), &[write]).await.unwrap().remove(0) {
            Outcome::Conflict(Some(there)) => assert_eq!(there, found),
            other => panic!("{other:?}"),
        }
    }
}
