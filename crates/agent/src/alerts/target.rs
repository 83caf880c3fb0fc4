//! Notification targets: webhooks, Slack, PagerDuty. Always over https, but for this very host, and as [`crate::outbound`] calls.

use std::fmt;
use std::time::Duration;

use reqwest::{RequestBuilder, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tenure::{Name, Timestamp};

use super::record::{Failure, Instance};
use crate::outbound::{self, Outbound, Plain, REFUSED};
use crate::task::refusal;
use crate::time::Stamp;

/// A secret, which cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(pub String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Who can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub name: Name,
    /// How it wants to be told.
    pub kind: TargetKind,
    /// Where. Slack's holds a secret.
    pub url: Hidden,
    /// PagerDuty's routing key, or a webhook's token.
    pub key: Option<Hidden>,
    /// Slack's channel.
    pub channel: Option<String>,
    /// How long it may take to answer.
    pub timeout: Duration,
}

/// How a target wants to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// JSON of our own.
    Webhook,
    /// An incoming webhook of Slack.
    Slack,
    /// Events of PagerDuty, version 2.
    PagerDuty,
}

/// Where PagerDuty is told, if nothing else is said.
pub const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

impl TargetKind {
    /// As a file spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::PagerDuty => "pagerduty",
        }
    }
}

/// What a target is told.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// The form of this message.
    pub version: u32,
    /// firing or resolved.
    pub status: &'static str,
    pub alert: String,
    /// critical, warning or info.
    pub severity: &'static str,
    /// What it means, in one line.
    pub summary: String,
    /// When it holds.
    pub condition: String,
    /// Since when it fires.
    pub since: String,
    /// The same for everything that is said of one episode.
    pub key: String,
    /// Counts what was said of this episode.
    pub news: u32,
    /// How many series fire.
    pub total: usize,
    /// The first of them.
    pub instances: Vec<MessageInstance>,
    /// Which cluster.
    pub namespace: String,
    /// Which node says so.
    pub node: String,
}

/// A series that fires.
#[derive(Debug, Clone, Serialize)]
pub struct MessageInstance {
    pub labels: super::samples::Labels,
    /// Its value when it began to fire.
    pub value: Option<f64>,
    /// Since when the condition holds.
    pub since: String,
    /// What it means.
    pub summary: String,
}

impl From<&Instance> for MessageInstance {
    fn from(instance: &Instance) -> Self {
        let Instance { labels, value, since, summary } = instance.clone();
        Self { labels, value, since: stamp(since), summary }
    }
}

pub(super) fn stamp(wall: Timestamp) -> String {
    Stamp(wall).to_string()
}

/// Tells a target, once.
///
/// # Errors
/// Why it was not told. No error shows a secret.
pub async fn notify(
    outbound: &Outbound,
    target: &Target,
    channel: Option<&str>,
    message: &Message,
) -> Result<(), Failure> {
    let body = match target.kind {
        TargetKind::Webhook => serde_json::to_value(message).unwrap_or_default(),
        TargetKind::Slack => slack(message, channel.or(target.channel.as_deref())),
        TargetKind::PagerDuty => pagerduty(message, target.key.as_ref()),
    };
    let url = outbound::parse(&target.url.0).map_err(permanent)?;
    let client = outbound.client(&url, Plain::ThisHost, target.timeout).map_err(permanent)?;
    let once = format!("{}/{}/{}", message.key, message.news, message.status);
    let mut request = client.post(url).header("idempotency-key", once);
    if let (TargetKind::Webhook, Some(key)) = (target.kind, &target.key) {
        request = request.bearer_auth(&key.0);
    }
    send(request.header("content-type", "application/json").body(body.to_string())).await
}

async fn send(request: RequestBuilder) -> Result<(), Failure> {
    let answer = request.send().await.map_err(|error| {
        let why = outbound::why(error);
        Failure { permanent: why.contains(REFUSED), why }
    })?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    if status.is_redirection() {
        return Err(permanent(refusal(status)));
    }
    let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    Err(Failure { why: refusal(status), permanent: status.is_client_error() && !later })
}

fn permanent(why: String) -> Failure {
    Failure { why, permanent: true }
}

/// What another agent exposes.
///
/// # Errors
/// If it does not answer well.
pub async fn scrape(
    outbound: &Outbound,
    agent: &str,
    token: Option<&Hidden>,
    timeout: Duration,
) -> Result<String, String> {
    const LONGEST: usize = 16 << 20;
    let url = outbound::parse(agent)?.join("/metrics").map_err(|error| error.to_string())?;
    let mut request = outbound.client(&url, Plain::ThisHost, timeout)?.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(&token.0);
    }
    let mut answer = request.send().await.map_err(outbound::why)?;
    if !answer.status().is_success() {
        return Err(format!("the answer was {}", answer.status()));
    }
    let mut text = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(outbound::why)? {
        text.extend_from_slice(&part);
        if text.len() > LONGEST {
            return Err("the answer is too long".to_owned());
        }
    }
    String::from_utf8(text).map_err(|_| "the answer is not text".to_owned())
}

fn headline(message: &Message) -> String {
    let more = match message.total {
        0 | 1 => String::new(),
        total => format!(" (and {} more)", total - 1),
    };
    format!("[{}] {}: {}{more}", message.status, message.alert, message.summary)
}

fn slack(message: &Message, channel: Option<&str>) -> Value {
    let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let colour = match (message.status, message.severity) {
        ("resolved", _) => "good",
        (_, "critical") => "danger",
        _ => "warning",
    };
    let lines: Vec<String> = message.instances.iter().take(10).map(|line| safe(&line.summary)).collect();
    let details = format!("{}\n`{}`", lines.join("\n"), safe(&message.condition));
    let footer = format!("{} by {}", safe(&message.namespace), safe(&message.node));
    let mut body = json!({
        "text": safe(&headline(message)),
        "attachments": [{ "color": colour, "text": details, "footer": footer, "mrkdwn_in": ["text"] }],
    });
    if let Some(channel) = channel {
        body["channel"] = channel.into();
    }
    body
}

fn pagerduty(message: &Message, key: Option<&Hidden>) -> Value {
    let action = if message.status == "resolved" { "resolve" } else { "trigger" };
    let summary: String = headline(message).chars().take(1024).collect();
    json!({
        "routing_key": key.map(|key| key.0.as_str()).unwrap_or_default(),
        "event_action": action,
        "dedup_key": message.key,
        "payload": {
            "summary": summary,
            "source": message.node,
            "severity": message.severity,
            "timestamp": message.since,
            "component": message.namespace,
            "class": message.alert,
            "custom_details": { "condition": message.condition, "instances": message.instances },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let labels = [("role".to_owned(), "<a>".to_owned())].into();
        let line = MessageInstance {
            labels,
            value: Some(0.0),
            since: String::new(),
            summary: "no node leads <a>".to_owned(),
        };
        Message {
            version: 1,
            status: "firing",
            alert: "no-leader".to_owned(),
            severity: "critical",
            summary: "no node leads <a>".to_owned(),
            condition: "tenure_led < 1".to_owned(),
            since: "2030-01-01T00:00:00Z".to_owned(),
            key: "tenure/default/no-leader/7".to_owned(),
            news: 1,
            total: 2,
            instances: vec![line],
            namespace: "default".to_owned(),
            node: "web-1".to_owned(),
        }
    }

    #[test]
    fn slack_gets_text_that_is_not_markup_and_a_channel() {
        let body = slack(&message(), Some("#ops"));
        assert_eq!(body["channel"], "#ops");
        assert_eq!(body["text"], "[firing] no-leader: no node leads &lt;a&gt; (and 1 more)");
        assert_eq!(body["attachments"][0]["color"], "danger");
        assert!(body["attachments"][0]["text"].as_str().unwrap().contains("`tenure_led &lt; 1`"));
    }

    #[test]
    fn pagerduty_gets_one_incident_for_an_episode() {
        let key = Hidden("R0UT1NG".to_owned());
        let body = pagerduty(&message(), Some(&key));
        assert_eq!((&body["event_action"], &body["routing_key"]), (&json!("trigger"), &json!("R0UT1NG")));
        assert_eq!(body["payload"]["severity"], "critical");
        let over = pagerduty(&Message { status: "resolved", ..message() }, Some(&key));
        assert_eq!((&over["event_action"], &over["dedup_key"]), (&json!("resolve"), &body["dedup_key"]));
        assert!(!format!("{key:?}").contains("R0UT1NG"));
    }
}
