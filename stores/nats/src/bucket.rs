//! The bucket: the stream that holds it, how it is made, and what it must be like.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::STORE;
use super::error::Refusal;
use tenure_store::StoreError;

/// How long the mark of a deletion is kept: it only has to outlast reads that are under way.
pub(super) const MARKER_TTL: &str = "24h";

/// What is known of the bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BucketFacts {
    /// Copies of the stream.
    pub(super) replicas: usize,
    /// Whether marks of deletions may expire.
    pub(super) marker_ttl: bool,
}

/// An answer about a stream.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamInfo {
    pub(super) error: Option<Refusal>,
    pub(super) config: StreamConfig,
    pub(super) created: String,
    pub(super) state: StreamState,
    pub(super) cluster: Option<Cluster>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamState {
    pub(super) last_seq: u64,
    /// How many messages each subject has, if that was asked for.
    pub(super) subjects: Option<std::collections::BTreeMap<String, u64>>,
}

/// The servers that hold the copies.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cluster {
    pub(super) leader: String,
    pub(super) replicas: Vec<Replica>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) current: bool,
    pub(super) offline: bool,
}

/// What a stream is like, as far as it matters. Numbers are -1 where there is no limit.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub(super) struct StreamConfig {
    pub(super) subjects: Vec<String>,
    pub(super) retention: String,
    pub(super) discard: String,
    pub(super) storage: String,
    pub(super) num_replicas: usize,
    pub(super) max_age: u64,
    pub(super) max_msgs: i64,
    pub(super) max_bytes: i64,
    pub(super) max_msgs_per_subject: i64,
    pub(super) allow_direct: bool,
    pub(super) allow_msg_ttl: bool,
    pub(super) sealed: bool,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            subjects: Vec::new(),
            retention: "limits".to_owned(),
            discard: "new".to_owned(),
            storage: "file".to_owned(),
            num_replicas: 1,
            max_age: 0,
            max_msgs: -1,
            max_bytes: -1,
            max_msgs_per_subject: 1,
            allow_direct: true,
            allow_msg_ttl: true,
            sealed: false,
        }
    }
}

/// A bucket as `nats kv add` makes it, with one value for each key.
pub(super) fn create(bucket: &str, replicas: usize) -> String {
    let stream = json!({
        "name": format!("KV_{bucket}"),
        "description": "Registers of Tenure: who leads what",
        "subjects": [format!("$KV.{bucket}.>")],
        "retention": "limits",
        "discard": "new",
        "storage": "file",
        "num_replicas": replicas,
        "max_age": 0,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "max_msgs_per_subject": 1,
        "allow_direct": true,
        "allow_msg_ttl": true,
        "allow_rollup_hdrs": true,
        "deny_delete": true,
    });
    stream.to_string()
}

/// Asks about the subjects too that a filter fits, from one of them on.
#[derive(Debug, Serialize)]
pub(super) struct AskSubjects<'a> {
    pub(super) subjects_filter: &'a str,
    pub(super) offset: usize,
}

impl StreamConfig {
    /// What is known of it; a bucket that forgets, or that cannot be read, is refused.
    pub(super) fn facts(&self, bucket: &str) -> Result<BucketFacts, StoreError> {
        let set = |what: String| format!("cannot use the bucket {bucket}: {what}");
        let fault = if !self.subjects.iter().any(|subject| *subject == format!("$KV.{bucket}.>")) {
            "its stream has other subjects than a KV bucket, or is a mirror: make another one".to_owned()
        } else if self.max_age != 0 {
            "it forgets values after a while (max_age): `nats kv edit --ttl=0`, or make one without --ttl"
                .to_owned()
        } else if self.retention != "limits" || self.max_msgs > 0 {
            "it forgets values (retention, max_msgs): make another one with `nats kv add --history=1`"
                .to_owned()
        } else if self.max_bytes > 0 && self.discard != "new" {
            "it forgets old values when it is full (discard): set `discard: new`".to_owned()
        } else if !self.allow_direct {
            "it does not let several keys be read at once: set `allow_direct: true` (nats stream edit --allow-direct)".to_owned()
        } else if self.sealed {
            "it is sealed, and takes no writes".to_owned()
        } else {
            return Ok(BucketFacts { replicas: self.num_replicas.max(1), marker_ttl: self.allow_msg_ttl });
        };
        Err(StoreError::not_applied(STORE, set(fault)).permanent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_that_is_made_is_one_that_can_be_used() {
        let made: StreamConfig = serde_json::from_str(&create("b", 3)).unwrap();
        assert_eq!(made.facts("b").unwrap(), BucketFacts { replicas: 3, marker_ttl: true });
    }

    #[test]
    fn a_bucket_that_forgets_is_refused() {
        let good = StreamConfig { subjects: vec!["$KV.b.>".into()], ..StreamConfig::default() };
        assert!(good.facts("b").is_ok() && good.facts("c").is_err());
        for (bad, part) in [
            (StreamConfig { max_age: 5, ..good.clone() }, "max_age"),
            (StreamConfig { max_msgs: 5, ..good.clone() }, "max_msgs"),
            (StreamConfig { retention: "interest".into(), ..good.clone() }, "retention"),
            (StreamConfig { max_bytes: 5, discard: "old".into(), ..good.clone() }, "discard"),
            (StreamConfig { allow_direct: false, ..good.clone() }, "allow_direct"),
            (StreamConfig { sealed: true, ..good.clone() }, "sealed"),
            (StreamConfig { subjects: Vec::new(), ..good.clone() }, "mirror"),
        ] {
            let error = bad.facts("b").unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
