//! `tenure task list`, `history`, `trigger`, `pause`, `resume`: for people and for programs.

use serde_json::{Value, json};

use crate::kit::{TestDir, often};

#[test]
fn tasks_are_listed_triggered_paused_and_resumed() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&["doctor"]).code, Some(0), "it makes the file");
    let nothing = dir.run(&["task", "list"]);
    assert_eq!((nothing.code, nothing.out.contains("No task")), (Some(0), true), "{nothing:?}");
    let rare = json!({ "name": "rare", "cron": "30 2 1 1 *", "zone": "Europe/Vienna" });
    let node = dir.node("a", &[often("often", &json!({})), rare]);
    dir.until_run("often", |run| run["state"] == "succeeded");

    let listed = dir.json(&["task", "list"]);
    let of =
        |name: &str| listed["tasks"].as_array().unwrap().iter().find(|task| task["task"] == name).cloned();
    let rare = of("rare").unwrap();
    assert_eq!(
        (&rare["role"], &rare["when"], &rare["zone"]),
        (&json!("scheduler"), &json!("30 2 1 1 *"), &json!("Europe/Vienna"))
    );
    assert_eq!(
        (&rare["state"], &rare["last"], &rare["totals"]["runs"]),
        (&json!("waiting"), &Value::Null, &json!(0))
    );
    assert!(rare["next"].as_str().unwrap().ends_with("-01-01T01:30:00.000Z"), "{rare}");
    assert!(of("often").unwrap()["totals"]["runs"].as_u64().unwrap() > 0);
    let table = dir.run(&["task", "list"]).out;
    assert!(table.contains("TASK") && table.contains("30 2 1 1 * Europe/Vienna"), "{table}");

    let asked = dir.run(&["task", "trigger", "rare", "--why", "to see it"]);
    assert_eq!((asked.code, asked.out.contains("rare succeeded on a")), (Some(0), true), "{asked:?}");
    let history = dir.json(&["task", "history", "rare"]);
    assert_eq!(history["runs"].as_array().unwrap().len(), 1);
    assert!(history["runs"][0]["trigger"].is_string());
    assert!(dir.run(&["task", "history", "rare"]).out.contains("triggered"));

    let paused = dir.json(&["task", "pause", "often", "--why", "the disk is full"]);
    assert_eq!((&paused["state"], &paused["changed"]), (&json!("paused"), &json!(true)));
    let again = dir.run(&["task", "pause", "often"]);
    assert!(again.out.contains("already paused"), "{again:?}");
    dir.until_run("often", |run| {
        run["state"] == "skipped" && run["why"].as_str().unwrap().contains("tester@")
    });
    let listed = dir.json(&["task", "list", "often"]);
    let task = &listed["tasks"][0];
    assert_eq!((&task["state"], &task["paused"]["why"]), (&json!("paused"), &json!("the disk is full")));
    let resumed = dir.run(&["task", "resume", "often"]);
    assert!(resumed.out.contains("often is resumed"), "{resumed:?}");
    assert_eq!(dir.json(&["task", "resume", "often"])["changed"], json!(false));
    node.stop();
}

#[test]
fn what_cannot_be_is_told_with_what_to_do() {
    let dir = TestDir::new();
    let node = dir.node("a", &[often("nightly", &json!({}))]);
    dir.until_run("nightly", |run| run["state"] == "succeeded");
    for verb in ["list", "history", "trigger", "pause", "resume"] {
        let ran = dir.run(&["task", verb, "nighty"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("did you mean nightly?"), "{ran:?}");
    }
    node.stop();
    let ran = dir.run(&["task", "trigger", "nightly", "--wait", "300ms"]);
    assert_eq!((ran.code, ran.err.contains("no node runs it now")), (Some(1), true), "{ran:?}");
    let node = dir.node("b", &[often("nightly", &json!({}))]);
    dir.until_run("nightly", |run| run["trigger"].is_string() && run["node"] == "b");
    node.stop();
}
