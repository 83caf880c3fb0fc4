//! Every key of the configuration is shown by a test to change what happens, and not only what was read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tenure_agent::config::keys::KEYS;

/// Which test shows what each key does. Keys of one table are named by their last part.
const SHOWN: &[(&str, &str, &[&str])] = &[
    ("a_node_is_who_it_says_it_is_and_where", "", &["store", "namespace"]),
    ("a_node_is_who_it_says_it_is_and_where", "node.", &["name", "address", "labels"]),
    ("each_look_at_a_role_is_told_where_that_is_wanted", "node.", &["election-checks"]),
    (
        "every_time_that_is_set_moves_a_bound",
        "timing.",
        &[
            "profile",
            "ttl",
            "beat",
            "beat-at-most",
            "op-timeout",
            "op-timeout-at-most",
            "stop-grace",
            "kill-slack",
            "takeover",
            "grace",
            "clock-error-ppm",
        ],
    ),
    ("what_runs_is_wound_down_as_it_says", "timing.", &["drain"]),
    ("an_agent_answers_while_its_store_is_not_up_yet", "timing.", &["store-timeout"]),
    ("a_node_stands_only_for_what_it_may_lead", "candidacy.", &["eligible", "requires", "takeover-delay"]),
    (
        "a_node_stands_only_for_what_it_may_lead",
        "role[].",
        &["name", "eligible", "requires", "takeover-delay"],
    ),
    ("priority_counts_where_a_node_asks_for_it", "candidacy.", &["priority", "preempt", "min-tenure"]),
    ("priority_counts_where_a_node_asks_for_it", "role[].", &["priority", "preempt", "min-tenure"]),
    ("a_command_is_started_again_as_it_says", "candidacy.", &["cool-down"]),
    ("a_command_is_started_again_as_it_says", "role[].", &["cool-down"]),
    ("a_role_that_the_agent_holds_is_not_campaigned_for", "role[].", &["mode"]),
    ("migration_goes_step_by_step", "candidacy.", &["migration"]),
    ("migration_goes_step_by_step", "role[].", &["migration", "static-leader"]),
    ("every_event_has_a_scene_that_causes_it", "role[].", &["guard"]),
    ("what_runs_is_wound_down_as_it_says", "role[].", &["drain"]),
    ("what_runs_is_wound_down_as_it_says", "work[].", &["drain"]),
    ("what_runs_is_wound_down_as_it_says", "task[].", &["on-stop"]),
    (
        "a_command_runs_for_the_role_and_in_the_order_that_it_says",
        "work[].",
        &["name", "role", "command", "order"],
    ),
    ("a_command_is_started_again_as_it_says", "work[].", &["restart", "backoff", "max-restarts", "window"]),
    ("a_command_is_asked_how_it_is_as_it_says", "work[].", &["ready-within"]),
    (
        "a_command_is_asked_how_it_is_as_it_says",
        "work[].health.",
        &["command", "http", "every", "within", "failures"],
    ),
    ("a_task_runs_where_and_for_whom_it_says", "task[].", &["name", "role", "where", "command"]),
    (
        "ticks_come_overlap_and_are_delayed_as_the_task_says",
        "task[].",
        &["cron", "every", "zone", "overlap", "jitter"],
    ),
    (
        "a_run_is_ended_tried_again_and_kept_as_its_task_says",
        "task[].",
        &["timeout", "retries", "backoff", "history"],
    ),
    ("missed_ticks_are_caught_up_as_the_task_says", "task[].", &["late", "catch-up"]),
    ("what_its_leader_left_is_run_again_if_the_task_says_so", "task[].", &["rerun"]),
    ("a_call_is_made_as_its_task_says", "task[].http.", &["url", "method", "headers", "body"]),
    (
        "what_is_open_at_once_is_limited_as_it_is_said",
        "http.",
        &["socket", "socket-mode", "connections", "streams", "events-kept"],
    ),
    ("connections_that_say_nothing_keep_no_client_out", "http.", &["connections-per-client"]),
    ("wrong_tokens_are_slowed_down_and_on_record", "http.", &["auth-failures"]),
    ("redirects_within_one_origin_are_followed_if_that_is_said", "outbound.", &["redirects"]),
    ("a_proxy_is_used_only_if_the_configuration_names_it", "outbound.", &["proxy"]),
    ("where_clouds_keep_their_secrets_nothing_is_sent", "outbound.", &["link-local"]),
    ("a_request_takes_no_longer_than_it_may", "http.", &["request-timeout"]),
    ("a_named_user_may_act_and_others_may_look", "http.", &["operators", "loopback"]),
    (
        "over_tcp_a_token_is_asked_for_and_strange_pages_are_turned_away",
        "http.",
        &["listen", "tokens", "hosts"],
    ),
    ("over_tls_the_agent_answers_and_in_clear_it_does_not", "http.", &["tls-cert", "tls-key"]),
    ("what_is_wrong_is_named", "http.", &["max-body"]),
    (
        "on_loopback_without_tokens_one_may_look_but_not_act_and_not_too_often",
        "http.",
        &["rate", "streams-per-client"],
    ),
    ("rules_change_by_a_reload", "alerting.", &["defaults"]),
    ("a_named_target_is_told_in_its_own_way", "alerting.", &["notify", "scrape", "scrape-token"]),
    ("alerts_are_told_when_and_as_often_as_they_say", "alerting.", &["interval"]),
    ("a_named_target_is_told_in_its_own_way", "alert[].", &["name", "condition", "severity", "notify"]),
    ("alerts_are_told_when_and_as_often_as_they_say", "alert[].", &["for", "cool-down", "repeat", "summary"]),
    ("the_agent_that_told_people_last_tells_that_the_store_is_gone", "alert[].", &["without-store"]),
    (
        "a_named_target_is_told_in_its_own_way",
        "notify[].",
        &["name", "kind", "url", "url-file", "url-env", "key-file", "key-env", "channel"],
    ),
    ("alerts_are_told_when_and_as_often_as_they_say", "notify[].", &["timeout"]),
    ("commands_of_an_agent_inherit_no_secret_unless_told", "children.", &["pass-env"]),
    ("every_metric_is_there_from_the_beginning_with_its_meaning", "metrics.", &["prefix"]),
    ("with_many_roles_pages_are_small_and_metrics_are_added_up", "metrics.", &["roles"]),
];

#[test]
fn every_key_changes_what_happens_and_none_is_forgotten() {
    let shown: Vec<String> = SHOWN
        .iter()
        .flat_map(|(_, table, keys)| keys.iter().map(move |key| format!("{table}{key}")))
        .collect();
    let once: BTreeSet<&str> = shown.iter().map(String::as_str).collect();
    assert_eq!(once.len(), shown.len(), "each is named once");
    let there: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    let missing: Vec<_> = there.difference(&once).collect();
    assert!(missing.is_empty(), "no test shows what these do: {missing:?}");
    assert_eq!(once, there, "and nothing else is shown");
    let tests = tests();
    for (test, table, keys) in SHOWN {
        let text = tests.get(*test).unwrap_or_else(|| panic!("there is no test {test}"));
        for key in *keys {
            assert!(text.contains(key), "{test} does not speak of {table}{key}");
        }
    }
}

/// The files in which the tests of this crate are, each under the names of its tests.
fn tests() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![here.join("src"), here.join("tests"), here.join("../agent/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("keys.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.extend(names(&text).map(|name| (name, text.clone())).collect::<Vec<_>>());
            }
        }
    }
    found
}

/// The functions that follow `#[test]`.
fn names(text: &str) -> impl Iterator<Item = String> {
    let after = |part: &str| {
        let name = part.split_once("fn ")?.1.split_once('(')?.0;
        Some(name.to_owned())
    };
    let marks = text.split("#[test]").skip(1).chain(text.split("#[tokio::test").skip(1));
    marks.filter_map(after).collect::<Vec<_>>().into_iter()
}
