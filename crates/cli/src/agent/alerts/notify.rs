//! Telling people: webhooks, Slack, PagerDuty. Always over https, but for this very host; never through a redirect or a
//! proxy; never to a link-local address or one where clouds keep their secrets, whatever a name resolves to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name as HostName, Resolve, Resolving};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Serialize;
use serde_json::{Value, json};
use tenure::{Name, Wall};

use super::record::{Failure, Instance};
use crate::output::time::Stamp;

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
    /// Its name.
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
    /// Which alert.
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
    pub instances: Vec<Line>,
    /// Which cluster.
    pub namespace: String,
    /// Which node says so.
    pub node: String,
}

/// A series that fires.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Its labels.
    pub labels: super::keep::Labels,
    /// Its value when it began to fire.
    pub value: Option<f64>,
    /// Since when the condition holds.
    pub since: String,
    /// What it means.
    pub summary: String,
}

impl From<&Instance> for Line {
    fn from(instance: &Instance) -> Self {
        let Instance { labels, value, since, summary } = instance.clone();
        Self { labels, value, since: stamp(since), summary }
    }
}

pub(super) fn stamp(wall: Wall) -> String {
    Stamp(wall).to_string()
}

/// Tells a target, once.
///
/// # Errors
/// Why it was not told. No error shows a secret.
pub async fn tell(target: &Target, channel: Option<&str>, message: &Message) -> Result<(), Failure> {
    let body = match target.kind {
        TargetKind::Webhook => serde_json::to_value(message).unwrap_or_default(),
        TargetKind::Slack => slack(message, channel.or(target.channel.as_deref())),
        TargetKind::PagerDuty => pagerduty(message, target.key.as_ref()),
    };
    let url = check_url(&target.url.0).map_err(hopeless)?;
    let client = client(&url, target.timeout).map_err(hopeless)?;
    let once = format!("{}/{}/{}", message.key, message.news, message.status);
    let mut request = client.post(url).header("idempotency-key", once);
    if let (TargetKind::Webhook, Some(key)) = (target.kind, &target.key) {
        request = request.bearer_auth(&key.0);
    }
    send(request.header("content-type", "application/json").body(body.to_string())).await
}

async fn send(request: RequestBuilder) -> Result<(), Failure> {
    let answer = request.send().await.map_err(|error| {
        let why = deepest(&error.without_url());
        Failure { hopeless: why.contains(REFUSED), why }
    })?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    if status.is_redirection() {
        return Err(hopeless(format!("the answer was {status}, and redirects are not followed")));
    }
    let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    Err(Failure { why: format!("the answer was {status}"), hopeless: status.is_client_error() && !later })
}

/// The last cause says most.
fn deepest(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), deepest)
}

fn hopeless(why: String) -> Failure {
    Failure { why, hopeless: true }
}

/// What another agent exposes.
///
/// # Errors
/// If it does not answer well.
pub async fn scrape(agent: &str, token: Option<&Hidden>, timeout: Duration) -> Result<String, String> {
    const LONGEST: usize = 16 << 20;
    let url = check_url(agent)?.join("/metrics").map_err(|error| error.to_string())?;
    let mut request = client(&url, timeout)?.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(&token.0);
    }
    let mut answer = request.send().await.map_err(|error| deepest(&error.without_url()))?;
    if !answer.status().is_success() {
        return Err(format!("the answer was {}", answer.status()));
    }
    let mut text = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| deepest(&error.without_url()))? {
        text.extend_from_slice(&part);
        if text.len() > LONGEST {
            return Err("the answer is too long".to_owned());
        }
    }
    String::from_utf8(text).map_err(|_| "the answer is not text".to_owned())
}

fn client(url: &Url, timeout: Duration) -> Result<Client, String> {
    // Only the first provider counts, and there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let here = url.scheme() == "http";
    let builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(timeout)
        .https_only(!here)
        .dns_resolver(Arc::new(Guarded { here }));
    builder.build().map_err(|error| error.to_string())
}

const REFUSED: &str = "is not told";

/// Resolves names, and refuses those that lead where nothing is to be told. What it returns is what is connected to.
#[derive(Debug)]
struct Guarded {
    /// Only this host is meant.
    here: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: HostName) -> Resolving {
        let here = self.here;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            for address in &found {
                check_address(address.ip(), here)?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether something may be sent there at all.
///
/// # Errors
/// Why not.
pub fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    let here = match url.scheme() {
        "https" => false,
        "http" => true,
        _ => return Err("a URL begins with https:// (or http:// on this very host)".to_owned()),
    };
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal {
        Ok(address) => check_address(address, here)?,
        Err(_) if here && host != "localhost" => {
            return Err(
                "http:// is for this very host (localhost, 127.0.0.1); elsewhere use https://".to_owned()
            );
        }
        Err(_) => {}
    }
    Ok(url)
}

fn check_address(address: IpAddr, here: bool) -> Result<(), String> {
    let address = plain(address);
    let secrets = [IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), IpAddr::V6(METADATA_V6)];
    let why = match address {
        _ if secrets.contains(&address) => Some("clouds keep their secrets there"),
        IpAddr::V4(address) if address.is_link_local() => Some("it is link-local"),
        IpAddr::V6(address) if address.is_unicast_link_local() => Some("it is link-local"),
        _ if address.is_unspecified() || address.is_multicast() => Some("it is nobody's"),
        IpAddr::V4(address) if address.is_broadcast() || address.octets()[0] == 0 => Some("it is nobody's"),
        _ if here && !address.is_loopback() => Some("http:// is for this very host"),
        _ => None,
    };
    why.map_or(Ok(()), |why| Err(format!("{address} {REFUSED}: {why}")))
}

const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

/// An IPv4 address in the clothes of an IPv6 one is that IPv4 address.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let [a, b, .., c, d] = six.segments();
    let translated = (a, b) == (0x64, 0xff9b);
    match six.to_ipv4_mapped() {
        Some(four) => IpAddr::V4(four),
        None if translated => {
            let ([a, b], [c, d]) = (c.to_be_bytes(), d.to_be_bytes());
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        None => address,
    }
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
        let line =
            Line { labels, value: Some(0.0), since: String::new(), summary: "nobody leads <a>".to_owned() };
        Message {
            version: 1,
            status: "firing",
            alert: "no-leader".to_owned(),
            severity: "critical",
            summary: "nobody leads <a>".to_owned(),
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
        assert_eq!(body["text"], "[firing] no-leader: nobody leads &lt;a&gt; (and 1 more)");
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

    #[test]
    fn what_must_not_be_told_is_refused() {
        for fine in [
            "https://hooks.example/x",
            "https://10.0.0.7/x",
            "http://127.0.0.1:9/x",
            "http://localhost:9/",
            "http://[::1]:9/",
        ] {
            assert!(check_url(fine).is_ok(), "{fine}");
        }
        for wrong in [
            "http://hooks.example/x",
            "http://10.0.0.7/x",
            "ftp://127.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://[fe80::1]/",
            "https://[fd00:ec2::254]/",
            "https://100.100.100.200/",
            "https://[::ffff:169.254.169.254]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://0.0.0.0/",
            "https://[::]/",
            "https://0xa9fea9fe/",
            "https://2852039166/",
            "nonsense",
        ] {
            assert!(check_url(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_is_refused_when_it_is_resolved() {
        let resolve = |here: bool, name: &str| Guarded { here }.resolve(name.parse().unwrap());
        assert!(resolve(true, "localhost").await.is_ok());
        // Numbers are names to a resolver.
        for (here, name) in [(false, "169.254.169.254"), (false, "0.0.0.0"), (true, "10.0.0.7")] {
            let Err(error) = resolve(here, name).await else { panic!("{name}") };
            assert!(error.to_string().contains(REFUSED), "{error}");
        }
    }
}
