//! One API server of Kubernetes, and a service account with the least rights.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::proxy::Proxy;
use tenure_torture::servers::kubernetes::{Kubernetes as Server, PlainDoor};

use crate::rig::Rig;

pub(crate) struct Kubernetes {
    server: Mutex<Server>,
    /// What the nodes reach it through, in clear, so that links see what is said.
    door: Proxy,
    _plain: PlainDoor,
    kubeconfig: String,
    /// The revision of etcd at which it began to be read.
    from: Mutex<String>,
}

const SPACE: &str = "team";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/team/leases";
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings/app";

impl Kubernetes {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no test panicked with it")
    }

    /// The Lease of a register.
    fn lease(&self, namespace: &str, key: &Key) -> Option<String> {
        let register = format!("{namespace}/{}/{}/{}", key.epoch().get(), key.kind().as_str(), key.name());
        let said = self.server().ask("GET", LEASES, "");
        let list: serde_json::Value = serde_json::from_str(&said.body).expect("it speaks JSON");
        let items = list["items"].as_array().expect("a list");
        let found =
            items.iter().find(|item| item["metadata"]["annotations"]["tenure/register"] == register)?;
        Some(found["metadata"]["name"].as_str()?.to_owned())
    }

    /// How often a Lease has been written since it was created, at some revision.
    fn puts(&self, lease: &str, revision: &str) -> u64 {
        let key = format!("/registry/leases/{SPACE}/{lease}");
        let said = self.server().etcd().ctl(&["get", &key, "--rev", revision, "-w", "fields"]);
        field(&said, "\"Version\"").and_then(|puts| puts.parse().ok()).unwrap_or(0)
    }
}

fn field<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" : "))
}

/// What `tenure schema` prints.
fn schema() -> String {
    let name = |text| Name::new(text).expect("a name");
    let (user, namespace) = (name("app"), name("default"));
    let request = tenure::schema::SchemaRequest::new("kubernetes", user, namespace);
    request.text().expect("Kubernetes has something to set up")
}

#[async_trait]
impl Rig for Kubernetes {
    const TTL: Duration = super::TTL;
    const REQUESTS: u64 = 2;

    async fn start() -> Self {
        let server = Server::start(1);
        server.make_namespace(SPACE);
        server.apply(SPACE, &schema());
        let kubeconfig = server.kubeconfig(&server.token(SPACE, "app"), false).display().to_string();
        let plain = PlainDoor::to(&server, 0);
        let door = Proxy::to(plain.address());
        Self { server: Mutex::new(server), door, _plain: plain, kubeconfig, from: Mutex::default() }
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.door.address())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        let server = server.unwrap_or_else(|| self.door.address());
        format!("kubernetes:{SPACE}?kubeconfig={}&server={server}", self.kubeconfig)
    }

    /// The record of a role that is led, inside an annotation. The spec, and other records, have no such word.
    fn claim(&self) -> &'static [u8] {
        b"holder\\\""
    }

    fn freeze(&self) {
        self.server().signal(0, Signal::STOP);
    }

    fn thaw(&self) {
        self.server().signal(0, Signal::CONT);
    }

    fn restart(&self) {
        let mut server = self.server();
        server.stop(0);
        server.etcd().stop(0);
        server.launch_all();
    }

    async fn forget(&self) {
        assert_eq!(self.server().ask("DELETE", LEASES, "").status, 200);
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let lease = self.lease(namespace.as_str(), key).expect("it is there");
        assert_eq!(self.server().ask("DELETE", &format!("{LEASES}/{lease}"), "").status, 200);
    }

    async fn kill_clients(&self) {
        self.door.reset();
    }

    async fn lock_out(&self, locked: bool) {
        if locked {
            assert_eq!(self.server().ask("DELETE", BINDING, "").status, 200);
            self.door.reset();
        } else {
            self.server().apply(SPACE, &schema());
        }
    }

    async fn leftovers(&self) -> u64 {
        self.door.open()
    }

    /// A watch is no operation: it is asked once.
    async fn operations(&self) -> Option<u64> {
        let said = self.server().ask("GET", "/metrics", "").body;
        let counted = said.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        let leases =
            counted.filter(|line| line.contains("resource=\"leases\"") && !line.contains("verb=\"WATCH\""));
        Some(leases.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64)
    }

    async fn listen_in(&self) {
        let said = self.server().etcd().ctl(&["get", "none", "-w", "fields"]);
        let revision = field(&said, "\"Revision\"").expect("a revision").to_owned();
        *self.from.lock().expect("no test panicked with it") = revision;
    }

    /// As they were applied.
    async fn writes_on(&self, key: &Key) -> Option<u64> {
        let lease = self.lease("default", key)?;
        let from = self.from.lock().expect("no test panicked with it").clone();
        Some(self.puts(&lease, "0") - self.puts(&lease, &from))
    }
}
