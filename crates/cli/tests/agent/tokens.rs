//! Tokens and certificates: names in the audit, limits for each, failures on record, and all of it without a restart.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::kit::{Agent, Answer, Store, eventually, get, over_tcp, port, tcp};

const ROLE: &str = "[[role]]\nname = \"job\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n";
const READ: &str = "read-0123456789abcdef";
const ACT: &str = "operator-0123456789abcdef";

/// A certificate, its key and tokens, in files.
pub(crate) struct Tls {
    dir: TempDir,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let tls = Self { dir: TempDir::new().unwrap() };
        tls.renew();
        tls.tokens(&format!("read reader {READ}\noperator ci {ACT}\n"));
        tls
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Another certificate, with another key.
    fn renew(&self) {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        openssl.args(["-days", "1", "-subj", "/CN=localhost", "-keyout"]).arg(self.file("key"));
        assert!(openssl.arg("-out").arg(self.file("cert")).output().unwrap().status.success());
        self.private("key");
    }

    fn tokens(&self, text: &str) {
        std::fs::write(self.file("tokens"), text).unwrap();
        self.private("tokens");
    }

    fn private(&self, name: &str) {
        std::fs::set_permissions(self.file(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// What the configuration says of them.
    pub(crate) fn keys(&self) -> String {
        format!("tls-cert = {:?}\ntls-key = {:?}\n{}", self.file("cert"), self.file("key"), self.token_key())
    }

    fn token_key(&self) -> String {
        format!("tokens = {:?}\n", self.file("tokens"))
    }

    /// As many handshakes as a client makes that does nothing else for so many seconds.
    pub(crate) fn handshakes(&self, port: u16, seconds: u32) -> u32 {
        let mut client = Command::new("openssl");
        client.args([
            "s_time",
            "-new",
            "-time",
            &seconds.to_string(),
            "-connect",
            &format!("localhost:{port}"),
        ]);
        let said = String::from_utf8_lossy(&client.output().unwrap().stdout).into_owned();
        let count = said.lines().find_map(|line| line.split_once(" connections in ")?.0.parse().ok());
        count.unwrap_or_else(|| panic!("{said}"))
    }

    /// The status and the body that a client gets which trusts the certificate in the file.
    pub(crate) fn curl(&self, port: u16, path: &str, body: &str) -> (String, String) {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-w", "\n%{http_code}", "--cacert"]).arg(self.file("cert"));
        curl.arg("-H").arg(format!("Authorization: Bearer {ACT}"));
        if !body.is_empty() {
            curl.args(["-H", "Content-Type: application/json", "-d", body]);
        }
        let ran = curl.arg(format!("https://localhost:{port}{path}")).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap_or(("", &text));
        (status.to_owned(), body.to_owned())
    }
}

fn with(port: u16, token: &str, path: &str) -> Answer {
    over_tcp(port, &get(path, &format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n")))
}

#[test]
fn a_token_has_a_name_that_the_audit_tells() {
    let (store, tls) = (Store::file(), Tls::new());
    let agent = Agent::start(&store, "a", &format!("{ROLE}{}", tls.keys()));
    let port = port(&agent);
    eventually("it leads", || agent.leads("job"));
    let (status, body) = tls.curl(port, "/v1/roles/job/pause", "{\"why\": \"x\", \"by\": \"Ada\"}");
    assert_eq!(status, "200", "{body}");
    let audit = agent.get("/v1/audit").body;
    assert!(audit.contains("Ada (as token ci from 127.0.0.1)"), "{audit}");
    assert!(!audit.contains("0123456789abcdef"), "{audit}");
}

#[test]
fn requests_are_counted_for_each_token() {
    let (store, tls) = (Store::file(), Tls::new());
    let agent = Agent::start(&store, "a", &format!("{ROLE}rate = 5\n{}", tls.token_key()));
    let port = port(&agent);
    let greedy: Vec<u16> = (0..40).map(|_| with(port, READ, "/v1/cluster").status).collect();
    assert!(greedy.contains(&200) && greedy.contains(&429), "{greedy:?}");
    assert_eq!(with(port, ACT, "/v1/cluster").status, 200, "another token of the same address");
}

/// A neighbour behind the same address cannot lock any client out, and learns no more by asking more.
#[test]
fn wrong_tokens_are_slowed_down_and_on_record() {
    let (store, tls) = (Store::file(), Tls::new());
    let agent = Agent::start(&store, "a", &format!("{ROLE}auth-failures = 3\n{}", tls.token_key()));
    let port = port(&agent);
    let wrong = "wrong-0123456789abcdef";
    let statuses: Vec<u16> = (0..6).map(|_| with(port, wrong, "/v1/cluster").status).collect();
    let (first, more) = statuses.split_at(3);
    assert!(first.iter().all(|status| *status == 401) && more.contains(&429), "{statuses:?}");
    let refused = statuses.iter().filter(|status| **status == 401).count();
    assert_eq!(with(port, READ, "/v1/cluster").status, 200);
    assert_eq!(
        over_tcp(port, &get("/v1/cluster", "Host: localhost\r\n")).status,
        401,
        "without one is no guess"
    );
    let told = |log: &str| log.lines().filter(|line| line.contains("authentication failed")).count();
    eventually("it is on record", || told(&agent.log()) == refused);
    let log = agent.log();
    assert!(log.contains("client=127.0.0.1") && !log.contains("0123456789abcdef"), "{log}");
}

#[test]
fn tokens_change_by_a_reload_and_what_was_open_is_cut() {
    let (store, tls) = (Store::file(), Tls::new());
    let agent = Agent::start(&store, "a", &format!("{ROLE}{}", tls.token_key()));
    let port = port(&agent);
    let stream = |token: &str| {
        let mut stream = tcp(port);
        let request = get("/v1/events", &format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n"));
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        stream
    };
    let (mut gone, mut stays) = (stream(READ), stream(ACT));
    let new = "new-0123456789abcdef";
    tls.tokens(&format!("read reader {new}\noperator ci {ACT}\n"));
    assert_eq!(with(port, READ, "/v1/cluster").status, 200, "not before it is told");
    agent.process.signal(Signal::HUP);
    eventually("the new one counts", || with(port, new, "/v1/cluster").status == 200);
    assert_eq!(with(port, READ, "/v1/cluster").status, 401);
    assert_eq!(with(port, ACT, "/v1/cluster").status, 200);
    let mut text = Vec::new();
    assert!(std::io::Read::read_to_end(&mut gone, &mut text).is_ok(), "the stream of the former token ends");
    stays.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
    assert!(std::io::Read::read_to_end(&mut stays, &mut text).is_err(), "and that of another goes on");

    // What cannot be read changes nothing.
    tls.tokens("nonsense\n");
    agent.process.signal(Signal::HUP);
    eventually("it says so", || agent.log().contains("cannot reload"));
    assert_eq!(with(port, new, "/v1/cluster").status, 200);
}

#[test]
fn certificates_change_by_a_reload() {
    let (store, tls) = (Store::file(), Tls::new());
    let agent = Agent::start(&store, "a", &format!("{ROLE}{}", tls.keys()));
    let port = port(&agent);
    assert_eq!(tls.curl(port, "/livez", "").0, "200");
    tls.renew();
    assert_ne!(tls.curl(port, "/livez", "").0, "200", "the agent still shows the former");
    agent.process.signal(Signal::HUP);
    eventually("it shows the new one", || tls.curl(port, "/livez", "").0 == "200");
}
