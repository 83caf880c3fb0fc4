//! What API servers, and people with `kubectl`, can do to those who use them: servers that die and freeze, Leases that are deleted
//! or touched by hand, tokens that end, rights that are missing, older data, certificates.

use std::time::Duration;

use crate::conformance::least_rights;
use crate::groups::{self, Failing, Group, all_of, space};
use crate::server_kit::{get, heard, key, must, one, put, soon, until_it_works, version};
use rustix::process::Signal as UnixSignal;
use tempfile::TempDir;
use tenure::store::{Class, Fate, Kind, Kubernetes, Outcome, Retry, Signal, Store};
use tenure::{Node, TimingSettings};
use tenure_torture::servers::kubernetes::{ADMIN, Kubernetes as Server};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/team/leases";

fn started(count: usize) -> Server {
    let server = Server::start(count);
    server.make_namespace("team");
    server
}

impl Group for Server {
    fn url(&self) -> String {
        let kubeconfig = self.kubeconfig(ADMIN, true);
        format!("kubernetes:team?kubeconfig={}&server={}", kubeconfig.display(), self.hosts())
    }

    fn count(&self) -> usize {
        Self::count(self)
    }

    fn stop(&mut self, nth: usize) {
        Self::stop(self, nth);
    }

    /// And the etcd behind them.
    fn stop_all(&mut self) {
        (0..Self::count(self)).for_each(|nth| Self::stop(self, nth));
        self.etcd().stop(0);
    }

    fn launch_all(&mut self) {
        Self::launch_all(self);
    }

    fn signal(&self, nth: usize, signal: UnixSignal) {
        Self::signal(self, nth, signal);
    }

    fn data(&mut self) -> &mut TempDir {
        self.etcd().data(0).expect("it is down")
    }
}

/// The name of the one Lease that a selector finds.
fn lease(server: &Server, selector: &str) -> (String, serde_json::Value) {
    let said = server.ask("GET", &format!("{LEASES}?labelSelector={selector}"), "");
    let list: serde_json::Value = serde_json::from_str(&said.body).expect("it speaks JSON");
    let items = list["items"].as_array().expect("a list").clone();
    assert_eq!(items.len(), 1, "{list}");
    (items[0]["metadata"]["name"].as_str().expect("a name").to_owned(), items[0].clone())
}

#[tokio::test]
async fn it_says_what_it_is_and_which_rights_are_missing_or_too_wide() {
    let server = started(1);
    let described = server.open().describe().await.unwrap();
    assert_eq!(described.class, Class::B);
    assert!(described.notifies && described.about.contains("Kubernetes v1."), "{described:?}");
    for part in ["class=a", "rights wider than needed"] {
        assert!(described.remarks.iter().any(|remark| remark.contains(part)), "{described:?}");
    }
    let said = Kubernetes::open(&format!("{}&class=a", server.url())).unwrap().describe().await.unwrap();
    assert_eq!(said.class, Class::A);
    // The least rights are enough, and let a pod do nothing else.
    let token = least_rights(&server, "team");
    let config = server.kubeconfig(&token, true);
    let pod = |space: &str| {
        Kubernetes::open(&format!("kubernetes:{space}?kubeconfig={}", config.display())).unwrap()
    };
    let least = pod("team").describe().await.unwrap();
    assert!(least.notifies && least.remarks.len() == 1, "{least:?}");
    must(&pod("team"), &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    for path in [
        "/api/v1/namespaces/team/secrets",
        "/api/v1/namespaces/team/configmaps",
        "/apis/coordination.k8s.io/v1/leases",
    ] {
        assert_eq!(server.ask_as(&token, "GET", path, "").status, 403, "{path}");
    }
    server.make_namespace("other");
    let outcomes = pod("other").write(&space(), &[put(&key(Kind::Node, "n"), None, "x")]).await.unwrap();
    let Outcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never), "{error}");
    for part in ["a right is missing", "cannot create resource", "tenure schema --for kubernetes"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!error.to_string().contains(&token));
}

/// At last all of them die, and their etcd too.
#[tokio::test]
async fn any_api_server_may_die_and_what_was_acknowledged_survives_all_of_them() {
    let mut server = started(2);
    let last = groups::any_server_may_die(&mut server).await;
    server.stop_all();
    server.launch_all();
    let store = server.open();
    until_it_works(&*store).await;
    assert_eq!(get(&*store, &space(), &last.key).await.unwrap().version, version(&last));
}

/// Long before a lease of five seconds is over.
#[tokio::test]
async fn a_frozen_api_server_is_left() {
    let server = started(2);
    groups::a_frozen_server_is_left(&server, |_| server.open()).await;
}

/// A Lease that was deleted by hand is absent: what expects the version that it had makes no other, although the API would.
#[tokio::test]
async fn a_lease_deleted_by_hand_is_absent_and_one_touched_by_hand_is_the_same_register() {
    let server = started(1);
    let store = server.open();
    let first = must(&*store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    let (name, found) = lease(&server, "tenure/kind=node");
    // Touched: an annotation of a person's own. The version is what it was, the revision is not.
    let mut touched = found;
    touched["metadata"]["annotations"]["person"] = "was here".into();
    let said = server.ask("PUT", &format!("{LEASES}/{name}"), &touched.to_string());
    assert_eq!(said.status, 200, "{said:?}");
    let second = must(&*store, &space(), put(&first.key, Some(version(&first)), "y")).await;
    assert_eq!(server.ask("DELETE", &format!("{LEASES}/{name}"), "").status, 200);
    let late = put(&first.key, Some(version(&second)), "z");
    let outcomes = store.write(&space(), std::slice::from_ref(&late)).await.unwrap();
    assert!(matches!(outcomes[0], Outcome::Conflict(None)), "{outcomes:?}");
    assert_eq!(get(&*store, &space(), &first.key).await, None);
    // Made anew by another, while this handle remembers the one before.
    let other = must(&*server.open(), &space(), put(&first.key, None, "other")).await;
    let outcomes = store.write(&space(), &[late]).await.unwrap();
    let Outcome::Conflict(Some(found)) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(found.version, version(&other));
}

/// People see who leads, since when, and how often it changed, with nothing but `kubectl get leases`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_see_who_leads() {
    let server = started(1);
    let settings = TimingSettings { ttl: Some(Duration::from_secs(30)), ..TimingSettings::default() };
    let node = Node::builder(server.url()).name("web-1").timing(settings).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let lead = soon(candidate.elected()).await.unwrap();
    let (name, role) = lease(&server, "tenure/kind=role");
    assert!(name.starts_with("tenure.default.role.scheduler."), "{name}");
    assert_eq!(role["spec"]["holderIdentity"], "web-1", "{role}");
    assert_eq!(role["spec"]["leaseTransitions"], lead.token().get(), "{role}");
    let (_, session) = lease(&server, "tenure/kind=session");
    assert_eq!(session["spec"]["leaseDurationSeconds"], 30, "{session}");
    drop(lead);
    let given_up = async {
        while !lease(&server, "tenure/kind=role").1["spec"]["holderIdentity"].is_null() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(given_up).await;
    node.stop().await;
}

/// A service account that is deleted and made anew has other tokens: the one in the file counts, from when it is there.
#[tokio::test]
async fn a_token_that_ended_is_told_and_the_next_one_in_the_file_is_used() {
    let server = started(1);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::copy(server.authority(), file("ca.crt")).unwrap();
    std::fs::write(file("namespace"), "team").unwrap();
    std::fs::write(file("token"), least_rights(&server, "team")).unwrap();
    // As in a pod: the directory of its service account, and the address.
    let url = format!("kubernetes:?serviceaccount={}&server={}", dir.path().display(), server.address(0));
    let store = Kubernetes::open(&url).unwrap();
    must(&store, &space(), put(&key(Kind::Node, "a"), None, "x")).await;
    let account = "/api/v1/namespaces/team/serviceaccounts/app";
    assert_eq!(server.ask("DELETE", account, "").status, 200);
    // API servers remember for some seconds whose token it was.
    let told = soon(async {
        loop {
            match store.read(&space(), &one(&key(Kind::Node, "a"))).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => return error,
            }
        }
    })
    .await;
    assert!(told.to_string().contains("token") && told.retry() == Retry::Soon, "{told}");
    std::fs::write(file("token"), least_rights(&server, "team")).unwrap();
    must(&store, &space(), put(&key(Kind::Node, "b"), None, "x")).await;
}

/// A namespace that does not exist is told; so is a certificate that no known authority vouches for.
#[tokio::test]
async fn what_is_missing_or_not_trusted_is_told() {
    let server = started(1);
    let config = server.kubeconfig(ADMIN, true);
    let nowhere = Kubernetes::open(&format!("kubernetes:nowhere?kubeconfig={}", config.display())).unwrap();
    let outcomes = nowhere.write(&space(), &[put(&key(Kind::Node, "n"), None, "x")]).await.unwrap();
    let Outcome::Failed(error) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(
        error.to_string().contains("namespace does not exist") && error.retry() == Retry::Never,
        "{error}"
    );
    let text = std::fs::read_to_string(&config).unwrap();
    let without: String = text
        .lines()
        .filter(|line| !line.contains("certificate-authority"))
        .fold(String::new(), |all, line| all + line + "\n");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config"), without).unwrap();
    let unknown =
        Kubernetes::open(&format!("kubernetes:team?kubeconfig={}", dir.path().join("config").display()))
            .unwrap();
    let error = unknown.describe().await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer") && error.fate() == Fate::NotApplied, "{error}");
    // A certificate of the client's own instead of a token, and a server by another name.
    let secret = |name: &str| server.authority().with_file_name(name).display().to_string();
    let cert = text.replace(
        &format!("{{token: {ADMIN}}}"),
        &format!("{{client-certificate: {}, client-key: {}}}", secret("client.pem"), secret("client.key")),
    );
    let cert = cert
        .replace("    certificate-authority", "    tls-server-name: kubernetes\n    certificate-authority");
    std::fs::write(dir.path().join("config"), cert).unwrap();
    let person =
        Kubernetes::open(&format!("kubernetes:team?kubeconfig={}", dir.path().join("config").display()))
            .unwrap();
    must(&person, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
}

/// An etcd that goes on with what it had earlier has forgotten.
#[tokio::test]
async fn older_data_is_noticed() {
    let mut server = started(1);
    let (store, mut watch) = groups::set_back(&mut server, 5).await;
    until_it_works(&*store).await;
    store.read(&space(), &all_of(Kind::Node)).await.unwrap();
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
}

/// More registers than one part of a list has come whole.
#[tokio::test]
async fn long_lists_come_part_by_part_and_whole() {
    let server = started(1);
    let store = Kubernetes::open(&format!("{}&timeout=30s", server.url())).unwrap();
    groups::many_answers_come_whole(&store, 6, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_goes_on_while_api_servers_fail_one_at_a_time() {
    let [frozen, down] = [5, 3].map(Duration::from_secs);
    groups::a_leader_goes_on_while_servers_fail_one_at_a_time(
        &mut started(2),
        Duration::from_secs(15),
        Failing { frozen, down: Some(down), rest: Duration::ZERO },
    )
    .await;
}
