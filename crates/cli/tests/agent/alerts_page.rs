//! Alerts on the dashboard: seen as they begin, acknowledged by clicking, with why.

use serde_json::{Value, json};
use tenure_torture::servers::free_port;

use crate::browser::{Browser, Size};
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_is_seen_live_and_acknowledged_by_clicking() {
    let (store, hook, port) = (Store::file(), Hook::start(), free_port());
    let more = format!(
        "[[role]]\nname = \"job\"\n[http]\nlisten = [\"127.0.0.1:{port}\"]\nloopback = \"operator\"\n\
         [alerting]\ninterval = \"200ms\"\n[[notify]]\nname = \"hook\"\nurl = \"{}\"\n\
         [[alert]]\nname = \"paused\"\ncondition = \"tenure_roles{{state='paused'}} > 0\"\nseverity = \"critical\"\n\
         summary = \"{{value}} <b>paused</b>\"\ncool-down = \"0s\"\n",
        hook.url()
    );
    let agent = Agent::start(&store, "web-1", &more);
    eventually("it leads", || agent.leads("job") && agent.get("/v1/roles/job").status == 200);
    let browser = Browser::open(&format!("http://127.0.0.1:{port}/"), Size::Desktop).await;
    browser.says("tab-alerts", "Alerts").await;
    browser.hides("alert-badge").await;
    assert_eq!(agent.post("/v1/roles/job/pause", &json!({ "why": "a test" })).status, 200);
    browser.says("alert-badge", "1 alert: paused").await;
    browser.says("tab-alerts", "1").await;
    browser.click("alert-badge").await;
    browser.says("alerts", "no-leader").await;
    // What others chose is text.
    browser.says("alert", "1 <b>paused</b>").await;
    browser.picture("alerts").await;
    browser.run("[...document.querySelectorAll('[data-item=alert]')].find((e) => e.textContent.startsWith('paused')).click()").await;
    browser.says("alert-state", "firing").await;
    browser.says("alert-condition", "tenure_roles{state='paused'} > 0").await;
    browser.says("alert-instances", "1 <b>paused</b>").await;
    browser.says("alert-notified", "hook: firing").await;
    browser.click("acknowledge").await;
    explain(&browser, "I look after it").await;
    browser.says("alert-state", "acknowledged").await;
    browser.says("alert-note", "I look after it").await;
    browser.picture("alert").await;
    browser.click("silence").await;
    explain(&browser, "maintenance").await;
    browser.says("alert-state", "silenced").await;
    browser.click("unsilence").await;
    explain(&browser, "it is over").await;
    browser.says("alert-state", "acknowledged").await;
    browser.click("resolve").await;
    explain(&browser, "it is meant").await;
    browser.says("alert-state", "resolved").await;
    eventually("that it is over was told", || hook.heard("paused", "resolved") == 1);
    let entries = agent.get("/v1/audit").json()["entries"].clone();
    let acts: Vec<&str> =
        entries.as_array().unwrap().iter().filter_map(|entry| entry["act"].as_str()).collect();
    assert_eq!(acts, ["pause", "acknowledge", "silence", "unsilence", "resolve"]);
    let whys: Vec<&str> =
        entries.as_array().unwrap().iter().filter_map(|entry| entry["why"].as_str()).collect();
    assert_eq!(whys, ["a test", "I look after it", "maintenance (for 1h)", "it is over", "it is meant"]);
    let events = browser.run("location.hash = 'events'; return true").await;
    assert_eq!(events, Value::Bool(true));
    browser.says("events", "hook was notified: firing").await;
    browser.close().await;
}

/// Says why, and that it is meant.
async fn explain(browser: &Browser, why: &str) {
    browser.types("confirm-why", why).await;
    browser.click("confirm-yes").await;
    browser.hides("confirm").await;
}
