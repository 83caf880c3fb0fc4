//! `tenure check`: whether settings fit together, and the bounds that follow from them; with `--config` whether an agent
//! could run on a file, and what it would do.

mod file;

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tenure::{Bounds, Error, Timing};

use crate::args::{CheckArgs, Common};
use crate::exit::Exit;
use crate::output::{self, table::Tone, time::span};
use file::FileView;
use tenure_agent::config::Config;

/// Where a hint is lost, the next look finds the role free a beat later; candidates take turns for 50 ms at most, and
/// as much again is for the store.
const AFTER_A_BEAT: Duration = Duration::from_millis(100);

/// Prints the settings and their bounds, and what a file came to.
///
/// # Errors
/// If a relation between the settings does not hold, the URL names no store, or anything is wrong with the file.
pub fn main(common: &Common, args: &CheckArgs) -> Result<Exit, Exit> {
    let (store, timing, file) = match &args.config {
        None => {
            let store = common.store_url();
            tenure::store::check_url(&store)?;
            let timing = Timing::new(&args.timing.settings(&store)).map_err(Error::from)?;
            (store, timing, None)
        }
        Some(path) => {
            let flags = [common.keys(), args.timing.keys(), args.set.clone()].concat();
            let config = Config::read(Some(path), &flags)?;
            let view = FileView::of(path, &config);
            (config.store, config.timing, Some(view))
        }
    };
    let cost = tenure::store::request_cost(&store, timing.beat);
    if common.is_json() {
        output::json(&Document { config: file.as_ref(), cost, ..Document::of(&timing) })?;
    } else {
        // An agent's death proves nothing of the work of its clients.
        let reported = file.is_none() && common.store_url().starts_with("sqlite:");
        let file = file.map_or_else(String::new, |file| format!("{file}\n\n"));
        let cost =
            cost.map_or_else(String::new, |cost| format!("\n\n{}\n  {cost}", Tone::Strong.paint("Cost")));
        output::print(&format!("{file}{}{cost}", pretty(&timing, reported)))?;
    }
    Ok(Exit::Done)
}

/// Settings and bounds, for programs: everything in milliseconds.
#[derive(Serialize)]
struct Document<'a> {
    /// What a file came to, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a FileView>,
    settings: CheckedSettings,
    bounds: BoundsView,
    /// What the requests of a node cost, where they have a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<String>,
}

#[derive(Serialize)]
struct CheckedSettings {
    ttl_ms: f64,
    takeover: tenure::Takeover,
    grace_ms: Option<f64>,
    beat_ms: f64,
    op_timeout_ms: f64,
    stop_grace_ms: f64,
    kill_slack_ms: f64,
    clock_error_ppm: u32,
}

#[derive(Serialize)]
struct BoundsView {
    crash_ms: f64,
    crash_of_two_ms: f64,
    disconnect_ms: Option<f64>,
    hand_over_ms: f64,
    in_doubt_ms: f64,
    stop_ms: f64,
    kill_ms: f64,
    over_ms: f64,
    operations_per_minute: u64,
    standby_operations_per_minute: u64,
}

impl Document<'_> {
    fn of(timing: &Timing) -> Self {
        let bounds = timing.bounds();
        let Bounds { crash, disconnect, in_doubt, cancel, deadline, .. } = bounds;
        Self {
            config: None,
            cost: None,
            settings: CheckedSettings {
                ttl_ms: millis(timing.ttl),
                takeover: timing.takeover,
                grace_ms: disconnect.map(|_| millis(timing.grace)),
                beat_ms: millis(timing.beat),
                op_timeout_ms: millis(timing.op_timeout),
                stop_grace_ms: millis(timing.stop_grace),
                kill_slack_ms: millis(timing.kill_slack),
                clock_error_ppm: timing.rate_error_ppm,
            },
            bounds: BoundsView {
                crash_ms: millis(crash),
                crash_of_two_ms: millis(bounds.crash_of_two),
                disconnect_ms: disconnect.map(millis),
                hand_over_ms: millis(timing.beat + AFTER_A_BEAT),
                in_doubt_ms: millis(in_doubt),
                stop_ms: millis(cancel),
                kill_ms: millis(deadline.saturating_sub(timing.kill_slack)),
                over_ms: millis(deadline),
                operations_per_minute: bounds.operations_per_minute,
                standby_operations_per_minute: bounds.standby_operations_per_minute,
            },
        }
    }
}

/// To the microsecond: rounding up by a nanosecond is nothing to show.
fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1000.0
}

fn pretty(timing: &Timing, kernel_reports: bool) -> String {
    let bounds = timing.bounds();
    let heading = |text: &str| Tone::Strong.paint(text);
    let mut text = heading("The settings are valid");
    let percent = f64::from(timing.rate_error_ppm) / 10_000.0;
    let on_disconnect = bounds.disconnect.map(|_| {
        ("grace", span(timing.grace), "how long a connection may be down, where the store reports it")
    });
    for (name, value, meaning) in [
        ("ttl", span(timing.ttl), "lease duration: a leader that stops renewing is replaced after this time"),
        ("beat", span(timing.beat), "how often a leader renews its session"),
        ("op-timeout", span(timing.op_timeout), "timeout of a store operation"),
        ("stop-grace", span(timing.stop_grace), "the work is stopped this long before the lease ends"),
        (
            "kill-slack",
            span(timing.kill_slack),
            "work that has not stopped is killed this long before the lease ends",
        ),
        ("clock error", format!("{percent}%"), "bound on the rate error of each node's own clock"),
    ]
    .into_iter()
    .chain(on_disconnect)
    {
        let _ = write!(text, "\n  {name:<12} {value:>7}   {}", Tone::Faint.paint(meaning));
    }
    let _ = write!(text, "\n\n{}", heading("Bounds"));
    let kill = bounds.deadline.saturating_sub(timing.kill_slack);
    let disconnected = bounds.disconnect.map_or_else(String::new, span);
    for (what, value, note) in [
        (
            "a disconnected leader is replaced within",
            disconnected.clone(),
            "where the store reports it: see tenure doctor",
        ),
        (
            "a crashed leader is replaced within",
            span(bounds.crash),
            if kernel_reports { "at once on the same host: the kernel reports it" } else { "" },
        ),
        (
            "  if its first standby dies with it",
            span(bounds.crash_of_two),
            "the one that watches it most closely",
        ),
        (
            "a leader that resigns is replaced within",
            span(timing.beat + AFTER_A_BEAT),
            "at once where the store has notifications",
        ),
        ("a leader that is cut off from the store", String::new(), ""),
        ("  notices within", span(bounds.in_doubt), ""),
        ("  stops its work after", span(bounds.cancel), "counted from its last renewal"),
        ("  kills its work after", span(kill), ""),
        ("  has lost its roles after", span(bounds.deadline), "before another node can lead"),
        ("store operations per minute", String::new(), "for any number of roles"),
        ("  of a leader", bounds.operations_per_minute.to_string(), ""),
        ("  of its first standby", bounds.operations_per_minute.to_string(), "and up to a tenth more"),
        ("  of every other standby", bounds.standby_operations_per_minute.to_string(), ""),
    ]
    .into_iter()
    .skip(usize::from(disconnected.is_empty()))
    {
        let line = format!(
            "\n  {what:<41} {value:>7}   {}",
            if note.is_empty() { String::new() } else { Tone::Faint.paint(note) }
        );
        text.push_str(line.trim_end());
    }
    text
}
