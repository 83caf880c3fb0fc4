//! Asking an agent: what commands use instead of a store.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::{Method, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure::history::RoleHistory;
use tenure::operator::{ClusterChange, ClusterSnapshot};
use tenure::{Leader, Name, Token};

use super::alerts::target::Hidden;
use crate::Error;
use crate::model::{ActionOutcome, AuditItem, AuditPage, HistoryPage, NodesPage, RolesPage};
use crate::model::{TaskStatus, TaskTriggered, TasksPage};
use crate::outbound;
use crate::text::sanitize;

/// An agent that has not answered the first question, or a probe, by then is frozen or hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// An agent, reached through its socket or over TCP.
#[derive(Debug)]
pub struct Agent {
    http: reqwest::Client,
    place: String,
    base: String,
    token: Option<Hidden>,
    pub namespace: Name,
}

/// Changes as they come over a stream.
pub struct Changes {
    bytes: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    unread: Vec<u8>,
}

impl Agent {
    /// Connects to a socket's path, or to a URL. A token is taken from `TENURE_AGENT_TOKEN`; in clear it leaves this host only if
    /// `plaintext` says so.
    ///
    /// # Errors
    /// If no agent answers there, or the token would be sent in clear.
    pub async fn connect(place: &str, plaintext: bool) -> Result<Self, Error> {
        let mut agent = Self::at(place, plaintext)?;
        let cluster: Value = agent.in_time(agent.get("/v1/cluster")).await?;
        let namespace = cluster["namespace"].as_str().unwrap_or_default();
        agent.namespace = Name::new(namespace).map_err(|error| agent.odd(&error.to_string()))?;
        Ok(agent)
    }

    /// As [`connect`](Self::connect), without asking anything yet, so that its namespace is not known: an agent that is short of
    /// connections answers probes, and nothing else.
    ///
    /// # Errors
    /// If the token would be sent in clear.
    pub fn at(place: &str, plaintext: bool) -> Result<Self, Error> {
        let url = place.starts_with("http://") || place.starts_with("https://");
        let base = if url { place.trim_end_matches('/') } else { "http://localhost" };
        let http = client(place).map_err(|error| unreachable(place, &error))?;
        let (place, base) = (place.to_owned(), base.to_owned());
        let namespace =
            Name::new(tenure::DEFAULT_NAMESPACE).map_err(|error| Error::Failed(error.to_string()))?;
        let token = std::env::var("TENURE_AGENT_TOKEN").ok().filter(|token| !token.is_empty()).map(Hidden);
        if token.is_some() && url && !plaintext {
            check_token(&base)?;
        }
        Ok(Self { http, place, base, token, namespace })
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
            let (place, limit) = (&self.place, PATIENCE.as_secs());
            Err(Error::Store(format!(
                "the agent at {place} does not answer within {limit}s: see whether it hangs"
            )))
        })
    }

    async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Result<Response, Error> {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(Hidden(token)) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        request.send().await.map_err(|error| unreachable(&self.place, &error))
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Response, Error> {
        let response = self.request(method, path, body).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let problem: Value =
            serde_json::from_str(&response.text().await.unwrap_or_default()).unwrap_or_default();
        let detail = problem["detail"].as_str().map_or_else(|| status.to_string(), sanitize);
        Err(match status.as_u16() {
            400 => Error::Invalid(detail),
            503 => Error::Store(detail),
            500.. => Error::Failed(detail),
            _ => Error::Refused(detail),
        })
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Error> {
        let text = self.send(method, path, body).await?.text().await;
        let text = text.map_err(|error| unreachable(&self.place, &error))?;
        serde_json::from_str(&text).map_err(|error| self.odd(&error.to_string()))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.ask(Method::GET, path, None).await
    }

    /// How much it has room for.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn limits(&self) -> Result<crate::model::AgentLimits, Error> {
        #[derive(serde::Deserialize)]
        struct Cluster {
            limits: crate::model::AgentLimits,
        }
        Ok(self.get::<Cluster>("/v1/cluster").await?.limits)
    }

    /// What a probe answers: whether the answer is yes, and what it says.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn probe(&self, path: &str) -> Result<(bool, Value), Error> {
        self.in_time(self.probed(path)).await
    }

    async fn probed(&self, path: &str) -> Result<(bool, Value), Error> {
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
    pub async fn alerts(&self) -> Result<crate::model::AlertsPage, Error> {
        self.get("/v1/alerts").await
    }

    /// Does something about an alert.
    ///
    /// # Errors
    /// If it refuses.
    pub async fn alert(&self, alert: &Name, action: &str, body: Value) -> Result<ActionOutcome, Error> {
        match action {
            "unsilence" => {
                let why = body["why"].as_str().unwrap_or_default();
                self.take_back(&format!("/v1/alerts/{alert}/silence"), why).await
            }
            _ => self.act(&format!("/v1/alerts/{alert}/{action}"), body).await,
        }
    }

    async fn act(&self, path: &str, mut body: Value) -> Result<ActionOutcome, Error> {
        body["by"] = crate::identity::whoami().into();
        self.ask(Method::POST, path, Some(body)).await
    }

    /// What takes something back says why behind the question mark.
    async fn take_back(&self, path: &str, why: &str) -> Result<ActionOutcome, Error> {
        let by = crate::identity::whoami();
        let url = reqwest::Url::parse_with_params(&self.base, [("why", why), ("by", &by)]);
        let url = url.map_err(|error| Error::Invalid(format!("{}: {error}", self.base)))?;
        self.ask(Method::DELETE, &format!("{path}?{}", url.query().unwrap_or_default()), None).await
    }

    fn odd(&self, why: &str) -> Error {
        Error::Failed(format!("cannot read the answer of the agent at {}: {}", self.place, sanitize(why)))
    }

    /// Everything, as the agent saw it last.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn snapshot(&self) -> Result<ClusterSnapshot, Error> {
        let mut snapshot = ClusterSnapshot::default();
        let mut after = String::new();
        loop {
            let page: RolesPage = self.get(&format!("/v1/roles?limit=1000{after}")).await?;
            let Some(age) = page.seen_ms_ago else {
                let said = page.store_error.unwrap_or_else(|| "it does not answer".to_owned());
                return Err(Error::Store(format!(
                    "the agent at {} has not reached its store yet: {said}",
                    self.place
                )));
            };
            snapshot.age = Duration::from_millis(age);
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
    pub async fn history(&self, role: Option<&Name>) -> Result<BTreeMap<Name, RoleHistory>, Error> {
        let mut books = BTreeMap::<Name, RoleHistory>::new();
        let mut query = role.map_or_else(|| "limit=100".to_owned(), |role| format!("role={role}"));
        loop {
            let page: HistoryPage = self.get(&format!("/v1/history?{query}")).await?;
            for entry in &page.tenures {
                let past = entry.past().map_err(|why| self.odd(&why))?;
                let role = Name::new(&entry.role).map_err(|error| self.odd(&error.to_string()))?;
                books.entry(role).or_default().tenures.push(past);
            }
            let Some(next) = page.next else { return Ok(books) };
            query = format!("limit=100&after={next}");
        }
    }

    /// What operators did.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn audit(&self) -> Result<Vec<AuditItem>, Error> {
        let audit: AuditPage = self.get("/v1/audit").await?;
        Ok(audit.entries)
    }

    /// What changes from now on.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn changes(&self) -> Result<Changes, Error> {
        let response = self.send(Method::GET, "/v1/events", None).await?;
        let bytes = response.bytes_stream().map(|bytes| bytes.map(|bytes| bytes.to_vec())).boxed();
        Ok(Changes { bytes, unread: Vec::new() })
    }

    /// Hands a role to a node.
    ///
    /// # Errors
    /// If it was not handed over.
    pub async fn transfer(&self, role: &Name, to: &Name, why: &str, wait: Duration) -> Result<Leader, Error> {
        let body = json!({ "to": to.as_str(), "why": why, "wait": span(wait) });
        self.led(self.act(&format!("/v1/roles/{role}/transfer"), body).await?)
    }

    /// Transfers a role to a node at a given time.
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
    ) -> Result<ActionOutcome, Error> {
        let body = json!({ "to": to.as_str(), "why": why, "wait": span(wait), "at": at });
        self.act(&format!("/v1/roles/{role}/transfer"), body).await
    }

    /// Makes the leader of a role give it up.
    ///
    /// # Errors
    /// If no node led or leads.
    pub async fn step_down(&self, role: &Name, why: &str, wait: Duration) -> Result<Leader, Error> {
        let body = json!({ "why": why, "wait": span(wait) });
        self.led(self.act(&format!("/v1/roles/{role}/step-down"), body).await?)
    }

    fn led(&self, done: ActionOutcome) -> Result<Leader, Error> {
        let node =
            Name::new(done.leader.unwrap_or_default()).map_err(|error| self.odd(&error.to_string()))?;
        Ok(Leader::new(node, Token::new(done.token.unwrap_or_default()), done.address))
    }

    /// Lets no node lead a role; the leader that has not given up in time.
    ///
    /// # Errors
    /// If it was not paused.
    pub async fn pause(&self, role: &Name, why: &str, wait: Duration) -> Result<Option<Name>, Error> {
        let body = json!({ "why": why, "wait": span(wait) });
        let done = self.act(&format!("/v1/roles/{role}/pause"), body).await?;
        done.leader.map(Name::new).transpose().map_err(|error| self.odd(&error.to_string()))
    }

    /// Lets a role be led again; false if it was not paused.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn resume(&self, role: &Name, why: &str) -> Result<bool, Error> {
        Ok(self.act(&format!("/v1/roles/{role}/resume"), json!({ "why": why })).await?.changed)
    }

    /// Hides a role without candidates from status, metrics and alerts.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn forget(&self, role: &Name, why: &str) -> Result<(), Error> {
        self.act(&format!("/v1/roles/{role}/forget"), json!({ "why": why })).await.map(drop)
    }

    /// Ties a role to a node, or unties it.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn pin(&self, role: &Name, to: Option<&Name>, why: &str) -> Result<(), Error> {
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
    pub async fn drain(&self, node: &Name, drain: bool, why: &str) -> Result<(), Error> {
        let path = format!("/v1/nodes/{node}/drain");
        match drain {
            true => self.act(&path, json!({ "why": why })).await.map(|_| ()),
            false => self.take_back(&path, why).await.map(|_| ()),
        }
    }

    /// Sets whether the agent's node claims a role.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn eligible(&self, role: &Name, eligible: bool, why: &str) -> Result<ActionOutcome, Error> {
        let body = json!({ "eligible": eligible, "why": why });
        self.act(&format!("/v1/roles/{role}/eligible"), body).await
    }

    /// The ledgers of all tasks, or of one, with all the runs that are kept.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn tasks(&self, task: Option<&Name>) -> Result<Vec<TaskStatus>, Error> {
        if let Some(task) = task {
            let found = self.get::<TasksPage>(&format!("/v1/tasks/{task}")).await;
            return match found {
                Ok(page) => Ok(page.tasks),
                // That there is none is an answer.
                Err(Error::Refused(_)) => Ok(Vec::new()),
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
    pub async fn trigger_task(&self, task: &Name, why: &str) -> Result<String, Error> {
        let body = json!({ "why": why, "by": crate::identity::whoami() });
        let path = format!("/v1/tasks/{task}/trigger");
        Ok(self.ask::<TaskTriggered>(Method::POST, &path, Some(body)).await?.trigger)
    }

    /// Lets the ticks of a task pass; false if it was paused already.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn pause_task(&self, task: &Name, why: &str) -> Result<bool, Error> {
        Ok(self.act(&format!("/v1/tasks/{task}/pause"), json!({ "why": why })).await?.changed)
    }

    /// Lets a paused task run again; false if it was not paused.
    ///
    /// # Errors
    /// If the agent refuses.
    pub async fn resume_task(&self, task: &Name, why: &str) -> Result<bool, Error> {
        Ok(self.act(&format!("/v1/tasks/{task}/resume"), json!({ "why": why })).await?.changed)
    }

    /// Withdraws a transfer that the leader has not agreed to; false if there is none.
    ///
    /// # Errors
    /// If the agent cannot be reached.
    pub async fn withdraw_request(&self, role: &Name) -> Result<bool, Error> {
        match self.take_back(&format!("/v1/roles/{role}/transfer"), "interrupted").await {
            Ok(_) => Ok(true),
            Err(Error::Refused(_)) => Ok(false),
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
    /// If the agent closed the stream.
    pub async fn next(&mut self) -> Result<Vec<ClusterChange>, Error> {
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
                _ => return Err(Error::Refused("the agent closed the stream".to_owned())),
            }
        }
    }
}

/// What an event of the stream says about the cluster, if it does.
fn change_in(event: &str) -> Option<ClusterChange> {
    let data = event.lines().find_map(|line| line.strip_prefix("data:"))?;
    let value: Value = serde_json::from_str(data).ok()?;
    (value["scope"] == "cluster").then(|| serde_json::from_value(value).ok()).flatten()
}

fn client(place: &str) -> Result<reqwest::Client, reqwest::Error> {
    let tls = place.starts_with("https://");
    if tls || place.starts_with("http://") {
        outbound::bare(tls).build()
    } else {
        outbound::bare(tls).unix_socket(place.trim_start_matches("unix:")).build()
    }
}

/// Whether a token may be sent there: over TLS, or without leaving this host.
fn check_token(base: &str) -> Result<(), Error> {
    match reqwest::Url::parse(base) {
        Ok(url) if url.scheme() == "https" || outbound::is_this_host(&url) => Ok(()),
        _ => Err(Error::Invalid(format!(
            "cannot send TENURE_AGENT_TOKEN to {base}: the network could read it; use https://, a Unix socket or a \
             loopback address, or allow it with --allow-plaintext-token"
        ))),
    }
}

fn unreachable(place: &str, error: &reqwest::Error) -> Error {
    Error::Store(format!("cannot reach the agent at {place}: {}", outbound::deepest(error)))
}

fn span(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}
