//! The progress of a torture: a board that is drawn over itself on a terminal, lines otherwise.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use tenure_torture::judge::InjectedFault;

use tenure_torture::target::TargetStore;
use tenure_torture::{ROLES, TortureObserver, TortureSettings, member};

use crate::output;
use tenure_process::clock::lease_now;

/// How many faults the board shows.
const SHOWN: usize = 8;

/// A leader that did nothing for so long is not shown as one.
const SILENT: u64 = 300_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Board {
    live: bool,
    title: String,
    lasts: Duration,
    began: u64,
    lines: Vec<String>,
    faults: u64,
    drawn: usize,
    last: String,
}

impl Board {
    pub(super) fn new(settings: &TortureSettings, target: &TargetStore, live: bool) -> Self {
        let title = format!(
            "torture of {} (class {:?}), {} nodes, seed {}",
            output::sanitize(&target.about),
            target.class,
            settings.nodes,
            settings.seed
        );
        if !live {
            let _ = output::print(&title);
        }
        Self {
            live,
            title,
            lasts: settings.lasts,
            began: lease_now(),
            lines: Vec::new(),
            faults: 0,
            drawn: 0,
            last: String::new(),
        }
    }

    fn draw(&mut self, since: Duration, led: &str, injected: &[InjectedFault]) {
        let done = (since.as_secs_f64() / self.lasts.as_secs_f64()).clamp(0.0, 1.0);
        let bar = "█".repeat((done * 40.0) as usize);
        let (at, lasts) = (since.as_secs_f64(), self.lasts.as_secs_f64());
        let now: Vec<&str> =
            injected.iter().filter(|fault| fault.to == u64::MAX).map(|fault| fault.what.as_str()).collect();
        let now = if now.is_empty() { "calm".to_owned() } else { now.join(", ") };
        let mut lines = vec![
            self.title.clone(),
            format!("{bar:<40} {at:.0} of {lasts:.0} s, {} faults", self.faults),
            led.to_owned(),
            format!("now: {now}"),
        ];
        lines.extend(self.lines.iter().rev().take(SHOWN).cloned());
        // A line that wraps would be two to draw over.
        let width = output::width().unwrap_or(usize::MAX).saturating_sub(1);
        let mut text = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        for line in &lines {
            text.extend(line.chars().take(width));
            text.push('\n');
        }
        self.drawn = lines.len();
        let _ = std::io::stdout().write_all(text.as_bytes());
        let _ = std::io::stdout().flush();
    }
}

impl TortureObserver for Board {
    fn fault_injected(&mut self, what: &str) {
        let line = format!("{:8.2} s  {what}", (lease_now() - self.began) as f64 / 1e9);
        self.faults += 1;
        if !self.live {
            let _ = output::print(&line);
        }
        self.lines.push(line);
    }

    fn progress(
        &mut self,
        since: Duration,
        leaders: &BTreeMap<String, (String, u64)>,
        injected: &[InjectedFault],
    ) {
        let now = lease_now();
        let leads = |role: usize| {
            let role = member::role(role);
            let (node, at) = leaders.get(&role)?;
            (now.saturating_sub(*at) < SILENT).then(|| node.clone())
        };
        let led: Vec<String> = (0..ROLES)
            .map(|role| {
                format!("{} {:<8}", member::role(role), leads(role).unwrap_or_else(|| "–".to_owned()))
            })
            .collect();
        let led = led.join("  ");
        if self.live {
            self.draw(since, &led, injected);
        } else if led != self.last {
            let _ = output::print(&format!("{:8.2} s  {led}", (now - self.began) as f64 / 1e9));
            self.last = led;
        }
    }
}
