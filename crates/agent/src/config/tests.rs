//! What can be written, what cannot, and what people are told.

use std::path::Path;

use super::*;

fn layered(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let mut layers = Layers::default();
    layers.file(Path::new("t.toml"), file);
    layers.environment(|name| {
        environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    });
    for (path, text) in flags {
        layers.flag(path, text);
    }
    Config::of(layers)
}

fn refused(file: &str, environment: &[(&str, &str)]) -> String {
    layered(file, environment, &[]).expect_err(file).join("\n")
}

const WHOLE: &str = r#"
store = "redis://user:hunter2@localhost/0?timeout=2s"
namespace = "prod"
[node]
name = "web-1"
address = "10.0.0.1:80"
labels = { zone = "a" }
[timing]
profile = "fast"
drain = "3s"
[candidacy]
priority = 5
[[role]]
name = "scheduler"
requires = { zone = "a" }
[[role]]
name = "backup"
priority = 9
eligible = false
mode = "campaign"
[http]
socket = "none"
listen = ["127.0.0.1:0"]
[metrics]
prefix = "forge_leader"
"#;

#[test]
fn a_whole_file_is_read_and_shown_with_where_it_came_from() {
    let config = layered(WHOLE, &[("TENURE_NODE_NAME", "web-2")], &[("node.address", "x:1")]).unwrap();
    assert_eq!((config.node.name.as_str(), config.node.address.as_deref()), ("web-2", Some("x:1")));
    assert_eq!(config.timing.ttl, Timing::FAST_TTL);
    let [scheduler, backup] = &config.roles[..] else { panic!("{:?}", config.roles) };
    assert_eq!((scheduler.candidacy.priority, scheduler.candidacy.drain), (5, Duration::from_secs(3)));
    assert_eq!(
        (backup.candidacy.priority, backup.candidacy.eligible, backup.mode),
        (9, false, Mode::Campaign)
    );
    let shown = config.effective();
    for part in [
        "node.name = \"web-2\"  # TENURE_NODE_NAME",
        "node.address = \"x:1\"  # command line",
        "role[1].priority = 9  # t.toml:18",
        "store = \"redis://…@localhost/0?…\"  # t.toml:2",
        "# timing.ttl: of the profile  # default",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert!(!shown.contains("hunter2") && !format!("{:?}", config.given["store"].value).is_empty());
}

#[test]
fn what_is_wrong_is_named_with_its_place_and_the_nearest_known_key() {
    for (file, parts) in [
        ("[node]\nnmae = \"a\"", &["t.toml:2", "node.nmae", "did you mean name?"][..]),
        ("[noed]\nname = \"a\"", &["t.toml:1", "did you mean node?"]),
        ("[role]\nname = \"a\"", &["t.toml:1", "[[role]] instead of [role]"]),
        ("[[node]]\nname = \"a\"", &["t.toml:1", "[node] instead of [[node]]"]),
        ("role = [1]", &["[[role]]"]),
        ("[[role]]\nname = \"a\"\n[[role]]", &["t.toml:3: role[1]: the table is empty"]),
        ("[timing]\nttl = 5", &["t.toml:2", "no unit", "5s"]),
        ("[timing]\nttl = \"5\"", &["t.toml:2", "timing.ttl", "not a duration"]),
        ("[node]\nname = \"a\"\n[timing]\nbeat = \"4s\"", &["t.toml:4: timing: ", "4s", "stop"]),
        ("store = \"nope://u:hunter2@h\"", &["t.toml:1: store: \"nope\" is not a kind of store"]),
        ("store = \"redis://localhost/zero\"", &["t.toml:1: store: ", "not a Redis URL"]),
        ("store = \"memory:\"", &["t.toml:1: store: ", "in one process"]),
        ("[timing]\nprofile = \"slow\"", &["default or fast or relaxed"]),
        ("[node]\nname = \"a b\"", &["t.toml:2", "not a valid name"]),
        ("[node]\nlabels = { a = 1 }", &["t.toml:2", "table of texts"]),
        ("[[role]]\npriority = 1", &["t.toml:2: role[0]: every [[role]] needs a name"]),
        ("[[role]]\nname = \"a\"\n[[role]]\nname = \"a\"", &["t.toml:4", "duplicate role"]),
        ("[[role]]\nname = \"a\"\npriority = \"high\"", &["t.toml:3", "number"]),
        ("[http]\nlisten = [\"here\"]", &["t.toml:2", "127.0.0.1:7654"]),
        ("[http]\nlisten = [\"0.0.0.0:1\"]", &["http.tls-cert", "http.tokens"]),
        ("[http]\ntls-cert = \"a\"", &["t.toml:2: http.tls-cert: ", "together"]),
        ("[http]\ntls-cert = \"/nowhere\"\ntls-key = \"/nowhere\"", &["t.toml:2: http.tls-cert: /nowhere"]),
        ("[http]\ntokens = \"/nowhere\"", &["t.toml:2: http.tokens: cannot read /nowhere"]),
        ("[http]\nmax-body = 0", &["1 to"]),
        ("[http]\noperators = [\"ada\"]", &["id -u"]),
        ("[metrics]\nprefix = \"a-b\"", &["metrics.prefix"]),
        ("[[role]]\nname = \"tenure.alerts\"", &["t.toml:2", "reserved for the agent"]),
        ("[[alert]]\nname = \"a\"", &["t.toml:2: alert[0]: every [[alert]] needs a name and a condition"]),
        (
            "[[alert]]\nname = \"a\"\ncondition = \"topk(1, tenure_leading)\"",
            &["t.toml:3", "topk is not supported"],
        ),
        (
            "[[alert]]\nname = \"a\"\ncondition = \"tenure_led == 0\"\nnotify = [\"pager\"]",
            &["t.toml:4", "no [[notify]]"],
        ),
        (
            "[[alert]]\nname = \"a\"\ncondition = \"tenure_led == 0\"\n[[alerts]]\nname = \"b\"\ncondition = \"tenure_led == 0\"",
            &["use [[alert]] for all"],
        ),
        ("[[notify]]\nname = \"a\"", &["url, url-file or url-env"]),
        ("[[notify]]\nname = \"a\"\nurl = \"http://example.test/\"", &["t.toml:3", "https://"]),
        ("[[notify]]\nname = \"a\"\nurl = \"https://169.254.169.254/\"", &["link-local"]),
        ("[[notify]]\nname = \"a\"\nkind = \"pagerduty\"", &["routing key"]),
        ("[[notify]]\nname = \"a\"\nurl-env = \"NO_SUCH_VARIABLE_HERE\"", &["NO_SUCH_VARIABLE_HERE"]),
        ("[[notify]]\nname = \"a\"\nurl-file = \"/nowhere\"", &["/nowhere"]),
        ("[alerting]\ninterval = \"1ms\"", &["100ms"]),
        ("[alerting]\nscrape = [\"http://example.test\"]", &["this host only"]),
        ("nonsense", &["t.toml:1"]),
        ("leaderTtl = \"30s\"\n[timing]\nttl = \"9s\"", &["twice", "leaderTtl"]),
    ] {
        let why = refused(file, &[]);
        assert!(parts.iter().all(|part| why.contains(part)), "{file}\n→ {why}");
    }
    assert!(refused("", &[("TENURE_TTL", "5")]).contains("TENURE_TTL"));
    assert!(layered("", &[], &[("node.nam", "x")]).unwrap_err()[0].contains("did you mean node.name?"));
    assert_eq!(refused("[timing]\nttl = 5\n[node]\nnmae = 1", &[]).lines().count(), 2, "everything at once");
}

#[test]
fn settings_of_other_designs_are_understood_and_their_intervals_are_limits() {
    let forge = r#"
[cluster.leader_election]
check_interval = "5s"
lease_duration = "60s"
refresh_interval = "30s"
lock_timeout = "10s"
"#;
    let config = layered(forge, &[], &[]).unwrap();
    assert_eq!(config.timing.ttl, Duration::from_secs(60));
    assert_eq!(
        (config.timing.beat, config.timing.op_timeout),
        (Duration::from_secs(5), Duration::from_secs(10))
    );
    assert!(config.notices.iter().any(|notice| notice.contains("lease_duration (FORGE) became timing.ttl")));
    assert_eq!(config.notices.len(), 4);
    // Their advisory lock is released on disconnect; the limits are met there too.
    let quick =
        layered(forge, &[], &[("timing.takeover", "on-disconnect"), ("timing.grace", "20s")]).unwrap();
    assert_eq!(
        (quick.timing.beat, quick.timing.op_timeout),
        (Duration::from_secs(2), Duration::from_secs(20) / 6)
    );
    assert!(layered(forge, &[], &[("timing.takeover", "on-disconnect")]).is_ok());

    let slow = "[cluster.leader_election]\nlease_duration = \"60s\"\nrefresh_interval = \"30s\"";
    assert_eq!(layered(slow, &[], &[]).unwrap().timing.beat, Duration::from_secs(15), "ttl/4 is shorter");

    let sovereign =
        "leaderTtl = \"30s\"\nelectionInterval = \"15s\"\nheartbeatInterval = \"10s\"\ninstanceId = \"i-1\"";
    let config = layered(sovereign, &[], &[]).unwrap();
    assert_eq!((config.node.name.as_str(), config.timing.beat), ("i-1", Duration::from_millis(7500)));

    let radar = [
        ("COORDINATOR_ELIGIBLE", "false"),
        ("COORDINATOR_ELECTION_INTERVAL", "500"),
        ("COORDINATOR_TAKEOVER_DELAY", "1000"),
    ];
    let config = layered("[[role]]\nname = \"coordinator\"", &radar, &[]).unwrap();
    assert_eq!(config.timing.beat, Duration::from_millis(500));
    let candidacy = &config.roles[0].candidacy;
    assert_eq!((candidacy.eligible, candidacy.takeover_delay), (false, Duration::from_secs(1)));
    assert!(refused("", &[("COORDINATOR_ELECTION_INTERVAL", "5s")]).contains("milliseconds"));
}

#[test]
fn the_switch_of_service_radar_turns_candidacies_off_and_on() {
    use tenure::work::WorkMode as Migration;
    let roles = "[[role]]\nname = \"a\"\n[[role]]\nname = \"b\"\nmigration = \"shadow\"\n";
    let migrations = |file: &str, environment: &[(&str, &str)]| {
        let config = layered(&format!("{file}{roles}"), environment, &[]).unwrap();
        (config.migration, config.roles.iter().map(|role| role.migration).collect::<Vec<_>>())
    };
    let (off, on, shadow) = (Migration::Off, Migration::On, Migration::Shadow);
    let switched = |to: &'static str| [("COORDINATOR_ELECTION_ENABLED", to)];
    assert_eq!(migrations("", &[]), (on, vec![on, shadow]));
    assert_eq!(migrations("", &switched("false")), (off, vec![off, shadow]));
    assert_eq!(migrations("", &switched("true")), (on, vec![on, shadow]));
    assert_eq!(migrations("coordinator_election_enabled = false\n", &[]), (off, vec![off, shadow]));
    assert!(refused("", &switched("perhaps")).contains("candidacy.migration"));
    assert!(refused("coordinator_election_enabled = 1", &[]).contains("coordinator_election_enabled"));
}

/// FORGE's own two rules, as they stand in its documents.
#[test]
fn the_alerts_of_forge_are_understood_and_explained() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "hunter2\n").unwrap();
    let forge = format!(
        r##"
[[alerts]]
name = "no_scheduler_leader"
condition = "sum(forge_leader_is_leader{{role='scheduler'}}) == 0"
for = "30s"
severity = "critical"
notify = ["pagerduty"]
[[alerts]]
name = "frequent_failovers"
condition = "rate(forge_leader_failovers_total[5m]) > 5"
severity = "warning"
notify = ["slack:#ops"]
[[notify]]
name = "pagerduty"
kind = "pagerduty"
key-file = {key:?}
[[notify]]
name = "chat"
kind = "slack"
url = "https://hooks.example.test/hunter2"
"##
    );
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&forge, &[]).contains("chmod 600"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let config = layered(&forge, &[], &[]).unwrap();
    let [none, often, shipped @ ..] = &config.alerting.rules[..] else { panic!("{config:?}") };
    assert_eq!((none.hold, none.severity.as_str()), (Duration::from_secs(30), "critical"));
    assert_eq!((often.notify[0].target.as_str(), often.notify[0].channel.as_deref()), ("chat", Some("#ops")));
    assert_eq!(shipped.len(), 12);
    assert!(shipped.iter().all(|rule| rule.shipped && rule.notify.len() == 2));
    let notices = config.notices.join("\n");
    for part in ["[[alerts]] (FORGE) became [[alert]]", "alert frequent_failovers", "1500 in 5m"] {
        assert!(notices.contains(part), "{part}: {notices}");
    }
    assert!(!config.effective().contains("hunter2") && !format!("{:?}", config.alerting).contains("hunter2"));
    assert!(
        config.effective().contains("alert[1].notify = [\"slack:#ops\"]  # t.toml:12"),
        "{}",
        config.effective()
    );

    let off = layered("[alerting]\ndefaults = false", &[], &[]).unwrap();
    assert!(off.alerting.rules.is_empty());
    let own = "[[alert]]\nname = \"no-leader\"\ncondition = \"tenure_led == 0\"\ncool-down = \"1s\"\nrepeat = \"2s\"\nsummary = \"x\"\nwithout-store = true";
    let own = layered(own, &[], &[]).unwrap().alerting.rules;
    assert_eq!(
        (own.len(), own[0].shipped, own[0].without_store, own[0].summary.as_str()),
        (12, false, true, "x")
    );
    assert_eq!((own[0].patience.cool_down.as_secs(), own[0].patience.repeat.as_secs()), (1, 2));
}

#[test]
fn every_key_can_be_set_and_every_alias_leads_to_a_key() {
    for key in keys::KEYS {
        let path = key.path.replace("[]", "[0]");
        let text = match key.kind {
            value::ValueKind::Int(least, _) => least.to_string(),
            value::ValueKind::Span => "1s".to_owned(),
            value::ValueKind::Bool => "true".to_owned(),
            value::ValueKind::Choice(words) => words[0].to_owned(),
            value::ValueKind::Labels | value::ValueKind::Headers => "a=b".to_owned(),
            _ => "x".to_owned(),
        };
        let mut layers = Layers::default();
        layers.flag(&path, &text);
        assert!(layers.values.contains_key(&path) && layers.errors.is_empty(), "{path}: {:?}", layers.errors);
        if let Some(name) = key.env() {
            let mut layers = Layers::default();
            layers.environment(|asked| (asked == name).then(|| text.clone()));
            assert!(layers.values.contains_key(key.path), "{name}");
        }
    }
    assert!(alias::ALIASES.iter().all(|alias| keys::find(alias.becomes).is_some()));
}

#[test]
fn the_documentation_lists_every_key_and_every_alias() {
    let page = include_str!("../../../../docs/reference/configuration.md");
    assert!(
        page.contains(&keys::table()),
        "put this into docs/reference/configuration.md:\n{}",
        keys::table()
    );
    let page = include_str!("../../../../docs/guides/migrate.md");
    for alias in alias::ALIASES {
        assert!(
            page.contains(alias.name().rsplit('.').next().unwrap()),
            "docs/guides/migrate.md lacks {}",
            alias.name()
        );
    }
}

#[test]
fn a_reload_says_what_it_cannot_change() {
    let old = layered(WHOLE, &[], &[]).unwrap();
    let new = layered(&WHOLE.replace("priority = 9", "priority = 1"), &[], &[]).unwrap();
    assert_eq!(old.fixed_differences(&new), [""; 0]);
    let new = layered(&WHOLE.replace("\"prod\"", "\"test\""), &[], &[]).unwrap();
    assert_eq!(old.fixed_differences(&new), ["namespace needs a restart to change"]);
}

proptest::proptest! {
    /// Whatever stands in a file, in a variable or in a flag is read or refused, never more.
    #[test]
    fn nothing_that_is_written_harms_the_parser(
        text in "(\\[{0,2}(node|role|http|timing|cluster\\.leader_election)\\]{0,2}\\n|[a-zA-Z_.-]{1,9} = (\"[ -~]{0,9}\"|[0-9-]{1,20}|\\[.{0,5}\\]|\\{.{0,9}\\})\\n|.{0,20}\\n){0,6}",
        key in "[a-z.\\[\\]0-9-]{0,20}",
        value in ".{0,20}",
    ) {
        let _ = layered(&text, &[("TENURE_TTL", &value), ("TENURE_HTTP_LISTEN", &value)], &[(&key, &value)]);
        for known in keys::KEYS {
            let _ = known.kind.read_text(&value);
        }
    }
}

#[test]
fn all_that_can_be_said_of_a_task_can_be_written() {
    let mut full = tenure::schedule::TaskSettings::cron("t", "@daily").unwrap();
    (full.every, full.timeout) = (Some(Duration::from_secs(90)), Some(Duration::from_secs(5)));
    for key in serde_json::to_value(full).unwrap().as_object().unwrap().keys() {
        let path = format!("task[].{key}");
        assert!(keys::find(&path).is_some(), "{path} cannot be written");
    }
}

#[test]
fn what_a_leader_does_is_checked_against_the_roles_before_anything_starts() {
    const ROLES: &str = "[[role]]\nname = \"a\"\n[[role]]\nname = \"b\"\nmode = \"campaign\"\n";
    const TASK: &str = "[[task]]\nname = \"t\"\nrole = \"a\"\n";
    const WORK: &str = "[[work]]\nname = \"w\"\nrole = \"a\"\ncommand = [\"true\"]\n";
    for (more, parts) in [
        (
            "[[task]]\nname = \"t\"\nevry = \"5s\"".to_owned(),
            &["t.toml:8", "task[0].evry", "did you mean every?"][..],
        ),
        ("[[work]]\nname = \"w\"\n[work.helth]\nhttp = \"x\"".to_owned(), &["did you mean health?"]),
        (format!("{TASK}every = \"5s\""), &["t.toml:7", "exactly one of command and http"]),
        (format!("{TASK}command = [\"true\"]"), &["t.toml:7", "exactly one of cron and every"]),
        (format!("{TASK}command = \"true\"\nevery = \"5s\""), &["t.toml:9", "[\"program\", \"argument\"]"]),
        (format!("{TASK}command = []\nevery = \"5s\""), &["t.toml:9", "[\"program\", \"argument\"]"]),
        (format!("{TASK}command = [\"true\"]\ncron = \"* * *\""), &["t.toml:10", "task[0].cron", "* * *"]),
        (
            format!("{TASK}command = [\"true\"]\ncron = \"@hourly\"\nzone = \"Europe/Viena\""),
            &["t.toml:11", "Europe/Viena"],
        ),
        (format!("{TASK}command = [\"true\"]\nevery = \"5ms\""), &["t.toml:10", "100ms"]),
        (
            format!("{TASK}every = \"5s\"\nhttp = {{ url = \"localhost\" }}"),
            &["t.toml:10", "http.url", "https://host/path"],
        ),
        (
            format!("{TASK}every = \"5s\"\nhttp = {{ url = \"http://h\", method = \"a b\" }}"),
            &["http.method"],
        ),
        (format!("{TASK}every = \"5s\"\ncommand = [\"true\"]\nhttp = {{ body = \"x\" }}"), &["set http.url"]),
        ("[[task]]\nname = \"t\"\nevery = \"5s\"\ncommand = [\"true\"]".to_owned(), &["t.toml:7", "2 roles"]),
        (
            TASK.replace("\"a\"", "\"c\"") + "every = \"5s\"\ncommand = [\"true\"]",
            &["t.toml:8", "no [[role]] is named c"],
        ),
        (TASK.replace("\"a\"", "\"b\"") + "every = \"5s\"\ncommand = [\"true\"]", &["t.toml:8", "campaign"]),
        (
            format!("{TASK}every = \"5s\"\ncommand = [\"true\"]\nwhere = \"every-node\""),
            &["t.toml:8", "no role"],
        ),
        (
            format!("{TASK}every = \"5s\"\ncommand = [\"true\"]\n{TASK}every = \"5s\"\ncommand = [\"true\"]"),
            &["t.toml:12", "duplicate"],
        ),
        ("[[work]]\ncommand = [\"true\"]".to_owned(), &["t.toml:7: work[0]: every [[work]] needs a name"]),
        ("[[work]]\nname = \"w\"\nrole = \"a\"".to_owned(), &["t.toml:7", "needs a command"]),
        (format!("{WORK}ready-within = \"5s\""), &["t.toml:10", "health"]),
        (format!("{WORK}drain = \"1h\""), &["t.toml:10", "1h", "10s"]),
        (format!("{WORK}health = {{ every = \"5s\" }}"), &["the health check is empty"]),
        (format!("{WORK}health = {{ http = \"http://h\", command = [\"x\"] }}"), &["not both"]),
        (
            "[[role]]\nname = \"c\"\nmode = \"campaign\"\nmigration = \"shadow\"".to_owned(),
            &["t.toml:9", "shadow"],
        ),
    ] {
        let why = refused(&format!("{ROLES}{more}"), &[]);
        assert!(parts.iter().all(|part| why.contains(part)), "{more}\n→ {why}");
    }
    let why = refused("[[task]]\nname = \"t\"\nevery = \"5s\"\ncommand = [\"true\"]", &[]);
    assert!(why.contains("no [[role]] is configured"), "{why}");
}

#[test]
fn work_is_sorted_and_the_only_role_is_meant_and_secrets_are_not_shown() {
    let file = r#"
[[role]]
name = "a"
[[work]]
name = "second"
command = ["b"]
[[work]]
name = "first"
command = ["a", "x y"]
order = -1
[[task]]
name = "call"
every = "5s"
http = { url = "https://u:hunter2@h/x?key=hunter2", headers = { authorization = "hunter2" } }
[[task]]
name = "clean"
where = "every-node"
cron = "@daily"
command = ["rm"]
"#;
    let config = layered(file, &[], &[]).unwrap();
    let names: Vec<&str> = config.roles[0].work.iter().map(|work| work.name.as_str()).collect();
    assert_eq!((names, config.roles[0].work[0].command[1].as_str()), (vec!["first", "second"], "x y"));
    assert_eq!(
        (config.roles[0].tasks[0].settings.name.as_str(), config.everywhere[0].settings.name.as_str()),
        ("call", "clean")
    );
    let shown = config.effective();
    assert!(!shown.contains("hunter2"), "{shown}");
    for part in [
        "task[0].http.headers = { \"authorization\" = \"…\" }",
        "work[1].order = -1  # t.toml:10",
        "# task[1].zone: UTC",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}
