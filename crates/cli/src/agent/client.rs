//! Asking an agent: what commands use instead of a store.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::{Method, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure::history::History;
use tenure::operator::{Change, Snapshot};
use tenure::{Leader, Name, Token};

use super::http::tasks::{TaskView, TasksPage, Triggered};
use super::http::views::{AuditView, DeedView, Done, HistoryView, NodesPage, RolesPage};
use crate::exit::Exit;

/// An agent, reached through its socket or over TCP.
#[derive(Debug)]
pub struct Agent {
    http: reqwest::Client,
    place: String,
    base: String,
    /// The namespace it is in.
    pub namespace: Name,
}

/// Changes as they come over a stream.
pub struct Changes {
    bytes: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    unread: Vec<u8>,
}

impl Agent {
    /// Connects to a socket's path, or to a URL. A token is taken from `TENURE_AGENT_TOKEN`.
    ///
    /// # Errors
    /// If nobody answers there.
    pub async fn connect(place: &str) -> Result<Self, Exit> {
        let url = place.starts_with("http://") || place.starts_with("https://");
        let base = if url { place.trim_end_matches('/') } else { "http://localhost" };
        let http = client((!url).then_some(place)).map_err(|error| unreachable(place, &error))?;
        let (place, base) = (place.to_owned(), base.to_owned());
        let namespace =
            Name::new(tenure::DEFAULT_NAMESPACE).map_err(|error| Exit::Failed(error.to_string()))?;
        let mut agent = Self { http, place, base, namespace };
        let cluster: Value = agent.get("/v1/cluster").await?;
        let namespace = cluster["namespace"].as_str().unwrap_or_default();
        agent.namespace = Name::new(namespace).map_err(|error| agent.odd(&error.to_string()))?;
        Ok(agent)
    }

    async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Result<Response, Exit> {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Ok(token) = std::env::var("TENURE_AGENT_TOKEN") {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        request.send().await.map_err(|error| unreachable(&self.place, &error))
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Response, Exit> {
        let response = self.request(method, path, body).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let problem: Value =
            serde_json::from_str(&response.text().await.unwrap_or_default()).unwrap_or_default();
        let detail = problem["detail"].as_str().map_or_else(|| status.to_string(), str::to_owned);
        Err(match status.as_u16() {
            400 => Exit::Usage(detail),
            503 => Exit::Store(detail),
            500.. => Exit::Failed(detail),
            _ => Exit::No(detail),
        })
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Exit> {
        let text = self.send(method, path, body).await?.text().await;
        let text = text.map_err(|error| unreachable(&self.place, &error))?;
        serde_json::from_str(&text).map_err(|error| self.odd(&error.to_string()))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Exit> {
        self.ask(Method::GET, path, None).await
    }

    /// What a probe answers: whether the answer is yes, and what it says.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn probe(&self, path: &str) -> Result<(bool, Value), Exit> {
        let response = self.request(Method::GET, path, None).await?;
        let well = response.status().is_success();
        let text = response.text().await.map_err(|error| unreachable(&self.place, &error))?;
        let said = serde_json::from_str(&text).map_err(|error| self.odd(&error.to_string()))?;
        Ok((well, said))
    }

    /// Every alert, as the agent evaluates it.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn alerts(&self) -> Result<super::http::alerts::AlertsView, Exit> {
        self.get("/v1/alerts").await
    }

    /// Does something about an alert.
    ///
    /// # Errors
    /// If it refuses.
    pub async fn alert(&self, alert: &Name, deed: &str, body: Value) -> Result<Done, Exit> {
        match deed {
            "unsilence" => {
                let why = body["why"].as_str().unwrap_or_default();
                self.take_back(&format!("/v1/alerts/{alert}/silence"), why).await
            }
            _ => self.act(&format!("/v1/alerts/{alert}/{deed}"), body).await,
        }
    }

    async fn act(&self, path: &str, mut body: Value) -> Result<Done, Exit> {
        body["by"] = crate::verbs::whoami().into();
        self.ask(Method::POST, path, Some(body)).await
    }

    /// What takes something back says why behind the question mark.
    async fn take_back(&self, path: &str, why: &str) -> Result<Done, Exit> {
        let by = crate::verbs::whoami();
        let url = reqwest::Url::parse_with_params(&self.base, [("why", why), ("by", &by)]);
        let url = url.map_err(|error| Exit::Usage(format!("{}: {error}", self.base)))?;
        self.ask(Method::DELETE, &format!("{path}?{}", url.query().unwrap_or_default()), None).await
    }

    fn odd(&self, why: &str) -> Exit {
        Exit::Failed(format!("the agent at {} answers oddly: {why}", self.place))
    }

    /// Everything, as the agent saw it last.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn snapshot(&self) -> Result<Snapshot, Exit> {
        let mut snapshot = Snapshot::default();
        let mut after = String::new();
        loop {
            let page: RolesPage = self.get(&format!("/v1/roles?limit=1000{after}")).await?;
            for role in &page.roles {
                snapshot.roles.push(role.report().map_err(|why| self.odd(&why))?);
            }
            let Some(next) = page.next else { break };
            after = format!("&after={next}");
        }
        after.clear();
        loop {
            let page: NodesPage = self.get(&format!("/v1/nodes?limit=1000{after}")).await?;
            for node in &page.nodes {
                snapshot.nodes.push(node.report().map_err(|why| self.odd(&why))?);
            }
            let Some(next) = page.next else { return Ok(snapshot) };
            after = format!("&after={next}");
        }
    }

    /// Past tenures, of one role or of all.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn history(&self, role: Option<&Name>) -> Result<BTreeMap<Name, History>, Exit> {
        let mut books = BTreeMap::new();
        let mut query = role.map_or_else(|| "limit=100".to_owned(), |role| format!("role={role}"));
        loop {
            let page: HistoryView = self.get(&format!("/v1/history?{query}")).await?;
            for (role, tenures) in &page.roles {
                let tenures: Result<Vec<_>, String> =
                    tenures.iter().map(super::http::views::PastView::past).collect();
                let tenures = tenures.map_err(|why| self.odd(&why))?;
                let role = Name::new(role).map_err(|error| self.odd(&error.to_string()))?;
                books.insert(role, History { tenures });
            }
            let Some(next) = page.next else { return Ok(books) };
            query = format!("limit=100&after={next}");
        }
    }

    /// What operators did.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn audit(&self) -> Result<Vec<DeedView>, Exit> {
        let audit: AuditView = self.get("/v1/audit").await?;
        Ok(audit.deeds)
    }

    /// What changes from now on.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn changes(&self) -> Result<Changes, Exit> {
        let response = self.send(Method::GET, "/v1/events", None).await?;
        let bytes = response.bytes_stream().map(|bytes| bytes.map(|bytes| bytes.to_vec())).boxed();
        Ok(Changes { bytes, unread: Vec::new() })
    }

    /// Hands a role to a node.
    ///
    /// # Errors
    /// If it was not handed over.
    pub async fn transfer(&self, role: &Name, to: &Name, why: &str, wait: Duration) -> Result<Leader, Exit> {
        let body = json!({ "to": to.as_str(), "why": why, "wait": span(wait) });
        self.led(self.act(&format!("/v1/roles/{role}/transfer"), body).await?)
    }

    /// Hands a role to a node at a given time. Returns what the agent says.
    ///
    /// # Errors
    /// If it does not agree.
    pub async fn transfer_at(
        &self,
        role: &Name,
        to: &Name,
        why: &str,
        wait: Duration,
        at: &str,
    ) -> Result<String, Exit> {
        let body = json!({ "to": to.as_str(), "why": why, "wait": span(wait), "at": at });
        Ok(self.act(&format!("/v1/roles/{role}/transfer"), body).await?.done)
    }

    /// Makes the leader of a role give it up.
    ///
    /// # Errors
    /// If nobody led or leads.
    pub async fn step_down(&self, role: &Name, why: &str, wait: Duration) -> Result<Leader, Exit> {
        let body = json!({ "why": why, "wait": span(wait) });
        self.led(self.act(&format!("/v1/roles/{role}/step-down"), body).await?)
    }

    fn led(&self, done: Done) -> Result<Leader, Exit> {
        let node =
            Name::new(done.leader.unwrap_or_default()).map_err(|error| self.odd(&error.to_string()))?;
        Ok(Leader { node, token: Token(done.token.unwrap_or_default()), address: done.address })
    }

    /// Lets nobody lead a role; the leader that has not given up in time.
    ///
    /// # Errors
    /// If it was not paused.
    pub async fn pause(&self, role: &Name, why: &str, wait: Duration) -> Result<Option<Name>, Exit> {
        let body = json!({ "why": why, "wait": span(wait) });
        let done = self.act(&format!("/v1/roles/{role}/pause"), body).await?;
        done.leader.map(Name::new).transpose().map_err(|error| self.odd(&error.to_string()))
    }

    /// Lets a role be led again; false if it was not paused.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn resume(&self, role: &Name, why: &str) -> Result<bool, Exit> {
        let done = self.act(&format!("/v1/roles/{role}/resume"), json!({ "why": why })).await?;
        Ok(done.done.ends_with("is resumed"))
    }

    /// Ties a role to a node, or unties it.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn pin(&self, role: &Name, to: Option<&Name>, why: &str) -> Result<(), Exit> {
        let path = format!("/v1/roles/{role}/pin");
        match to {
            Some(node) => self.act(&path, json!({ "node": node.as_str(), "why": why })).await.map(|_| ()),
            None => self.take_back(&path, why).await.map(|_| ()),
        }
    }

    /// Makes a node give up its roles, or lets it stand again.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn drain(&self, node: &Name, drain: bool, why: &str) -> Result<(), Exit> {
        let path = format!("/v1/nodes/{node}/drain");
        match drain {
            true => self.act(&path, json!({ "why": why })).await.map(|_| ()),
            false => self.take_back(&path, why).await.map(|_| ()),
        }
    }

    /// Makes the agent's node claim a role, or only follow. Returns what the agent says.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn eligible(&self, role: &Name, eligible: bool, why: &str) -> Result<String, Exit> {
        let body = json!({ "eligible": eligible, "why": why });
        Ok(self.act(&format!("/v1/roles/{role}/eligible"), body).await?.done)
    }

    /// The ledgers of all tasks, or of one, with all the runs that are kept.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn tasks(&self, task: Option<&Name>) -> Result<Vec<TaskView>, Exit> {
        if let Some(task) = task {
            let found = self.get::<TasksPage>(&format!("/v1/tasks/{task}")).await;
            return match found {
                Ok(page) => Ok(page.tasks),
                // That there is none is an answer.
                Err(Exit::No(_)) => Ok(Vec::new()),
                Err(exit) => Err(exit),
            };
        }
        let (mut tasks, mut after) = (Vec::new(), String::new());
        loop {
            let page: TasksPage = self.get(&format!("/v1/tasks?limit=1000&runs=200{after}")).await?;
            tasks.extend(page.tasks);
            let Some(next) = page.next else { return Ok(tasks) };
            after = format!("&after={next}");
        }
    }

    /// Asks for a run; what the run that answers it carries.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn trigger_task(&self, task: &Name, why: &str) -> Result<String, Exit> {
        let body = json!({ "why": why, "by": crate::verbs::whoami() });
        let path = format!("/v1/tasks/{task}/trigger");
        Ok(self.ask::<Triggered>(Method::POST, &path, Some(body)).await?.trigger)
    }

    /// Lets the ticks of a task pass; false if it was paused already.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn pause_task(&self, task: &Name, why: &str) -> Result<bool, Exit> {
        let done = self.act(&format!("/v1/tasks/{task}/pause"), json!({ "why": why })).await?;
        Ok(done.done.ends_with("is paused"))
    }

    /// Lets a paused task run again; false if it was not paused.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn resume_task(&self, task: &Name, why: &str) -> Result<bool, Exit> {
        let done = self.act(&format!("/v1/tasks/{task}/resume"), json!({ "why": why })).await?;
        Ok(done.done.ends_with("is resumed"))
    }

    /// Withdraws a transfer that the leader has not agreed to; false if there is none.
    ///
    /// # Errors
    /// If the agent cannot be reached.
    pub async fn withdraw_request(&self, role: &Name) -> Result<bool, Exit> {
        match self.take_back(&format!("/v1/roles/{role}/transfer"), "interrupted").await {
            Ok(_) => Ok(true),
            Err(Exit::No(_)) => Ok(false),
            Err(exit) => Err(exit),
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the agent at {}", self.place)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

impl Changes {
    /// The next change of the cluster.
    ///
    /// # Errors
    /// If the agent has gone away.
    pub async fn next(&mut self) -> Result<Vec<Change>, Exit> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.unread.drain(..end + 2).collect();
                match change_in(&String::from_utf8_lossy(&event)) {
                    Some(change) => return Ok(vec![change]),
                    None => continue,
                }
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.unread.extend_from_slice(&bytes),
                _ => return Err(Exit::No("the agent has gone away".to_owned())),
            }
        }
    }
}

/// What an event of the stream says about the cluster, if it does.
fn change_in(event: &str) -> Option<Change> {
    let data = event.lines().find_map(|line| line.strip_prefix("data:"))?;
    let value: Value = serde_json::from_str(data).ok()?;
    (value["scope"] == "cluster").then(|| serde_json::from_value(value).ok()).flatten()
}

fn client(socket: Option<&str>) -> Result<reqwest::Client, reqwest::Error> {
    // Whoever was first is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    match socket {
        Some(path) => builder.unix_socket(path.trim_start_matches("unix:")).build(),
        None => builder.build(),
    }
}

fn unreachable(place: &str, error: &reqwest::Error) -> Exit {
    let mut why: &dyn std::error::Error = error;
    while let Some(source) = why.source() {
        why = source;
    }
    Exit::Store(format!("the agent at {place} cannot be reached: {why}"))
}

fn span(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}
