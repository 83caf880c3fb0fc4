//! Everything that the registries in the code list is touched by a test; what is not fails here.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::State;
use axum::http::StatusCode;
use tenure::store::{Layer, Memory, Name, Outcome, Store as Registers, StoreError, Write};
use tenure_agent::campaign::CAMPAIGN_EVENTS;
use tenure_agent::config::Config;
use tenure_agent::config::layers::Layers;
use tenure_agent::events::Events;
use tenure_agent::http::{App, queries};
use tenure_agent::metrics::{METRICS, Metrics, StoreMeter};

use crate::kit::{Agent, Store, eventually, raw};
use crate::openapi::assert_described;

/// How each endpoint is asked, and what it answers when all is well.
pub(crate) const ASKED: &[(&str, &str, Option<&str>, u16)] = &[
    ("get", "/livez", None, 200),
    ("get", "/readyz", None, 200),
    ("get", "/leader/{role}", None, 200),
    ("head", "/leader/{role}", None, 200),
    ("get", "/v1/cluster", None, 200),
    ("get", "/v1/roles", None, 200),
    ("get", "/v1/roles/{role}", None, 200),
    ("get", "/v1/nodes", None, 200),
    ("get", "/v1/history", None, 200),
    ("get", "/v1/audit", None, 200),
    ("get", "/metrics", None, 200),
    ("get", "/openapi.json", None, 200),
    ("get", "/v1/events", None, 200),
    ("get", "/v1/campaign/{role}", None, 409),
    ("post", "/v1/campaign/{role}/ready", Some("{\"token\":1,\"campaign\":\"x\"}"), 404),
    ("post", "/v1/roles/{role}/transfer", Some("{\"to\":\"a\"}"), 200),
    ("delete", "/v1/roles/{role}/transfer", None, 404),
    ("post", "/v1/roles/{role}/step-down", Some("{}"), 200),
    ("post", "/v1/roles/{role}/pause", Some("{}"), 200),
    ("post", "/v1/roles/{role}/resume", Some("{}"), 200),
    ("post", "/v1/roles/{role}/forget", Some("{}"), 409),
    ("post", "/v1/roles/{role}/pin", Some("{\"node\":\"a\"}"), 200),
    ("delete", "/v1/roles/{role}/pin", None, 200),
    ("post", "/v1/roles/{role}/eligible", Some("{\"eligible\":true}"), 200),
    ("get", "/v1/tasks", None, 200),
    ("get", "/v1/tasks/{task}", None, 200),
    ("post", "/v1/tasks/{task}/trigger", Some("{}"), 202),
    ("post", "/v1/tasks/{task}/pause", Some("{}"), 200),
    ("post", "/v1/tasks/{task}/resume", Some("{}"), 200),
    ("get", "/v1/alerts", None, 200),
    ("post", "/v1/alerts/{alert}/acknowledge", Some("{}"), 409),
    ("post", "/v1/alerts/{alert}/resolve", Some("{}"), 409),
    ("post", "/v1/alerts/{alert}/silence", Some("{\"for\":\"1h\"}"), 200),
    ("delete", "/v1/alerts/{alert}/silence", None, 200),
    ("post", "/v1/nodes/{node}/drain", Some("{}"), 200),
    ("delete", "/v1/nodes/{node}/drain", None, 200),
];

/// The path with names of what is there.
pub(crate) fn concrete(path: &str) -> String {
    let known = [("{role}", "job"), ("{node}", "a"), ("{task}", "nightly"), ("{alert}", "no-leader")];
    known.iter().fold(path.to_owned(), |path, (place, name)| path.replace(place, name))
}

#[test]
fn every_endpoint_is_served_as_it_is_described() {
    let store = Store::file();
    let task = "[[task]]\nname = \"nightly\"\ncron = \"@daily\"\ncommand = [\"true\"]";
    let agent = Agent::start(&store, "a", &format!("[[role]]\nname = \"job\"\n{task}"));
    eventually("it leads", || agent.leads("job"));
    eventually("it is seen", || {
        ["/v1/roles/job", "/readyz", "/v1/tasks/nightly"].iter().all(|path| agent.get(path).status == 200)
    });
    let api = agent.get("/openapi.json").json();
    let described: BTreeSet<(String, String)> = api["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))
        })
        .collect();
    let asked = ASKED.iter().map(|(method, path, ..)| ((*path).to_owned(), (*method).to_owned())).collect();
    assert_eq!(described, asked, "what is described is what is asked here");
    for (method, path, body, status) in ASKED {
        let concrete = concrete(path);
        if *path == "/v1/events" {
            drop(agent.stream(&concrete, None));
            continue;
        }
        let answer = agent.ask(&method.to_uppercase(), &concrete, *body);
        assert_eq!(answer.status, *status, "{method} {path}: {answer:?}");
        assert_described(&api, method, path, &answer);
        eventually("it leads again", || agent.leads("job") || path.contains("pause") || *method == "post");
    }
}

/// Every path that a page names is one of those above; `ROLE` and `{role}` stand for names.
#[test]
fn every_path_on_a_page_is_served() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folders = ["", "start", "guides", "reference", "explanation"].map(|folder| docs.join(folder));
    let files =
        folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
    let pages = files.filter(|file| file.extension().is_some_and(|ext| ext == "md"));
    let name = |part: &str| part.starts_with('{') || part.starts_with(|c: char| c.is_ascii_uppercase());
    let fits = |path: &str, served: &str| {
        let (path, served): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), served.split('/').collect());
        let same = |(part, served): (&&str, &&str)| part == served || name(served) || name(part);
        path.len() <= served.len() && path.iter().zip(&served).all(same)
    };
    let mut seen = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for (at, _) in text.match_indices("/v1/") {
            let of_a_path = |c: char| c.is_ascii_alphanumeric() || "/{}-_".contains(c);
            let path = text[at..].split(|c| !of_a_path(c)).next().unwrap_or_default().trim_end_matches('/');
            assert!(ASKED.iter().any(|(_, served, ..)| fits(path, served)), "{}: {path}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} paths");
}

#[test]
fn every_metric_is_there_from_the_beginning_with_its_meaning() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", "[[role]]\nname = \"job\"\n[metrics]\nprefix = \"forge_leader\"");
    eventually("it leads", || agent.leads("job"));
    eventually("it is seen", || agent.metric("forge_leader_leaderless_seconds_total").is_some());
    let text = agent.get("/metrics").body;
    let typed: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect();
    let listed = METRICS.iter().map(|(name, kind, _)| format!("forge_leader_{name} {kind}")).collect();
    assert_eq!(typed, listed, "what is exposed is what is listed");
    for (name, _, help) in METRICS {
        assert!(text.contains(&format!("# HELP forge_leader_{name} {help}")), "{name}:\n{text}");
    }
    assert_eq!(agent.metric("forge_leader_is_leader{role=\"job\"}"), Some(1.0));
    assert_eq!(agent.metric("forge_leader_elections_total{role=\"job\"}"), Some(1.0));
    assert!(agent.metric("forge_leader_tenure_seconds{role=\"job\"}").is_some());
    let page = include_str!("../../../../docs/reference/metrics.md");
    assert!(page.contains(&tenure_agent::metrics::table()), "{}", tenure_agent::metrics::table());
}

#[test]
fn open_metrics_come_to_a_client_that_asks_for_them() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", "[[role]]\nname = \"job\"");
    eventually("it leads", || agent.leads("job"));
    eventually("it is seen", || agent.metric("tenure_leaderless_seconds_total").is_some());
    eventually("its events are counted", || agent.metric("tenure_events_total").is_some());
    let wanted = b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n";
    let answer = raw(UnixStream::connect(&agent.socket).unwrap(), wanted).unwrap();
    assert!(answer.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer:?}");
    assert!(answer.body.ends_with("\n# EOF\n"), "{}", answer.body);
    for (name, kind, _) in METRICS {
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(
            answer.body.contains(&format!("# TYPE tenure_{family} {kind}\n")),
            "{family}: {}",
            answer.body
        );
    }
    let plain = agent.get("/metrics");
    assert!(plain.head.contains("content-type: text/plain; version=0.0.4"), "{plain:?}");
    assert!(!plain.body.contains("# EOF"));
}

#[test]
fn every_event_of_a_campaign_is_documented() {
    let page = include_str!("../../../../docs/guides/any-language.md");
    for (event, meaning) in CAMPAIGN_EVENTS {
        assert!(page.contains(&format!("| `{event}` | {meaning} |")), "| `{event}` | {meaning} |");
    }
}

/// Registers that can be made to hang the loop that asks them.
#[derive(Debug)]
struct Hanging {
    inner: Memory,
    hang: Arc<AtomicBool>,
}

impl Hanging {
    fn hang(&self) {
        while self.hang.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl std::fmt::Display for Hanging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hanging")
    }
}

#[async_trait]
impl Layer for Hanging {
    fn inner(&self) -> &dyn Registers {
        &self.inner
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.hang();
        self.inner.write(namespace, writes).await
    }
}

/// An agent without sockets whose loop can be made to hang; it leads.
async fn hanging_agent() -> (Arc<App>, Arc<AtomicBool>) {
    let mut layers = Layers::default();
    layers.flag("timing.ttl", "500ms");
    layers.flag("role[0].name", "job");
    let config = Config::of(layers).unwrap();
    let hang = Arc::new(AtomicBool::new(false));
    let store = Arc::new(Hanging { inner: Memory::default(), hang: hang.clone() });
    let node = tenure::Node::builder_with_store(store)
        .name("a")
        .timing(config.settings.clone())
        .start()
        .await
        .unwrap();
    let metrics = Metrics::new(&config.metrics, node.name(), node.namespace(), &StoreMeter::default());
    let app = App::new(config.clone(), node, metrics, Arc::new(Events::new(10)));
    app.candidacies.sync(&config.roles).await.unwrap();
    tokio::task::block_in_place(|| eventually("it leads", || leads(&app)));
    (app, hang)
}

fn leads(app: &App) -> bool {
    app.candidacies.lead(&Name::new("job").unwrap()).is_some()
}

fn exposition(app: &App) -> String {
    app.metrics.text(tenure_agent::metrics::ExpositionFormat::Prometheus)
}

/// A hung loop is not alive, and cannot claim to lead.
#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_hangs_is_seen_from_outside() {
    let (app, hang) = hanging_agent().await;
    let runtime = tokio::runtime::Handle::current();
    let livez = || runtime.block_on(queries::livez(State(app.clone()))).0;
    tokio::task::block_in_place(|| {
        assert_eq!(app.stalled(), None);
        hang.store(true, Ordering::Release);
        eventually("it does not lead", || !leads(&app));
        let text = exposition(&app);
        assert!(text.contains("tenure_is_leader{role=\"job\"} 0"), "{text}");
        eventually("it is not alive", || livez() == StatusCode::SERVICE_UNAVAILABLE);
        hang.store(false, Ordering::Release);
        eventually("it is alive again, and leads", || livez() == StatusCode::OK && leads(&app));
    });
    app.node.stop().await;
}

/// What is exposed while all is well, and once the loop has hung for so long.
pub(crate) fn exposed_by_a_loop_that_hangs(hung: Duration) -> [String; 2] {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        tokio::spawn(async move {
            let (app, hang) = hanging_agent().await;
            let well = exposition(&app);
            hang.store(true, Ordering::Release);
            tokio::task::block_in_place(|| eventually("it hangs", || app.node.since_loop_turn() > hung));
            let texts = [well, exposition(&app)];
            hang.store(false, Ordering::Release);
            app.node.stop().await;
            texts
        })
        .await
        .unwrap()
    })
}
