//! Versions beside each other: what protocol 1 wrote is read for ever, what newer ones add is left out, and a node that finds a
//! newer protocol than its own stays out.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure::operator::{AuditEntry, Remedy};
use tenure::store::{Fate, Retry};
use tenure::{EndReason, history, ledger};
use tenure_core::record::{Cluster, NodeControl, PROTOCOL, Role, RoleControl, Session};

use super::*;

/// How a record of that kind is read and written again.
type Rewrite = fn(&str) -> serde_json::Result<Json>;

fn rewrite<T: DeserializeOwned + Serialize>(text: &str) -> serde_json::Result<Json> {
    serde_json::to_value(serde_json::from_str::<T>(text)?)
}

const KINDS: [(&str, Rewrite); 9] = [
    ("cluster", rewrite::<Cluster>),
    ("session", rewrite::<Session>),
    ("node", rewrite::<tenure_core::record::Node>),
    ("role", rewrite::<Role>),
    ("control/role", rewrite::<RoleControl>),
    ("control/node", rewrite::<NodeControl>),
    ("task", rewrite::<ledger::TaskRecord>),
    ("history", rewrite::<history::RoleHistory>),
    ("audit", rewrite::<Vec<AuditEntry>>),
];

fn recorded() -> Vec<(&'static str, Rewrite, &'static str)> {
    let lines = include_str!("../corpus/protocol-1.txt").lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &'static str| {
        let mut words = line.splitn(3, ' ');
        let (kind, _, text) = (words.next()?, words.next()?, words.next()?);
        KINDS.iter().find(|(known, _)| *known == kind).map(|(kind, rewrite)| (*kind, *rewrite, text))
    };
    lines.map(|line| parse(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn what_protocol_1_wrote_is_read_and_written_as_it_was() {
    let recorded = recorded();
    for (kind, rewrite, text) in &recorded {
        let again = rewrite(text).unwrap_or_else(|error| panic!("{kind}: {error}: {text}"));
        assert_eq!(again, serde_json::from_str::<Json>(text).unwrap(), "{kind}");
    }
    for (kind, _) in KINDS {
        assert!(recorded.iter().any(|(recorded, ..)| *recorded == kind), "{kind} is not among them");
    }
}

#[test]
fn fields_that_a_newer_version_adds_are_left_out() {
    for (kind, rewrite, text) in recorded().into_iter().filter(|(kind, ..)| *kind != "audit") {
        let plain: Json = serde_json::from_str(text).unwrap();
        let mut more = plain.clone();
        more["added-later"] = json!({ "anything": [1, "two"] });
        assert_eq!(rewrite(&more.to_string()).unwrap(), plain, "{kind}");
    }
}

/// What a later version may make of the register: all that stays is the name of the field.
fn newer() -> String {
    json!({ "epoch": "in another form", "protocol": PROTOCOL + 1, "leases": { "longest": "5s" } }).to_string()
}

async fn leads(member: &Member) -> bool {
    let both = async {
        while !(member.leads(0) && member.leads(1)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, both).await.is_ok()
}

async fn stays_out(open: impl Fn() -> SharedStore) {
    let store = open();
    let member = Member::start(open(), "a").await;
    let mut told = std::pin::pin!(member.node.events().filter_map(|event| async move {
        match &event.kind {
            EventKind::NewerProtocol { protocol } => Some(Err(*protocol)),
            EventKind::SessionOver { reason, .. } => Some(Ok(*reason)),
            _ => None,
        }
    }));
    assert!(leads(&member).await);
    let before = read(&store, &Key::Cluster).await.unwrap().value;
    put(&store, Key::Cluster, &newer(), None).await;
    assert_eq!(soon(told.next()).await, Some(Err(PROTOCOL + 1)));
    assert_eq!(soon(told.next()).await, Some(Ok(EndReason::NewerProtocol)));
    assert!(!member.leads(0) && !member.leads(1));

    // Nor does anything else of this version take part, or change what it cannot know.
    let said = format!("speak protocol {}, and this version speaks {PROTOCOL}: upgrade", PROTOCOL + 1);
    let refused = soon(Node::builder_with_store(open()).name("b").start()).await.unwrap_err();
    assert!(refused.to_string().contains(&said), "{refused}");
    let tenure::Error::Store(refused) = refused else { panic!("{refused}") };
    assert_eq!((refused.retry(), refused.fate()), (Retry::Never, Fate::NotApplied));
    let operator = Operator::new(open(), space(), "tester");
    let answers = [
        operator.pause(&name(ROLES[0]), "a test", PATIENCE).await.map(|_| ()),
        operator.drain(&name("a"), true, "a test").await.map(|_| ()),
        operator.snapshot().await.map(|_| ()),
        operator.history(None).await.map(|_| ()),
    ];
    for answer in answers {
        assert!(answer.is_err_and(|error| error.to_string().contains(&said)));
    }
    let found = operator.find_damage().await.unwrap();
    assert!(
        matches!(&found[..], [only] if only.remedy == Remedy::None && only.problem.contains(&said)),
        "{found:?}"
    );
    assert!(operator.repair(&found, "a test").await.unwrap().is_empty());
    assert_eq!(&*read(&store, &Key::Cluster).await.unwrap().value.json, newer());

    // The upgrade was taken back.
    put(&store, Key::Cluster, &before.json, None).await;
    assert!(leads(&member).await);
    soon(member.node.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_meets_a_newer_protocol_stays_out_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tenure.db");
    stays_out(|| Arc::new(tenure::store::Sqlite::open(&path).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_meets_a_newer_protocol_stays_out_in_redis() {
    let server = tenure_torture::servers::redis::start(tenure_torture::servers::redis::DURABLE);
    let url = format!("redis://{}/0", server.address());
    stays_out(|| tenure::store::open(&url).unwrap()).await;
}
