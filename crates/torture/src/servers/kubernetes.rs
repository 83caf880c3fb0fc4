//! Private API servers of Kubernetes, on a private etcd: no kubelet, no controllers, nothing but the API.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::etcd::Etcd;
use super::{Server, built, free_port, run, scratch};

/// It starts in seconds, of which a busy machine makes minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// The token of a user who may do everything.
pub const ADMIN: &str = "admin-4c6e8a";

/// API servers that answer alike.
#[derive(Debug)]
pub struct Kubernetes {
    servers: Vec<ApiServer>,
    etcd: Etcd,
    /// Certificates, keys, tokens and kubeconfigs.
    secrets: TempDir,
}

/// One API server; it keeps its port while it is down.
#[derive(Debug)]
struct ApiServer {
    port: u16,
    server: Option<Server>,
}

/// What an API server said.
#[derive(Debug)]
pub struct Said {
    /// 200 and so on; 0 if it said nothing.
    pub status: u16,
    /// JSON, mostly.
    pub body: String,
}

impl Kubernetes {
    /// So many API servers on an etcd of one member.
    ///
    /// # Panics
    /// If they do not start, or are not installed.
    #[must_use]
    pub fn start(count: usize) -> Self {
        Self::start_on(count, Etcd::start(1, &[]))
    }

    /// The same on that etcd.
    ///
    /// # Panics
    /// If they do not start, or are not installed.
    #[must_use]
    pub fn start_on(count: usize, etcd: Etcd) -> Self {
        let servers = (0..count).map(|_| ApiServer { port: free_port(), server: None }).collect();
        let mut this = Self { servers, etcd, secrets: secrets() };
        this.launch_all();
        this
    }

    /// The addresses of all API servers, as the parameter `server` of a URL has them.
    #[must_use]
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = (0..self.servers.len()).map(|nth| self.address(nth).to_string()).collect();
        hosts.join(",")
    }

    /// Where an API server answers.
    #[must_use]
    pub fn address(&self, nth: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.servers[nth].port).into()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// The etcd behind them.
    #[must_use]
    pub fn etcd(&mut self) -> &mut Etcd {
        &mut self.etcd
    }

    /// The file with the authority that vouches for the API servers.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.secrets.path().join("ca.pem")
    }

    /// A kubeconfig for that token. Without encryption it is for a [`PlainDoor`].
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn kubeconfig(&self, token: &str, encrypted: bool) -> PathBuf {
        let (scheme, authority) = match encrypted {
            true => ("https", format!("certificate-authority: {}", self.authority().display())),
            false => ("http", String::new()),
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
             users:\n- name: u\n  user: {{token: {token}}}\n\
             clusters:\n- name: k\n  cluster:\n    server: {scheme}://{}\n    {authority}\n",
            self.address(0)
        );
        let name: String = token.chars().filter(char::is_ascii_alphanumeric).rev().take(40).collect();
        let file = self.secrets.path().join(format!("{name}-{scheme}"));
        std::fs::write(&file, text).expect("a kubeconfig can be written");
        file
    }

    /// Makes a namespace; one that is there stays.
    ///
    /// # Panics
    /// If the API server does not take it.
    pub fn make_namespace(&self, name: &str) {
        let body =
            format!("{{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{{\"name\":\"{name}\"}}}}");
        let said = self.ask("POST", "/api/v1/namespaces", &body);
        assert!([201, 409].contains(&said.status), "{said:?}");
    }

    /// Gives the API what `tenure schema` prints, document by document, as `kubectl apply` would.
    ///
    /// # Panics
    /// If the API server does not take it.
    pub fn apply(&self, namespace: &str, text: &str) {
        for document in text.split("---\n").filter(|document| document.contains("\nkind: ")) {
            let path = match document.lines().find_map(|line| line.strip_prefix("kind: ")) {
                Some("ServiceAccount") => format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
                Some(kind) => {
                    let kinds = kind.to_lowercase();
                    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{kinds}s")
                }
                None => continue,
            };
            let said = self.ask("POST", &path, &document.replace("NAMESPACE", namespace));
            assert!([201, 409].contains(&said.status), "{document}: {said:?}");
        }
    }

    /// A token of a service account.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn token(&self, namespace: &str, account: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let said = self.ask(
            "POST",
            &path,
            "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenRequest\",\"spec\":{}}",
        );
        assert_eq!(said.status, 201, "{said:?}");
        let answer: serde_json::Value = serde_json::from_str(&said.body).expect("it speaks JSON");
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Asks the first API server that runs, as a user who may do everything.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Said {
        self.ask_as(ADMIN, method, path, body)
    }

    /// The same as the user with that token.
    ///
    /// # Panics
    /// If `curl` is not installed.
    #[must_use]
    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: &str) -> Said {
        let up = self.servers.iter().position(|server| server.server.is_some()).unwrap_or(0);
        ask(self.address(up), &self.authority(), token, (method, path, body))
    }

    /// Starts every API server that is down, and the etcd, and waits until all of them answer.
    ///
    /// # Panics
    /// If they do not come up.
    pub fn launch_all(&mut self) {
        self.etcd.launch_all();
        for nth in 0..self.servers.len() {
            if self.servers[nth].server.as_mut().is_some_and(Server::has_ended) {
                self.stop(nth);
            }
            self.launch(nth);
        }
    }

    /// Ends an API server as a power loss would.
    pub fn stop(&mut self, nth: usize) {
        drop(self.servers[nth].server.take());
    }

    /// Freezes or thaws an API server: SIGSTOP, SIGCONT. One that is down stays so.
    pub fn signal(&self, nth: usize, signal: Signal) {
        if let Some(server) = &self.servers[nth].server {
            server.signal(signal);
        }
    }

    fn launch(&mut self, nth: usize) {
        if self.servers[nth].server.is_some() {
            return;
        }
        let port = self.servers[nth].port;
        let members: Vec<_> = self.etcd.hosts().split(',').map(|host| format!("http://{host}")).collect();
        let (dir, secrets) = (scratch(), self.secrets.path());
        let mut command = Command::new(built("kube-apiserver"));
        command.arg(format!("--etcd-servers={}", members.join(",")));
        command.arg(format!("--secure-port={port}")).arg(format!("--cert-dir={}", dir.path().display()));
        command.args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--authorization-mode=RBAC",
        ]);
        command.args(["--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://tenure"]);
        command.args(["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]);
        for (flag, file) in [
            ("tls-cert-file", "server.pem"),
            ("tls-private-key-file", "server.key"),
            ("client-ca-file", "ca.pem"),
            ("token-auth-file", "tokens"),
            ("service-account-key-file", "account.key"),
            ("service-account-signing-key-file", "account.key"),
        ] {
            command.arg(format!("--{flag}={}", secrets.join(file).display()));
        }
        let authority = self.authority();
        let ready = |address| {
            // Asking is work too, and this server has enough of it while it starts.
            std::thread::sleep(Duration::from_millis(100));
            let listens = std::net::TcpStream::connect(address).is_ok();
            listens && ask(address, &authority, ADMIN, ("GET", "/readyz", "")).status == 200
        };
        let server = Server::start_within(PATIENCE, "kube-apiserver", dir, port, &mut command, ready);
        self.servers[nth].server = Some(server);
    }
}

/// A door to an API server that shows in clear what is said behind it: API servers speak TLS alone, and links look into what they
/// carry. Dropped, it is closed.
#[derive(Debug)]
pub struct PlainDoor {
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl PlainDoor {
    /// A door to that API server.
    ///
    /// # Panics
    /// If there is no port or thread left.
    #[must_use]
    pub fn to(servers: &Kubernetes, nth: usize) -> Self {
        let (server, tls) = (servers.address(nth), encryption(&servers.authority()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        listener.set_nonblocking(true).expect("a listener that does not block");
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
            while let Ok((inner, _)) = listener.accept().await {
                tokio::spawn(carry(inner, server, tls.clone()));
            }
        });
        Self { address, runtime: Some(runtime) }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Without waiting: it may be dropped in a task of another runtime.
impl Drop for PlainDoor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Each end is told of the other's.
async fn carry(mut inner: TcpStream, server: SocketAddr, tls: TlsConnector) -> std::io::Result<()> {
    let outer = TcpStream::connect(server).await?;
    inner.set_nodelay(true)?;
    outer.set_nodelay(true)?;
    let mut outer = tls.connect(ServerName::IpAddress(Ipv4Addr::LOCALHOST.into()), outer).await?;
    tokio::io::copy_bidirectional(&mut inner, &mut outer).await?;
    Ok(())
}

fn encryption(authority: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(authority).expect("an authority");
    certificates.for_each(|found| roots.add(found.expect("a certificate")).expect("it can be trusted"));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions of TLS").with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// One request by `curl`, which every tool here has.
fn ask(address: SocketAddr, authority: &Path, token: &str, (method, path, body): (&str, &str, &str)) -> Said {
    let mut command = Command::new("curl");
    command
        .args(["-s", "-S", "--max-time", "30", "-X", method, "-w", "\n%{http_code}", "--cacert"])
        .arg(authority);
    command.args(["-H", &format!("Authorization: Bearer {token}")]);
    if !body.is_empty() {
        let kind = if body.starts_with('{') { "json" } else { "yaml" };
        command.args(["-H", &format!("Content-Type: application/{kind}"), "--data-binary", "@-"]);
    }
    command.arg(format!("https://{address}{path}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("curl is installed: run ./setup");
    let mut input = child.stdin.take().expect("it has an input");
    let _ = input.write_all(body.as_bytes());
    drop(input);
    let said = child.wait_with_output().expect("curl ends");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let (body, status) = said.rsplit_once('\n').unwrap_or(("", &said));
    Said { status: status.trim().parse().unwrap_or(0), body: body.to_owned() }
}

/// An authority, a certificate for this host, a key for service accounts, and the token of the administrator.
fn secrets() -> TempDir {
    let dir = scratch();
    let script = "set -e; cd \"$1\"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout ca.key -out ca.pem \
            -subj /CN=authority -addext basicConstraints=critical,CA:TRUE
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=api
        printf 'subjectAltName=IP:127.0.0.1,DNS:kubernetes\\n' > ext
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile ext
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout client.key -out client.csr \
            -subj /O=system:masters/CN=person
        openssl x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out client.pem -extfile ext
        openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out account.key
        printf '%s,admin,1,\"system:masters\"\\n' \"$2\" > tokens";
    let _ = run(Command::new("sh").args(["-c", script, "sh"]).arg(dir.path()).arg(ADMIN));
    dir
}
