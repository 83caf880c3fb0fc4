//! What the live servers are, and what they can promise.

use tokio::time::Instant;

use super::bucket::{Cluster, StreamInfo};
use super::error;
use super::operations::Operations;
use super::settings::{Login, NatsSettings};
use super::wire::Info;
use tenure_store::kit::listener::ListenerState;
use tenure_store::{Class, Description, MAX_VALUE, StoreError};

/// Asks the servers.
pub(super) async fn describe(
    operations: &Operations,
    state: &ListenerState,
) -> Result<Description, StoreError> {
    let until = Instant::now() + operations.settings.timeout;
    let connection = operations.connection(until).await?;
    let stream: StreamInfo =
        operations.api(&connection, "STREAM.INFO", "", until).await.map_err(StoreError::only_looked)?;
    if let Some(refusal) = &stream.error {
        return Err(error::of_refusal(&connection.link.place, refusal).only_looked());
    }
    operations.learn(stream.config.facts(&operations.settings.bucket)?);
    let settings = &operations.settings;
    let (class, mut remarks) = classify(&stream, settings.syncs);
    remarks.extend(doubts(&stream, &connection.info, settings));
    if let ListenerState::Failed(why) = state {
        remarks.push(format!("changes are found at the next beat only, because listening failed: {why}"));
    }
    remarks.extend(settings.warning().map(str::to_owned));
    let mut described = Description::new(
        class,
        format!("nats:{}:{}", stream.created, settings.bucket),
        about(&stream, &connection.info, settings),
    );
    described.notifies = *state == ListenerState::Works;
    described.remarks = remarks;
    Ok(described)
}

/// What an acknowledged write survives, and why not more.
fn classify(stream: &StreamInfo, syncs: bool) -> (Class, Vec<String>) {
    let replicas = stream.config.num_replicas;
    let (class, remark) = match (stream.config.storage.as_str(), syncs, replicas) {
        ("memory", ..) => {
            (Class::C, "class C, because the bucket is kept in memory: make one with --storage=file")
        }
        (_, false, _) => (
            Class::C,
            "class C, because JetStream acknowledges writes up to two minutes before they are on disk, unless every server has \
             `jetstream { sync_interval: always }`, which no client can see: set that, then add sync=always to the URL",
        ),
        (_, true, 1) => (
            Class::B,
            "class B, because the bucket has one replica: acknowledged writes last as long as its disk; three replicas survive \
             the loss of one server",
        ),
        (_, true, 2) => {
            (Class::A, "two replicas: the loss of either stops every write; `nats stream edit --replicas=3`")
        }
        (_, true, even) if even % 2 == 0 => {
            (Class::A, "an even number of replicas: one less survives as many losses")
        }
        (_, true, _) => return (Class::A, Vec::new()),
    };
    (class, vec![remark.to_owned()])
}

/// What is wrong, or weaker than it could be.
fn doubts(stream: &StreamInfo, info: &Info, settings: &NatsSettings) -> Vec<String> {
    let mut doubts = Vec::new();
    let replicas = stream.cluster.iter().flat_map(|cluster: &Cluster| &cluster.replicas);
    for replica in replicas {
        if replica.offline {
            doubts.push(format!("replica {} is offline: see whether this server runs", replica.name));
        } else if !replica.current {
            doubts.push(format!("replica {} is behind the others: see its load and its disk", replica.name));
        }
    }
    let (named, copies) = (settings.servers.len(), stream.config.num_replicas);
    if named < copies {
        doubts.push(format!(
            "the URL names {named} of at least {copies} servers, and this node depends on those: name all of them"
        ));
    }
    if !stream.config.allow_msg_ttl {
        doubts.push(
            "marks of deleted registers are kept for ever: `nats kv edit --marker-ttl=24h`, or make the bucket anew".to_owned(),
        );
    }
    if stream.config.max_msgs_per_subject != 1 {
        doubts.push(
            "the bucket keeps old values, which nothing reads, and every beat adds one: `nats kv edit --history=1`".to_owned(),
        );
    }
    if info.max_payload < MAX_VALUE + 1024 {
        doubts.push(format!(
            "the server takes messages of {} bytes, and registers may have {MAX_VALUE} and some more (long histories): set \
             max_payload: 2MB",
            info.max_payload
        ));
    }
    if matches!(settings.login, Login::None) && !info.auth_required {
        doubts.push(
            "rights wider than needed: the server asks for no login, and every client may write every key; `tenure schema \
             --for nats --user NAME` prints what a user of its own needs"
                .to_owned(),
        );
    }
    doubts
}

fn about(stream: &StreamInfo, info: &Info, settings: &NatsSettings) -> String {
    let replicas = match stream.config.num_replicas {
        1 => "1 replica".to_owned(),
        several => format!("{several} replicas"),
    };
    let leader =
        stream.cluster.as_ref().map(|cluster| format!(" led by {}", cluster.leader)).unwrap_or_default();
    format!("NATS {}, bucket {} with {replicas}{leader}, {settings}", info.version, settings.bucket)
}

#[cfg(test)]
mod tests {
    use super::super::bucket::{Replica, StreamConfig};
    use super::*;

    fn stream(replicas: usize) -> StreamInfo {
        StreamInfo {
            config: StreamConfig { num_replicas: replicas, ..StreamConfig::default() },
            ..StreamInfo::default()
        }
    }

    #[test]
    fn only_what_is_on_disk_is_better_than_class_c() {
        let memory =
            StreamInfo { config: StreamConfig { storage: "memory".into(), ..stream(3).config }, ..stream(3) };
        for (stream, syncs, class, part) in [
            (stream(3), false, Class::C, "sync_interval: always"),
            (stream(1), false, Class::C, "sync=always"),
            (memory, true, Class::C, "memory"),
            (stream(1), true, Class::B, "one replica"),
            (stream(2), true, Class::A, "two replicas"),
            (stream(4), true, Class::A, "even number"),
        ] {
            let (found, remarks) = classify(&stream, syncs);
            assert_eq!(found, class, "{stream:?}");
            assert!(remarks.len() == 1 && remarks[0].contains(part), "{remarks:?}");
        }
        assert_eq!(classify(&stream(3), true), (Class::A, Vec::new()));
    }

    #[test]
    fn each_doubt_says_what_to_do() {
        let settings = NatsSettings::parse("nats://u:p@a,b,c").unwrap();
        let info = Info { max_payload: 2 << 20, ..Info::default() };
        assert_eq!(doubts(&stream(3), &info, &settings), Vec::<String>::new());
        let with = |replica: Replica| StreamInfo {
            cluster: Some(Cluster { replicas: vec![replica], ..Cluster::default() }),
            ..stream(3)
        };
        let down = Replica { name: "n2".into(), offline: true, ..Replica::default() };
        let config = |config| StreamInfo { config, ..stream(3) };
        for (stream, url, payload, part) in [
            (with(down.clone()), "nats://u:p@a,b,c", 2 << 20, "n2 is offline"),
            (with(Replica { offline: false, ..down }), "nats://u:p@a,b,c", 2 << 20, "behind"),
            (stream(3), "nats://u:p@a", 2 << 20, "names 1 of"),
            (
                config(StreamConfig { allow_msg_ttl: false, ..StreamConfig::default() }),
                "nats://u:p@a",
                2 << 20,
                "marker-ttl",
            ),
            (
                config(StreamConfig { max_msgs_per_subject: 5, ..StreamConfig::default() }),
                "nats://u:p@a",
                2 << 20,
                "history=1",
            ),
            (stream(1), "nats://u:p@a", 1 << 20, "max_payload"),
            (stream(1), "nats://a", 2 << 20, "no login"),
        ] {
            let info = Info { max_payload: payload, ..Info::default() };
            let doubts = doubts(&stream, &info, &NatsSettings::parse(url).unwrap());
            assert!(doubts.len() == 1 && doubts[0].contains(part), "{part}: {doubts:?}");
        }
    }
}
