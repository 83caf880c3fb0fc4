//! What is configured about alerts: rules, who is told, and their secrets.

use std::path::Path;
use std::time::Duration;

use super::{Reader, indices};
use crate::alerts::condition::Condition;
use crate::alerts::record::NotifyPolicy;
use crate::alerts::rules::{Alerting, COOL_DOWN, REPEAT, Recipient, Rule, Severity, shipped};
use crate::alerts::target::{Hidden, PAGERDUTY, Target, TargetKind};
use crate::outbound::Plain;

/// So many other agents are scraped at most.
const SCRAPED: usize = 100;

impl Reader {
    pub(super) fn alerting(&mut self, prefix: &str, ttl: Duration, notices: &mut Vec<String>) -> Alerting {
        let interval = self.span("alerting.interval").unwrap_or(Duration::from_secs(5));
        if interval < Duration::from_millis(100) {
            self.fault("alerting.interval", "at least 100ms");
        }
        let targets = self.targets();
        let every_target = || targets.iter().map(|target| target.name.to_string()).collect();
        let texts = self.value("alerting.notify").map_or_else(every_target, |_| self.list("alerting.notify"));
        let default = self.recipients("alerting.notify", &texts, &targets);
        let mut rules = self.rules(prefix, &targets, &default, notices);
        if self.truth("alerting.defaults").unwrap_or(true) {
            let ours = shipped(prefix, ttl, &default);
            let free = |rule: &Rule| !rules.iter().any(|other| other.name == rule.name);
            let ours: Vec<Rule> = ours.into_iter().filter(free).collect();
            rules.extend(ours);
        }
        Alerting {
            interval,
            scrape: self.scraped(),
            scrape_token: self.secret_file("alerting.scrape-token"),
            rules,
            targets,
        }
    }

    fn scraped(&mut self) -> Vec<String> {
        let agents = self.list("alerting.scrape");
        if agents.len() > SCRAPED {
            self.fault("alerting.scrape", "at most 100 agents");
        }
        for agent in &agents {
            self.callable("alerting.scrape", agent, Plain::ThisHost);
        }
        agents
    }

    fn rules(
        &mut self,
        prefix: &str,
        targets: &[Target],
        default: &[Recipient],
        notices: &mut Vec<String>,
    ) -> Vec<Rule> {
        let mut rules: Vec<Rule> = Vec::new();
        for index in indices(self.values.keys(), "alert") {
            let at = format!("alert[{index}]");
            let path = |key: &str| format!("{at}.{key}");
            let (Some(name), Some(text)) = (self.name(&path("name")), self.text(&path("condition"))) else {
                self.fault(&at, "every [[alert]] needs a name and a condition");
                continue;
            };
            if rules.iter().any(|rule| rule.name == name) {
                self.fault(&path("name"), &format!("duplicate alert {name}; use another name"));
            }
            let condition = match Condition::read(&text, prefix) {
                Ok(condition) => condition,
                Err(why) => {
                    self.fault(&path("condition"), &why);
                    continue;
                }
            };
            let origin = self.values[&path("condition")].origin.clone();
            notices
                .extend(condition.notices.iter().map(|notice| format!("{origin}: alert {name}: {notice}")));
            let texts = self.list(&path("notify"));
            let notify = match self.value(&path("notify")) {
                Some(_) => self.recipients(&path("notify"), &texts, targets),
                None => default.to_vec(),
            };
            rules.push(Rule {
                name,
                condition,
                hold: self.span(&path("for")).unwrap_or_default(),
                severity: match self.text(&path("severity")).as_deref() {
                    Some("critical") => Severity::Critical,
                    Some("info") => Severity::Info,
                    _ => Severity::Warning,
                },
                summary: self.text(&path("summary")).unwrap_or(text),
                notify,
                patience: NotifyPolicy {
                    cool_down: self.span(&path("cool-down")).unwrap_or(COOL_DOWN),
                    repeat: self.span(&path("repeat")).unwrap_or(REPEAT),
                },
                without_store: self.truth(&path("without-store")).unwrap_or(false),
                shipped: false,
            });
        }
        rules
    }

    fn recipients(&mut self, path: &str, texts: &[String], targets: &[Target]) -> Vec<Recipient> {
        let mut recipients: Vec<Recipient> = Vec::new();
        for text in texts {
            match Recipient::find(text, targets) {
                Ok(sink) if !recipients.contains(&sink) => recipients.push(sink),
                Ok(_) => {}
                Err(why) => self.fault(path, &why),
            }
        }
        recipients
    }

    fn targets(&mut self) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for index in indices(self.values.keys(), "notify") {
            let at = format!("notify[{index}]");
            let path = |key: &str| format!("{at}.{key}");
            let Some(name) = self.name(&path("name")) else {
                self.fault(&at, "every [[notify]] needs a name");
                continue;
            };
            if targets.iter().any(|target| target.name == name) {
                self.fault(&path("name"), &format!("duplicate [[notify]] {name}; use another name"));
            }
            let kind = match self.text(&path("kind")).as_deref() {
                Some("slack") => TargetKind::Slack,
                Some("pagerduty") => TargetKind::PagerDuty,
                _ => TargetKind::Webhook,
            };
            let key = self.secret(&at, "key");
            if kind == TargetKind::PagerDuty && key.is_none() {
                self.fault(&path("name"), "PagerDuty needs a routing key: set key-file or key-env");
            }
            let Some(url) = self.target_url(&at, kind) else { continue };
            let timeout = self.span(&path("timeout")).unwrap_or(Duration::from_secs(10));
            let channel = self.text(&path("channel"));
            targets.push(Target { name, kind, url, key, channel, timeout });
        }
        targets
    }

    fn target_url(&mut self, at: &str, kind: TargetKind) -> Option<Hidden> {
        let usual = || (kind == TargetKind::PagerDuty).then(|| Hidden(PAGERDUTY.to_owned()));
        let Some(url) = self.secret(at, "url").or_else(usual) else {
            self.fault(&format!("{at}.name"), "a target needs a url: set url, url-file or url-env");
            return None;
        };
        let written = ["url", "url-file", "url-env"].map(|key| format!("{at}.{key}"));
        let at_url =
            written.into_iter().find(|path| self.value(path).is_some()).unwrap_or_else(|| at.to_owned());
        self.callable(&at_url, &url.0, Plain::ThisHost).then_some(url)
    }

    /// What is given here, in a file, or in the environment; one of them.
    fn secret(&mut self, at: &str, what: &str) -> Option<Hidden> {
        let (here, file, env) =
            (format!("{at}.{what}"), format!("{at}.{what}-file"), format!("{at}.{what}-env"));
        let given = [&here, &file, &env].into_iter().filter(|path| self.value(path).is_some()).count();
        if given > 1 {
            self.fault(&file, &format!("{what} is given twice; keep one"));
        }
        if let Some(text) = self.text(&here) {
            return Some(Hidden(text));
        }
        if let Some(variable) = self.text(&env) {
            let found = std::env::var(&variable).ok().filter(|text| !text.trim().is_empty());
            if found.is_none() {
                self.fault(&env, &format!("the environment variable {variable} is not set"));
            }
            return found.map(|text| Hidden(text.trim().to_owned()));
        }
        self.secret_file(&file)
    }

    /// The first line of a file that no other user can read.
    fn secret_file(&mut self, path: &str) -> Option<Hidden> {
        let file = self.text(path)?;
        match first_line(Path::new(&file)) {
            Ok(line) => Some(Hidden(line)),
            Err(why) => {
                self.fault(path, &why);
                None
            }
        }
    }
}

fn first_line(path: &Path) -> Result<String, String> {
    let text = crate::secret_file::read_text(path)?;
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    if line.is_empty() { Err(format!("{} is empty", path.display())) } else { Ok(line) }
}
