//! What is said to etcd's JSON gateway, and what it answers: keys and values in base64, 64-bit numbers as texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, which JSON has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Blob(pub(super) Vec<u8>);

impl From<&str> for Blob {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Blob {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(D::Error::custom)
    }
}

/// A number of 64 bits: a text in answers.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A transaction: if all comparisons hold, what follows is done, otherwise the alternative.
#[derive(Debug, Default, Serialize)]
pub(super) struct Txn {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compare: Vec<Compare>,
    pub(super) success: Vec<Op>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failure: Vec<Op>,
}

/// One comparison.
#[derive(Debug, Serialize)]
pub(super) struct Compare {
    key: Blob,
    target: &'static str,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Blob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_revision: Option<&'static str>,
}

impl Compare {
    /// The key does not exist.
    pub(super) fn absent(key: &str) -> Self {
        let create_revision = Some("0");
        Self { key: key.into(), target: "CREATE", result: "EQUAL", value: None, create_revision }
    }

    /// The key exists, and its value lies between these two, in the order of bytes.
    pub(super) fn between(key: &str, (above, below): (String, String)) -> [Self; 2] {
        let value = |result, value: String| Self {
            key: key.into(),
            target: "VALUE",
            result,
            value: Some(value.into()),
            create_revision: None,
        };
        [value("GREATER", above), value("LESS", below)]
    }
}

/// One step of a transaction.
#[derive(Debug, Serialize)]
pub(super) enum Op {
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_put")]
    Put {
        key: Blob,
        value: Blob,
        #[serde(skip_serializing_if = "Option::is_none")]
        lease: Option<String>,
    },
    #[serde(rename = "request_delete_range")]
    Delete { key: Blob },
    #[serde(rename = "request_txn")]
    Txn(Txn),
}

/// What is read: one key, or all from it to before `range_end`.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Range {
    pub(super) key: Blob,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Blob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sort_order: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sort_target: Option<&'static str>,
}

impl Range {
    pub(super) fn one(key: &str) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Everything whose key begins with this text, which ends with a slash: 0 is what follows a slash.
    pub(super) fn below(prefix: &str) -> Self {
        let end = format!("{}0", prefix.strip_suffix('/').unwrap_or(prefix));
        Self { key: prefix.into(), range_end: Some(end.into()), ..Self::default() }
    }
}

/// A lease is asked for, for so many seconds.
#[derive(Debug, Serialize)]
pub(super) struct Grant {
    #[serde(rename = "TTL")]
    pub(super) ttl: String,
}

/// Which lease is meant.
#[derive(Debug, Serialize)]
pub(super) struct OfLease {
    #[serde(rename = "ID")]
    pub(super) id: String,
}

/// A lease, and how many seconds it has; none if it is gone.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseAnswer {
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(super) ttl: u64,
}

/// The answer to a renewal of a lease.
#[derive(Debug, Deserialize)]
pub(super) struct KeptAlive {
    pub(super) result: LeaseAnswer,
}

/// What every answer begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "number")]
    pub(super) cluster_id: u64,
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnAnswer {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<OpAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OpAnswer {
    pub(super) response_range: Option<RangeAnswer>,
    pub(super) response_txn: Option<TxnAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RangeAnswer {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Blob,
    pub(super) value: Blob,
    #[serde(deserialize_with = "number")]
    pub(super) create_revision: u64,
}

/// A watch is asked for.
#[derive(Debug, Serialize)]
pub(super) struct Watch {
    pub(super) create_request: Range,
}

#[derive(Debug, Deserialize)]
pub(super) struct WatchLine {
    #[serde(default)]
    pub(super) result: WatchAnswer,
    pub(super) error: Option<Refusal>,
}

/// What a watch tells.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchAnswer {
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) cancel_reason: String,
    #[serde(deserialize_with = "number")]
    pub(super) compact_revision: u64,
    pub(super) events: Vec<Event>,
}

/// One change.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    /// Absent for a put.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) kv: KeyValue,
}

/// A user shows its password.
#[derive(Serialize)]
pub(super) struct Authenticate<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a str,
}

/// What it is given for it.
#[derive(Deserialize)]
pub(super) struct Authenticated {
    pub(super) token: String,
}

/// Nothing in particular is asked, or answered.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Nothing {}

/// Which members the cluster has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Members {
    pub(super) members: Vec<Member>,
}

/// One of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Member {
    #[serde(rename = "isLearner")]
    pub(super) is_learner: bool,
}

/// Which alarms are raised.
#[derive(Debug, Serialize)]
pub(super) struct AskAlarms {
    pub(super) action: &'static str,
}

/// Those that are.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Alarms {
    pub(super) alarms: Vec<Alarm>,
}

/// One of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Alarm {
    pub(super) alarm: String,
}

/// How one member is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) version: String,
    #[serde(rename = "isLearner")]
    pub(super) is_learner: bool,
}

/// Why a request was refused: by the gateway of etcd 3.4 and 3.5, or by that of 3.6.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) message: String,
    error: Option<Ignored>,
}

/// A text in one version, an object in another.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Ignored {
    Text(String),
    Other(IgnoredAny),
}

impl Refusal {
    /// What the server says, whatever it wraps it in.
    pub(super) fn read(body: &[u8]) -> Option<String> {
        let refusal: Self = serde_json::from_slice(body).ok()?;
        let told = match refusal.error {
            Some(Ignored::Text(text)) if refusal.message.is_empty() => text,
            Some(Ignored::Other(_)) | None | Some(Ignored::Text(_)) => refusal.message,
        };
        (!told.is_empty()).then_some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_every_version_are_read() {
        for body in [
            r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}"#,
            r#"{"error":"etcdserver: no leader","code":14}"#,
            r#"{"code":14,"message":"etcdserver: no leader","details":[]}"#,
        ] {
            assert_eq!(Refusal::read(body.as_bytes()).as_deref(), Some("etcdserver: no leader"), "{body}");
        }
        for strange in ["", "<html>", "{}", "[]"] {
            assert_eq!(Refusal::read(strange.as_bytes()), None);
        }
    }

    #[test]
    fn a_range_is_everything_below_a_slash() {
        let range = Range::below("tenure/default/7/role/");
        assert_eq!(range.range_end, Some("tenure/default/7/role0".into()));
    }
}
