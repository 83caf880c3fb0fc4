//! The page: one file that needs nothing else, with the timeline of leaders, faults and violations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tenure_torture::judge::{FaultScope, Span, Verdict};

use super::report::{faults, show, text};
use tenure_torture::ROLES;
use tenure_torture::TortureRecord;
use tenure_torture::member::{name, role};

/// Colours of roles, told apart by those who see few colours too.
const COLOURS: [&str; ROLES] = ["#0072b2", "#e69f00", "#009e73"];

/// How wide a chart is, how high a lane, and where lanes begin.
const WIDTH: f64 = 1_160.0;
const LANE: f64 = 34.0;
const LEFT: f64 = 80.0;

pub(super) fn page(record: &TortureRecord, verdict: &Verdict) -> String {
    let sound = verdict.violations.is_empty() && record.exited.is_empty();
    let (class, word) = if sound { ("good", "no violation") } else { ("bad", "VIOLATED") };
    let summary = escape(text(record, verdict).trim());
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tenure torture, seed {seed}</title>\n\
         <style>{STYLE}</style>\n<h1>Torture of {about} <span class=\"{class}\">{word}</span></h1>\n\
         <p>Seed {seed}, {nodes} nodes, ttl {ttl}. Hover over an element to read what it is.</p>\n\
         <h2>Leaders and faults</h2>\n{legend}{timeline}\n<h2>Time without a leader</h2>\n{gaps}\n\
         <h2>Faults, by kind</h2>\n{bars}\n<h2>Summary</h2>\n<pre>{summary}</pre></html>\n",
        seed = record.settings.seed,
        about = escape(&record.about),
        nodes = record.settings.nodes,
        ttl = show(record.settings.ttl),
        legend = legend(),
        timeline = timeline(record, verdict),
        gaps = gaps(record, verdict),
        bars = bars(&faults(record)),
    )
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1200px;margin:2em auto;padding:0 1em;\
color:#222;background:#fff}h1 span{font-size:60%;padding:.2em .6em;border-radius:4px;color:#fff}.good{background:#009e73}\
.bad{background:#c00}svg{width:100%;height:auto}text{font-size:12px;fill:#444}pre{white-space:pre-wrap;background:#f5f5f5;\
padding:1em}.f{fill:#c00;opacity:.16}.v{stroke:#c00;stroke-width:2}.g{stroke:#ddd}@media(prefers-color-scheme:dark){\
body{background:#181818;color:#ddd}pre{background:#222}text{fill:#bbb}.g{stroke:#333}}";

fn legend() -> String {
    let item = |index: usize| format!("<span style=\"color:{}\">■</span> {} ", COLOURS[index], role(index));
    let roles: String = (0..ROLES).map(item).collect();
    format!(
        "<p>{roles} <span style=\"color:#c00;opacity:.4\">■</span> a fault <b style=\"color:#c00\">|</b> a violation</p>"
    )
}

/// Where an instant stands.
struct Scale {
    from: u64,
    length: f64,
}

impl Scale {
    fn of((from, to): Span) -> Self {
        Self { from, length: (to.saturating_sub(from)).max(1) as f64 }
    }

    fn x(&self, t: u64) -> f64 {
        let part = t.saturating_sub(self.from) as f64 / self.length;
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT)
    }
}

/// A lane for the store and one for each node, with a strip for each role.
fn timeline(record: &TortureRecord, verdict: &Verdict) -> String {
    let scale = Scale::of(record.expected);
    let lanes: Vec<String> =
        std::iter::once("store".to_owned()).chain((0..record.settings.nodes).map(name)).collect();
    let height = LANE * lanes.len() as f64 + 24.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"timeline\">");
    for (index, lane) in lanes.iter().enumerate() {
        let y = LANE * index as f64;
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{:.0}\">{lane}</text><line class=\"g\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>",
            y + 20.0
        );
    }
    for tenure in &verdict.tenures {
        let (Some(span), Some(lane)) = (tenure.led, lanes.iter().position(|lane| *lane == tenure.node))
        else {
            continue;
        };
        let strip = (0..ROLES).find(|index| role(*index) == tenure.role).unwrap_or(0);
        let y = LANE * lane as f64 + 3.0 + strip as f64 * 10.0;
        let title = format!("{} leads {} under token {}", tenure.node, tenure.role, tenure.token);
        bar(&mut svg, &scale, span, (y, 8.0), &format!("fill=\"{}\"", COLOURS[strip]), &title);
    }
    for fault in record.injected.iter().filter(|fault| fault.kind != "class-c") {
        let lane = match &fault.on {
            FaultScope::Store | FaultScope::Servers | FaultScope::Role(_) => Some(0),
            FaultScope::Node(node) => lanes.iter().position(|lane| lane == node),
            FaultScope::Nothing => {
                lanes.iter().position(|lane| fault.what.contains(lane.as_str())).or(Some(0))
            }
        };
        let y = LANE * lane.unwrap_or(0) as f64;
        bar(&mut svg, &scale, (fault.from, fault.to), (y, LANE), "class=\"f\"", &fault.what);
    }
    for violation in &verdict.violations {
        let (x, end) = (scale.x(violation.span.0), height - 20.0);
        let title = escape(&violation.to_string());
        let _ = write!(
            svg,
            "<line class=\"v\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{end}\"><title>{title}</title></line>"
        );
    }
    axis(&mut svg, &scale, height - 6.0);
    svg + "</svg>"
}

fn bar(svg: &mut String, scale: &Scale, (from, to): Span, (y, height): (f64, f64), look: &str, title: &str) {
    let (x, width) = (scale.x(from), (scale.x(to) - scale.x(from)).max(1.5));
    let title = escape(title);
    let _ = write!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {look}><title>{title}</title></rect>"
    );
}

fn axis(svg: &mut String, scale: &Scale, y: f64) {
    for part in 0..=8_u32 {
        let seconds = scale.length / 1e9 * f64::from(part) / 8.0;
        let x = LEFT + (WIDTH - LEFT) * f64::from(part) / 8.0;
        let anchor = if part == 8 { "end" } else { "middle" };
        let _ = write!(svg, "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\">{seconds:.0} s</text>");
    }
}

/// A dot for each gap: when it began, and how much of it nothing excuses, against the bound.
fn gaps(record: &TortureRecord, verdict: &Verdict) -> String {
    const HEIGHT: f64 = 220.0;
    let (scale, bound) = (Scale::of(record.expected), record.bound());
    let most = verdict.longest_gap().1.max(2 * bound).as_secs_f64();
    let y = |span: Duration| HEIGHT - 24.0 - span.as_secs_f64() / most * (HEIGHT - 40.0);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"gaps\">");
    let line = y(bound);
    let _ = write!(
        svg,
        "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\
         <text x=\"0\" y=\"{line:.1}\">promised</text>"
    );
    for gap in &verdict.gaps {
        let (whole, counted) = (Duration::from_nanos(gap.to - gap.from), Duration::from_nanos(gap.unexcused));
        let title = format!("{}: no leader for {}, of which {} count", gap.role, show(whole), show(counted));
        let (x, top, dot) = (scale.x(gap.from), y(whole), y(counted));
        let _ = write!(
            svg,
            "<g><title>{}</title><line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{dot:.1}\"/>\
             <circle cx=\"{x:.1}\" cy=\"{dot:.1}\" r=\"3.5\" fill=\"#0072b2\"/></g>",
            escape(&title)
        );
    }
    axis(&mut svg, &scale, HEIGHT - 4.0);
    svg + "</svg><p>A dot is what counts of a gap; the line above it, if any, is what faults and stalls excuse.</p>"
}

fn bars(faults: &BTreeMap<&str, usize>) -> String {
    let height = 20.0 * faults.len() as f64 + 4.0;
    let most = faults.values().max().copied().unwrap_or(1).max(4) as f64;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"faults\">");
    for (index, (kind, count)) in faults.iter().enumerate() {
        let (y, width) = (20.0 * index as f64, *count as f64 / most * (WIDTH - 200.0));
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{:.0}\">{kind}</text><rect x=\"110\" y=\"{:.0}\" width=\"{width:.0}\" height=\"14\" \
             fill=\"#56b4e9\"/><text x=\"{:.0}\" y=\"{:.0}\">{count}</text>",
            y + 14.0,
            y + 3.0,
            116.0 + width,
            y + 14.0
        );
    }
    svg + "</svg>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
