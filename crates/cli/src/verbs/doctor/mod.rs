//! `tenure doctor`: what the store can promise, how fast it is, and what is wrong with it.

mod clock;
mod place;
mod probe;

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tenure::operator::Snapshot;
use tenure::store::Description;
use tenure::{Class, Timing};

use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::Tone;
use crate::output::{self, tame, time::span};

use self::probe::{Figures, Quantiles};

/// Examines the store. What it writes goes into a namespace of its own, and is cleared away.
///
/// # Errors
/// If the store cannot be used at all.
pub async fn main(common: &Common) -> Result<Exit, Exit> {
    if common.names_only_an_agent() {
        let why = "doctor examines a store, and an agent does not tell which it has: name it with --store";
        return Err(Exit::Usage(why.to_owned()));
    }
    let operator = super::operator(common)?;
    let store = operator.store();
    let description = store.describe().await?;
    let watch = clock::Stopwatch::start();
    let figures = probe::probe(store, &common.store_url()).await?;
    let clock = watch.stop();
    let snapshot = operator.snapshot().await?;
    let report = Report {
        store: tame(&store.to_string()),
        place: place::of(&store.to_string()),
        namespace: operator.namespace().to_string(),
        description,
        figures,
        clock,
        snapshot,
    };
    let problems = report.problems();
    if common.is_json() {
        output::json(&Document::of(&report, &problems))?;
    } else {
        output::print(&report.pretty(&problems))?;
    }
    Ok(match problems.len() {
        0 => Exit::Done,
        1 => Exit::No("one thing is wrong; see above".to_owned()),
        n => Exit::No(format!("{n} things are wrong; see above")),
    })
}

/// What was found.
struct Report {
    store: String,
    place: Option<String>,
    namespace: String,
    description: Description,
    figures: Figures,
    clock: clock::Reading,
    snapshot: Snapshot,
}

impl Report {
    /// What is wrong, each with what to do.
    fn problems(&self) -> Vec<String> {
        let Self { description, figures, clock, snapshot, .. } = self;
        let mut problems = Vec::new();
        if description.rings && figures.ring.is_none() {
            problems.push(
                "a change was not told to another watcher within 2s: leaders are replaced a beat later than they \
                 could be; see whether the file system supports inotify"
                    .to_owned(),
            );
        }
        if (description.witnesses_death || description.witnesses_disconnect) && !figures.attests {
            problems.push(
                "it promises to witness deaths or dropped connections, but takes no hold of a witness: report this".to_owned(),
            );
        }
        let limit = Timing::default().op_timeout;
        if figures.write.p99 > limit {
            problems.push(format!(
                "one in a hundred writes takes {} or more, but a store has {} to answer by default: find out what \
                 slows the disk or the server down, or raise --ttl",
                span(figures.write.p99),
                span(limit)
            ));
        }
        problems.extend(clock.problem());
        problems.extend(unreadable(snapshot));
        problems
    }

    /// What could be better.
    fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = self.description.remarks.iter().map(|remark| tame(remark)).collect();
        if self.place.as_deref().is_some_and(place::is_memory) {
            remarks.push(
                "the file lies in memory: a restart of the machine loses it; name one on a disk for real work".to_owned(),
            );
        }
        remarks
    }

    fn pretty(&self, problems: &[String]) -> String {
        let Self { description, figures, .. } = self;
        let yes = |yes: bool, what: &str, not: &str| if yes { what.to_owned() } else { not.to_owned() };
        let ring = figures.ring.map_or_else(String::new, |ring| format!(", heard after {}", span(ring)));
        let mut lines = vec![
            ("store", self.store.clone()),
            ("what it is", tame(&description.about)),
            ("class", format!("{:?}: {}", description.class, promise(description.class))),
            (
                "rings",
                yes(description.rings, "yes: others look at once", "no: others look at their next beat")
                    + &ring,
            ),
            (
                "knows the dead",
                yes(
                    description.witnesses_death,
                    "at once on this host: the kernel tells",
                    "no: a lease has to run out",
                ),
            ),
            ("disconnected", disconnected(description)),
            ("write", quantiles(&figures.write)),
            ("read", quantiles(&figures.read)),
            ("lease clock", self.clock.pretty()),
            ("namespace", format!("{}: {}", self.namespace, counts(&self.snapshot))),
        ];
        if let Some(place) = &self.place {
            lines.insert(2, ("file system", place.clone()));
        }
        let mut text = String::new();
        for (name, value) in lines {
            let _ = writeln!(text, "{} {value}", Tone::Faint.paint(&format!("{name:<15}")));
        }
        for remark in self.remarks() {
            let _ = write!(text, "\n{} {remark}", Tone::Warn.paint("note: "));
        }
        for problem in problems {
            let _ = write!(text, "\n{} {problem}", Tone::Bad.paint("wrong:"));
        }
        if problems.is_empty() {
            let _ = write!(text, "\n{}", Tone::Good.paint("Nothing is wrong with it."));
        }
        text
    }
}

/// What a dropped connection can mean here.
fn disconnected(description: &Description) -> String {
    let settings =
        tenure::Settings { takeover: tenure::Takeover::OnDisconnect, ..tenure::Settings::default() };
    let bound = Timing::new(&settings).ok().and_then(|timing| timing.bounds().disconnect);
    match bound {
        Some(bound) if description.witnesses_disconnect => {
            format!(
                "the server tells: with --takeover on-disconnect replaced within {} by default",
                span(bound)
            )
        }
        _ => "nobody tells: --takeover on-disconnect would be strict here".to_owned(),
    }
}

/// What a class promises, in one sentence.
fn promise(class: Class) -> &'static str {
    match class {
        Class::A => "consensus; an acknowledged write is never lost, so there is never a second leader",
        Class::B => "one durable node; an acknowledged write is never lost while its disk lives",
        Class::C => {
            "an acknowledged write can vanish; two leaders are rare, and only the token tells them apart"
        }
    }
}

fn quantiles(figures: &Quantiles) -> String {
    format!("p50 {}, p99 {} ({} operations)", span(figures.p50), span(figures.p99), figures.count)
}

fn counts(snapshot: &Snapshot) -> String {
    let some = |n: usize, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    format!("{}, {}", some(snapshot.roles.len(), "role"), some(snapshot.nodes.len(), "node"))
}

fn unreadable(snapshot: &Snapshot) -> Option<String> {
    let first = snapshot.unreadable.first()?;
    let rest = match snapshot.unreadable.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    };
    Some(format!("{first}{rest} holds what this version cannot read: use the version that wrote it"))
}

/// What was found, for programs.
#[derive(Serialize)]
struct Document<'a> {
    store: &'a str,
    about: String,
    file_system: Option<&'a str>,
    identity: &'a str,
    class: String,
    promise: &'static str,
    rings: bool,
    ring_ms: Option<f64>,
    witnesses_death: bool,
    witnesses_disconnect: bool,
    write: Milliseconds,
    read: Milliseconds,
    lease_clock: clock::View,
    namespace: &'a str,
    roles: usize,
    nodes: usize,
    remarks: Vec<String>,
    problems: &'a [String],
    healthy: bool,
}

#[derive(Serialize)]
struct Milliseconds {
    operations: usize,
    p50_ms: f64,
    p99_ms: f64,
}

impl Milliseconds {
    fn of(figures: &Quantiles) -> Self {
        Self { operations: figures.count, p50_ms: millis(figures.p50), p99_ms: millis(figures.p99) }
    }
}

fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1000.0
}

impl<'a> Document<'a> {
    fn of(report: &'a Report, problems: &'a [String]) -> Self {
        let Report { description, figures, clock, snapshot, .. } = report;
        Self {
            store: &report.store,
            about: tame(&description.about),
            file_system: report.place.as_deref(),
            identity: &description.identity,
            class: format!("{:?}", description.class),
            promise: promise(description.class),
            rings: description.rings,
            ring_ms: figures.ring.map(millis),
            witnesses_death: description.witnesses_death,
            witnesses_disconnect: description.witnesses_disconnect,
            write: Milliseconds::of(&figures.write),
            read: Milliseconds::of(&figures.read),
            lease_clock: clock.view(),
            namespace: &report.namespace,
            roles: snapshot.roles.len(),
            nodes: snapshot.nodes.len(),
            remarks: report.remarks(),
            problems,
            healthy: problems.is_empty(),
        }
    }
}
