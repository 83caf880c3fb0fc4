//! The dashboard as people see it: a real browser, real agents, real stores. Pictures are kept under target/screenshots.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::store::{Key, Kind, MAX_BATCH, Name, Query, Version, Write};
use tenure_agent::ui::ITEMS;
use tenure_torture::servers::free_port;

use crate::browser::{Browser, Size};
use crate::kit::{Agent, Store, eventually};

/// An agent with a page, at any port or at this one: markup in a label, and what clients on loopback may do.
fn agent(store: &Store, name: &str, port: u16, loopback: &str) -> Agent {
    let roles = ["scheduler", "mailer", "billing"].map(|role| format!("[[role]]\nname = \"{role}\"\n"));
    let more = format!(
        "{}[node.labels]\nzone = \"eu-{name}\"\nmotto = \"<img src=x onerror=alert(1)>\"\n\
         [http]\nlisten = [\"127.0.0.1:{port}\"]\nloopback = \"{loopback}\"\n",
        roles.concat()
    );
    Agent::start(store, name, &more)
}

fn url(port: u16, place: &str) -> String {
    format!("http://127.0.0.1:{port}/{place}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fail_over_is_seen_live_and_operators_act_by_clicking() {
    let store = Store::file();
    let port = free_port();
    let mut leader = agent(&store, "web-1", 0, "read");
    eventually("it leads", || ["scheduler", "mailer", "billing"].iter().all(|role| leader.leads(role)));
    let watched = agent(&store, "web-2", port, "operator");
    let _third = agent(&store, "web-3", 0, "read");
    eventually("all stand", || {
        watched.get("/v1/roles/scheduler").json()["candidates"].as_array().is_some_and(|all| all.len() == 2)
    });
    let browser = Browser::open(&url(port, ""), Size::Desktop).await;
    browser.run("window.sameLife = true").await;
    everything_is_there(&browser).await;
    fail_over(&browser, &mut leader).await;
    timeline(&browser).await;
    transfer(&browser, &watched).await;
    other_acts(&browser, &watched).await;
    assert_eq!(browser.run("return window.sameLife").await, json!(true), "it was never loaded again");
    browser.close().await;
}

async fn everything_is_there(browser: &Browser) {
    browser.says("health", "healthy").await;
    browser.says("place", "seen by web-2").await;
    browser.says("roles", "scheduler").await;
    browser.says("role", "web-1").await;
    browser.says("lease", " s").await;
    browser.says("role-states", "led 3").await;
    // What happened before the page was opened is there.
    browser.click("tab-events").await;
    browser.until("document.querySelectorAll('[data-item=event]').length > 0").await;
    browser.click("tab-roles").await;
    browser.until("document.querySelectorAll('[data-item=hour] .n0, [data-item=hour] [data-kind=tenure]').length >= 3").await;
    let first = FIRST;
    browser.click("sort").await;
    browser.until(&format!("{first} === 'billing'")).await;
    browser.click("sort").await;
    browser.until(&format!("{first} === 'scheduler'")).await;
    browser.run("document.querySelector('[data-sort=trouble]').click()").await;
    browser.until(&format!("{first} === 'billing'")).await;
    browser.says("hour", "").await;
    browser.click("tab-nodes").await;
    browser.says("nodes", "web-3").await;
    browser.says("node", "live").await;
    // What others chose is text.
    browser.says("labels", "motto=<img src=x onerror=alert(1)>").await;
    assert_eq!(browser.run("return document.querySelectorAll('main img').length").await, json!(0));
    // By keyboard: views, the list, details, and back.
    let press = "(document.activeElement ?? document.body)\
                 .dispatchEvent(new KeyboardEvent('keydown', { key: KEY, bubbles: true }))";
    let press = |key: &str| press.replace("KEY", &json!(key).to_string());
    browser.run(&press("1")).await;
    browser.says("roles", "billing").await;
    browser.run("document.querySelector('#roles .scroll').focus()").await;
    for key in ["End", "Enter"] {
        browser.run(&press(key)).await;
    }
    browser.says("detail", "scheduler").await;
    browser.says("role-state", "led").await;
    browser.says("role-leader", "web-1").await;
    browser.says("role-token", "1 (first)").await;
    browser.says("role-duration", "since").await;
    browser.says("role-lease", " s").await;
    browser.says("candidates", "web-3").await;
    browser.click("help").await;
    browser.says("keys", "search").await;
    browser.run("document.getElementById('keys').close()").await;
}

async fn fail_over(browser: &Browser, leader: &mut Agent) {
    leader.process.signal(Signal::KILL);
    leader.process.kill();
    browser
        .until("[...document.querySelectorAll('[data-item=role] .leader')].every((e) => ['web-2', 'web-3'].includes(e.textContent))")
        .await;
    browser.says("role-token", "2 (takeover)").await;
    browser.says("tenures", "web-1 token 1").await;
    browser.click("tab-events").await;
    browser.says("event-filters", "leaders").await;
    browser.run("document.querySelector('[data-chip=leaders]').click()").await;
    browser.says("events", "token 2 (takeover)").await;
    browser.run("document.querySelector('[data-chip=leaders]').click()").await;
    browser.run("document.querySelector('[data-chip=nodes]').click()").await;
    browser.says("event", "was expelled").await;
    browser
        .until("[...document.querySelectorAll('[data-item=event]')].every((e) => e.dataset.kind.startsWith('node-'))")
        .await;
    browser.run("document.querySelector('[data-chip=nodes]').click()").await;
    browser.picture("events").await;
}

async fn timeline(browser: &Browser) {
    browser.click("tab-timeline").await;
    browser.says("timeline", "scheduler").await;
    browser.says("lane", "mailer").await;
    browser.says("legend", "No leader for").await;
    browser.says("zoom", "the last").await;
    browser.click("zoom-all").await;
    // The window moves on with the time: all there is, each time it is looked at.
    let all = "document.querySelector('#timeline [data-item=zoom-all]').click()";
    let count =
        |kind: &str| format!("document.querySelectorAll('#timeline .lane [data-kind={kind}]').length");
    browser.until(&format!("({all}, {} >= 6 && {} >= 3)", count("tenure"), count("gap"))).await;
    browser.until("document.querySelectorAll('#timeline [data-item=axis] .tick').length > 0").await;
    browser.item("axis").await;
    browser.run("document.querySelector('#timeline .lane .gap').focus()").await;
    browser.says("tip", "no leader for").await;
    browser.says("tip", "after web-1: expelled").await;
    browser.picture("timeline").await;

    // Zoomed by buttons, wheel and keys.
    let range = "return document.querySelector('#timeline .range').textContent";
    let mut seen = vec![browser.run(range).await];
    let over = "document.querySelector('#timeline .lane')";
    let wheel = format!(
        "{over}.dispatchEvent(new WheelEvent('wheel', {{ deltaY: 100, bubbles: true, cancelable: true }}))"
    );
    let key = format!(
        "{over}.firstChild.dispatchEvent(new KeyboardEvent('keydown', {{ key: '-', bubbles: true }}))"
    );
    browser.click("zoom-in").await;
    seen.push(browser.run(range).await);
    browser.click("zoom-out").await;
    browser.run(&wheel).await;
    seen.push(browser.run(range).await);
    browser.run(&key).await;
    seen.push(browser.run(range).await);
    browser.click("earlier").await;
    let earlier = browser.run(range).await;
    assert!(earlier.as_str().unwrap().contains("until"), "{earlier}");
    browser.click("later").await;
    for pair in seen.windows(2) {
        assert_ne!(pair[0], pair[1], "{seen:?}");
    }
}

async fn transfer(browser: &Browser, watched: &Agent) {
    browser.click("tab-roles").await;
    browser.until("[...document.querySelectorAll('[data-item=candidates] li')].length === 1").await;
    let to = watched.role("scheduler")["candidates"][0].as_str().unwrap().to_owned();
    browser.click("transfer").await;
    browser.says("confirm", "Transfer scheduler").await;
    browser.says("confirm-to", &to).await;
    browser.picture("transfer").await;
    // Nothing is done without a reason.
    browser.click("confirm-yes").await;
    assert_eq!(browser.run("return document.getElementById('confirm').open").await, json!(true));
    assert_eq!(watched.get("/v1/audit").json()["entries"], json!([]));
    browser.types("confirm-why", "deploy of <b>tonight</b>").await;
    browser.types("confirm-by", "Ada").await;
    browser.click("confirm-yes").await;
    browser.said("toast", &format!("{to} leads scheduler")).await;
    browser.says("role-leader", &to).await;
    browser.says("role-timeline", &to).await;
    browser.says("role-audit", "deploy of <b>tonight</b>").await;
    browser.click("tab-audit").await;
    browser.says("audit", "Ada (as 127.0.0.1)").await;
    browser.says("audit-entry", "deploy of <b>tonight</b>").await;
    let entry = &watched.get("/v1/audit").json()["entries"][0];
    assert_eq!((&entry["act"], &entry["why"]), (&json!("transfer"), &json!("deploy of <b>tonight</b>")));
}

async fn other_acts(browser: &Browser, watched: &Agent) {
    browser.click("tab-roles").await;
    let token = watched.role("scheduler")["token"].as_u64().unwrap();
    browser.click("step-down").await;
    browser.types("confirm-why", "a test").await;
    browser.click("confirm-yes").await;
    browser.says("role-token", &(token + 1).to_string()).await;
    browser.click("pause").await;
    browser.click("confirm-no").await;
    browser.click("pause").await;
    browser.types("confirm-why", "an upgrade").await;
    browser.click("confirm-yes").await;
    browser.says("role-note", "Paused by Ada (as 127.0.0.1): an upgrade").await;
    browser.says("role-states", "paused 1").await;
    browser.says("act-why", "Step down: it is paused").await;
    browser.until("document.querySelector('[data-item=step-down]').disabled").await;
    browser.says("role-duration", "no leader for").await;
    browser.until(&format!("{FIRST} === 'scheduler'")).await;
    browser.says("health", "healthy").await;
    browser.click("health").await;
    browser.says("health-why", "paused by an operator: scheduler").await;
    browser.click("resume").await;
    browser.types("confirm-why", "done").await;
    browser.click("confirm-yes").await;
    browser.says("role-state", "led").await;
    browser.picture("role").await;

    browser.click("detail-close").await;
    browser.hides("detail").await;
    browser.run("location.hash = 'nodes/node/web-3'").await;
    browser.says("node-state", "live").await;
    browser.says("node-labels", "zone=eu-web-3").await;
    browser.says("node-version", env!("CARGO_PKG_VERSION")).await;
    browser.says("node-host", &rustix::system::uname().nodename().to_string_lossy()).await;
    browser.click("drain").await;
    browser.types("confirm-why", "a new disk").await;
    browser.click("confirm-yes").await;
    browser.says("node-state", "drained").await;
    browser.says("node-roles", "nothing").await;
    browser.click("undrain").await;
    browser.types("confirm-why", "it has one").await;
    browser.click("confirm-yes").await;
    browser.says("node-state", "live").await;
    eventually("that is on record, with why", || {
        let entries = watched.get("/v1/audit").json()["entries"].clone();
        let last = entries.as_array().and_then(|entries| entries.last()).cloned().unwrap_or_default();
        last["act"] == "undrain" && last["why"] == "it has one"
    });
}

/// The name in the first row of the list of roles.
const FIRST: &str = "document.querySelector('#roles .row[aria-posinset=\"1\"] .name').textContent";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buttons_that_would_be_refused_are_disabled_and_say_why() {
    let (store, port) = (Store::file(), free_port());
    let agent = agent(&store, "web-1", port, "read");
    eventually("it leads", || agent.leads("scheduler"));
    let browser = Browser::open(&url(port, "#roles/role/scheduler"), Size::Desktop).await;
    browser.says("act-why", "http.loopback").await;
    browser.until("['transfer', 'step-down', 'pause'].every((item) => document.querySelector(`[data-item=${item}]`).disabled)").await;
    browser.run("location.hash = 'nodes/node/web-1'").await;
    browser.until("document.querySelector('[data-item=drain]').disabled").await;
    // So are the buttons of what is not there.
    for (place, button) in [
        ("nodes/node/gone", "drain"),
        ("roles/role/gone", "pause"),
        ("tasks/task/gone", "trigger"),
        ("alerts/alert/gone", "resolve"),
    ] {
        browser.run(&format!("location.hash = '{place}'")).await;
        browser.until(&format!("document.querySelector('[data-item={button}]')?.disabled")).await;
    }
    // An alert that is quiet is explained in words.
    browser.run("location.hash = 'alerts'").await;
    browser.says("alerts", "when it fires: a role has no known leader").await;
    browser.picture("look-only").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_or_a_store_that_is_lost_is_said_and_comes_back() {
    let store = Store::redis();
    let port = free_port();
    let mut first = agent(&store, "web-1", port, "read");
    eventually("it leads", || first.leads("scheduler"));
    let browser = Browser::open(&url(port, "#roles/role/scheduler"), Size::Desktop).await;
    browser.says("role-state", "led").await;

    // Who may only look is told so: by the page, and by the agent if the page is outwitted.
    browser.says("act-why", "may read, but not act").await;
    browser
        .run("const made = document.querySelector('[data-item=pause]'); made.disabled = false; made.click()")
        .await;
    browser.types("confirm-why", "a test").await;
    browser.click("confirm-yes").await;
    browser.says("confirm-error", "may read, but not act").await;
    browser.click("confirm-no").await;

    let Store::Redis(server) = &store else { unreachable!("it was made above") };
    server.signal(Signal::STOP);
    browser.says("store-banner", "cannot reach its store").await;
    server.signal(Signal::CONT);
    browser.hides("store-banner").await;

    browser.says("role-state", "led").await;
    first.process.signal(Signal::STOP);
    browser.says("role-state", "unknown").await;
    browser.says("role-leader", "unknown; web-1").await;
    browser.says("role-duration", "unknown").await;
    browser.run("location.hash = 'nodes/node/web-1'").await;
    browser.says("node-state", "unknown").await;
    browser.says("nodes", "unknown").await;
    browser.run("location.hash = 'roles/role/scheduler'").await;
    first.process.signal(Signal::CONT);
    browser.says("role-state", "led").await;

    first.process.signal(Signal::KILL);
    first.process.kill();
    browser.says("lost-banner", "has not answered since").await;
    browser.says("health", "unknown").await;
    browser.click("retry").await;
    browser.picture("lost").await;
    let second = agent(&store, "web-2", port, "read");
    browser.hides("lost-banner").await;
    browser.said("toast", "The agent is back").await;
    browser.says("place", "seen by web-2").await;
    eventually("it leads", || second.leads("scheduler"));
    browser.says("role-leader", "web-2").await;
    browser.close().await;
}

/// A page that is opened while the store is gone asks for what it cannot get now and then, and not as fast as the agent says
/// no; and what it could not load it does not call empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_asks_an_agent_without_its_store_only_now_and_then() {
    let store = Store::redis();
    let port = free_port();
    let first = agent(&store, "web-1", port, "read");
    eventually("it leads", || first.leads("scheduler"));
    assert_eq!(first.post("/v1/roles/billing/pause", &json!({ "why": "a test" })).status, 200);
    let Store::Redis(server) = &store else { unreachable!("it was made above") };
    server.signal(Signal::KILL);
    let browser = Browser::open(&url(port, "#timeline"), Size::Desktop).await;
    browser.says("store-banner", "cannot reach its store").await;
    let count = "window.asked = 0; const ask = window.fetch; \
                 window.fetch = (path, options) => { if (path.includes('/v1/history')) window.asked += 1; return ask(path, options); }";
    browser.run(count).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = browser.run("return window.asked").await.as_u64().unwrap();
    // Three roles, every two seconds.
    assert!((1..=15).contains(&asked), "{asked} requests in five seconds");
    browser.run("location.hash = 'roles/role/billing'").await;
    browser.says("roles", "was paused").await;
    browser.says("role-audit", "not loaded yet").await;
    browser.run("location.hash = 'audit'").await;
    browser.says("audit", "Loading").await;
    browser.close().await;
}

/// What was drawn of a role stays until more of it was read, however often its leader changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_stays_while_its_role_changes() {
    let store = Store::file();
    let port = free_port();
    let one = agent(&store, "web-1", port, "read");
    let two = agent(&store, "web-2", 0, "read");
    let candidates = || one.role("mailer")["candidates"].as_array().map_or(0, Vec::len);
    eventually("one leads and the other stands", || candidates() == 1);
    let browser = Browser::open(&url(port, "#timeline"), Size::Desktop).await;
    let lane = "[...document.querySelectorAll('#timeline [data-item=lane]')].find((row) => row.innerText.startsWith('mailer'))";
    let parts = format!("{lane}?.querySelectorAll('[data-kind=tenure]').length");
    browser.until(&format!("{parts} >= 1")).await;
    let watch = format!("if (!{parts}) window.emptied = true");
    browser
        .run(&format!(
            "new MutationObserver(() => {{ {watch} }}).observe(document.querySelector('#timeline'), {{ childList: true, subtree: true }})"
        ))
        .await;
    for turn in 0..6 {
        let to = if one.leads("mailer") { "web-2" } else { "web-1" };
        let asked = two.post("/v1/roles/mailer/transfer", &json!({ "to": to, "why": "to and fro" }));
        assert_eq!(asked.status, 200, "{turn}: {asked:?}");
    }
    browser.until(&format!("{parts} >= 7")).await;
    assert_eq!(
        browser.run("return window.emptied ?? false").await,
        json!(false),
        "the lane was empty in between"
    );
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_roles_cost_what_thirty_cost() {
    const ROLES: usize = 10_000;
    let store = Store::file();
    let port = free_port();
    let one = agent(&store, "web-1", port, "read");
    eventually("it leads", || one.leads("scheduler") && one.get("/v1/roles/scheduler").status == 200);
    copies(&store, Kind::Role, "scheduler", ROLES).await;
    // Fifty nodes, of which one beats for all.
    copies(&store, Kind::Node, "web-1", 50).await;
    eventually("they are seen", || one.get("/v1/nodes?limit=20").json()["total"] == 51);
    let page = one.get("/v1/nodes?limit=20&after=copy-00019").json();
    assert_eq!((&page["nodes"][0]["node"], &page["next"]), (&json!("copy-00020"), &json!("copy-00039")));
    let browser = Browser::open(&url(port, ""), Size::Desktop).await;
    browser.says("tab-roles", &(ROLES + 3).to_string()).await;
    let all = format!("document.querySelector('[data-item=role]')?.ariaSetSize === '{}'", ROLES + 3);
    browser.until(&all).await;
    browser.says("roles", "copy-00001").await;
    let rows = "return document.querySelectorAll('[data-item=role]').length";
    let bounded = |rows: Value| assert!((1..=60).contains(&rows.as_u64().unwrap()), "{rows} rows exist");
    bounded(browser.run(rows).await);
    browser.run("document.querySelector('#roles .scroll').scrollTop = 1e9").await;
    browser.says("roles", "scheduler").await;
    bounded(browser.run(rows).await);
    browser.run("document.querySelector('#roles .scroll').scrollTop = 220000").await;
    browser.says("roles", "copy-05000").await;
    bounded(browser.run(rows).await);
    browser.picture("ten-thousand").await;
    browser.click("tab-nodes").await;
    browser.says("tab-nodes", "51").await;
    browser.until("document.querySelector('[data-item=node]')?.ariaSetSize === '51'").await;
    browser.run("document.querySelector('#nodes .scroll').scrollTop = 1e9").await;
    browser.says("nodes", "web-1").await;
    browser.picture("fifty-nodes").await;
    browser.click("tab-roles").await;
    browser.types("search", "copy-0424").await;
    browser.until("document.querySelectorAll('[data-item=role]').length === 10").await;
    browser.says("role", "copy-04242").await;
    browser.click("tab-timeline").await;
    browser.until("document.querySelectorAll('#timeline .row').length === 10").await;

    // In the dark.
    browser.click("theme").await;
    browser.click("theme").await;
    browser.until("getComputedStyle(document.body).backgroundColor === 'rgb(18, 22, 28)'").await;
    browser.click("tab-roles").await;
    browser.picture("dark").await;
    browser.close().await;
}

/// Tasks with their ticks, live; run now, paused and resumed by click, each with a reason on record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_seen_live_and_asked_for_by_clicking() {
    let (store, port) = (Store::file(), free_port());
    let task = |name: &str, when: &str, script: &str| {
        format!("[[task]]\nname = \"{name}\"\n{when}\ncommand = [\"sh\", \"-c\", \"{script}\"]\n")
    };
    let more = [
        "[[role]]\nname = \"scheduler\"\n".to_owned(),
        task("heartbeat", "every = \"500ms\"", "true"),
        task("nightly-report", "cron = \"30 2 * * *\"\nzone = \"Europe/Vienna\"", "exit 3"),
        task("slow", "every = \"400ms\"", "sleep 1"),
        format!("[http]\nlisten = [\"127.0.0.1:{port}\"]\nloopback = \"operator\"\n"),
    ]
    .concat();
    let agent = Agent::start(&store, "web-1", &more);
    eventually("it leads", || agent.leads("scheduler"));
    let browser = Browser::open(&url(port, "#tasks"), Size::Desktop).await;
    browser.says("tab-tasks", "3").await;
    browser.says("tasks", "heartbeat").await;
    browser.says("task", "30 2 * * * Europe/Vienna").await;
    let marks = |state: &str| format!("document.querySelectorAll('#tasks .mark[data-state={state}]').length");
    browser.until(&format!("{} >= 3 && {} >= 1", marks("succeeded"), marks("skipped"))).await;
    browser.says("task-strip", "●").await;
    browser.run("location.hash = 'tasks/task/nightly-report'").await;
    browser.says("task-state", "waiting").await;
    browser.says("task-when", "Europe/Vienna").await;
    browser.says("task-next", "in ").await;
    browser.says("task-place", "the leader of scheduler").await;
    browser.says("task-owed", "0").await;
    browser.says("task-totals", "0 runs").await;
    browser.click("trigger").await;
    browser.says("confirm", "Run nightly-report now").await;
    browser.types("confirm-why", "the numbers of <b>May</b>").await;
    browser.click("confirm-yes").await;
    browser.said("toast", "nightly-report is triggered").await;
    browser.says("task-runs", "triggered, failed").await;
    browser.says("task-runs", "exit 3").await;
    browser.says("task-totals", "1 failed").await;
    browser.picture("task").await;
    browser.run("location.hash = 'tasks/task/heartbeat'").await;
    browser.click("task-pause").await;
    browser.types("confirm-why", "an upgrade").await;
    browser.click("confirm-yes").await;
    browser.says("task-state", "paused").await;
    browser.says("task-note", "an upgrade").await;
    browser.says("task-runs", "skipped").await;
    browser.click("task-resume").await;
    browser.types("confirm-why", "it is done").await;
    browser.click("confirm-yes").await;
    browser.until("document.querySelector('[data-item=task-state]').textContent !== 'paused'").await;
    browser.click("detail-close").await;
    browser.picture("tasks").await;
    browser.click("tab-events").await;
    browser.says("event", "heartbeat").await;
    let entries = agent.get("/v1/audit").json()["entries"].clone();
    let acts: Vec<&str> =
        entries.as_array().unwrap().iter().filter_map(|entry| entry["act"].as_str()).collect();
    assert_eq!(acts, ["trigger-task", "pause-task", "resume-task"]);
    assert_eq!(entries[0]["why"], "the numbers of <b>May</b>");
    browser.close().await;
}

/// Many roles, led by the leader of the first; or many nodes, alive as long as the first is.
async fn copies(store: &Store, kind: Kind, of: &str, count: usize) {
    let registers = tenure::store::open(&store.url()).unwrap();
    let namespace = Name::new(tenure::DEFAULT_NAMESPACE).unwrap();
    let cluster =
        registers.read(&namespace, &Query { keys: vec![Key::Cluster], kinds: vec![] }).await.unwrap();
    let cluster: Value = cluster[0].value.parse().unwrap();
    let epoch = tenure::store::Epoch::new(cluster["epoch"].as_u64().unwrap());
    let key = |name: &str| Key::Named(epoch, kind, Name::new(name).unwrap());
    let first = registers.read(&namespace, &Query { keys: vec![key(of)], kinds: vec![] }).await.unwrap();
    let writes: Vec<Write> = (0..count)
        .map(|number| Write {
            key: key(&format!("copy-{number:05}")),
            expect: None,
            put: Some((Version::new(number as u128 + 1), first[0].value.clone())),
            notify: false,
            requires_lock: false,
        })
        .collect();
    for batch in writes.chunks(MAX_BATCH) {
        registers.write(&namespace, batch).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_phone_and_with_a_token() {
    const TOKEN: &str = "0123456789abcdef-operator";
    let (store, dir) = (Store::file(), TempDir::new().unwrap());
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, format!("operator {TOKEN}\n")).unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let port = free_port();
    let more = format!(
        "[[role]]\nname = \"scheduler\"\n[http]\nlisten = [\"127.0.0.1:{port}\"]\ntokens = {tokens:?}"
    );
    let agent = Agent::start(&store, "web-1", &more);
    eventually("it leads", || agent.leads("scheduler"));
    let browser = Browser::open(&url(port, ""), Size::Phone).await;
    browser.says("ask-token", "requires a token").await;
    browser.item("ask-token").await;
    browser.run(&format!("document.getElementById('token').value = '{TOKEN}'")).await;
    browser.run("document.getElementById('token-form').requestSubmit()").await;
    browser.says("roles", "scheduler").await;
    // Nothing sticks out to the right, in any view, and details cover the page.
    for view in ["roles", "nodes", "timeline", "events", "audit", "tasks", "alerts", "roles/role/scheduler"] {
        browser.run(&format!("location.hash = '{view}'")).await;
        browser.until("document.documentElement.scrollWidth <= 390 && innerWidth <= 390").await;
        // The tab of what is shown is in sight, too.
        let tab = "document.querySelector('[role=tab][aria-selected=true]').getBoundingClientRect()";
        let name = view.split('/').next().unwrap();
        let chosen = format!("document.getElementById('tab-{name}').ariaSelected === 'true'");
        browser.until(&format!("{chosen} && {tab}.left >= 0 && {tab}.right <= 391")).await;
        match view {
            // Where there is nothing, it says how to get something.
            "tasks" => browser.says("tasks", "Add a [[task]]").await,
            "alerts" => browser.says("alerts", "no-leader").await,
            _ => {}
        }
    }
    browser.says("role-state", "led").await;
    browser.until("document.getElementById('detail').getBoundingClientRect().width === innerWidth").await;
    browser.picture("phone-role").await;
    browser.click("detail-close").await;
    browser.says("role", "web-1").await;
    browser.picture("phone").await;
    browser.close().await;
}

#[test]
fn every_item_is_touched_and_every_file_is_served_safely() {
    let here = concat!(include_str!("dashboard.rs"), include_str!("alerts_page.rs"));
    for (item, _) in ITEMS {
        assert!(here.contains(&format!("(\"{item}\"")), "no test touches {item}");
    }
    let store = Store::file();
    let agent = Agent::start(&store, "a", "");
    for path in ["/".to_owned()]
        .into_iter()
        .chain(tenure_agent::ui::FILES.iter().map(|(name, ..)| format!("/ui/{name}")))
    {
        let answer = agent.get(&path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer.head.contains("content-security-policy: default-src 'none'"),
            "{path}: {}",
            answer.head
        );
        assert!(answer.head.contains("x-content-type-options: nosniff"), "{path}");
    }
    assert_eq!(agent.get("/ui/none.js").status, 404);
    assert_eq!(agent.get("/v1/nodes?named=1001").status, 400);
    eventually("it sees itself", || {
        agent.get("/v1/nodes?named=0").json()["nodes"][0]["candidacies"] == json!({})
    });
}
