//! Whatever people write as a URL, and whatever a register holds: an answer or a refusal, never a panic, never a secret.

use proptest::prelude::*;
use tenure::store::{Epoch, Key, Kind, Name, Value};

fn config() -> ProptestConfig {
    let cases = if std::env::var_os("TENURE_LONG").is_some() { 20_000 } else { 500 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn schemes() -> impl Strategy<Value = String> {
    let known = [
        "redis",
        "rediss",
        "redis+sentinel",
        "redis+unix",
        "postgres",
        "postgresql",
        "mysql",
        "mariadb",
        "peers",
    ];
    prop_oneof![proptest::sample::select(known.to_vec()).prop_map(str::to_owned), "[a-z+]{0,8}"]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn urls_are_opened_or_refused_without_the_secret(
        scheme in schemes().prop_filter("files would be made", |scheme| !["sqlite", "memory"].contains(&scheme.as_str())),
        user in "[a-z%@:]{0,6}",
        rest in "[a-z0-9:/?&=,%#.\\[\\] ]{0,40}",
    ) {
        let shown = shown(&format!("{scheme}://{user}:hunter2@{rest}"));
        prop_assert!(!shown.contains("hunter2"), "{shown} shows a secret");
    }

    #[test]
    fn any_text_is_a_record_or_foreign(text in any::<String>(), kind in 0..6_usize) {
        read_as(KINDS[kind], &text);
    }
}

const KINDS: [Kind; 6] =
    [Kind::Node, Kind::Role, Kind::RoleControl, Kind::NodeControl, Kind::Task, Kind::History];

fn read_as(kind: Kind, text: &str) {
    let key = Key::Named(Epoch::new(1), kind, Name::new("a").unwrap());
    let value = Value { json: text.into(), token: None };
    let _ = value.to_record(&key);
}

/// All that people may get to see of a store that was opened, or of why it was not.
fn shown(url: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    match tenure::store::open(url) {
        Ok(store) => format!("{store} {store:?}"),
        Err(error) => format!("{error} {error:?}"),
    }
}

/// What is known to be nasty, or did harm once.
#[test]
fn the_corpus_is_opened_or_refused() {
    for url in include_str!("../corpus/urls.txt").lines() {
        let shown = shown(url);
        assert!(!shown.contains("hunter2"), "{shown} shows a secret");
    }
    for record in include_str!("../corpus/records.txt").lines() {
        KINDS.into_iter().for_each(|kind| read_as(kind, record));
    }
}
