//! `tenure doctor`: what the store can promise, how fast it is, and what is wrong with it.

mod agent;
mod clock;
mod location;
mod probe;

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tenure::operator::{ClusterSnapshot, RoleReport};
use tenure::store::Description;
use tenure::{Class, Timing, Token};

use tenure_agent::model::AgentLimits;

use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::Tone;
use crate::output::{self, sanitize, time::span};

use self::probe::{Quantiles, StoreFigures};

/// Examines the store. What it writes goes into a namespace of its own, and is cleared away.
///
/// # Errors
/// If the store cannot be used at all.
pub async fn main(common: &Common) -> Result<Exit, Exit> {
    if common.names_only_an_agent() {
        let why = "cannot examine an agent: doctor examines a store; name the store with --store";
        return Err(Exit::Usage(why.to_owned()));
    }
    let operator = super::operator(common)?;
    let store = operator.store();
    let description = store.describe().await?;
    let watch = clock::Stopwatch::start();
    let figures = probe::probe(store, &common.store_url()).await?;
    let clock = watch.stop();
    let snapshot = operator.snapshot().await?;
    let report = DoctorReport {
        store: sanitize(&store.to_string()),
        place: description.file.as_deref().and_then(location::of),
        namespace: operator.namespace().to_string(),
        description,
        figures,
        clock,
        snapshot,
        limits: agent::limits(common).await,
        usual: usual_timing(&common.store_url()),
    };
    let problems = report.problems();
    if common.is_json() {
        output::json(&DoctorDocument::of(&report, &problems))?;
    } else {
        output::print(&report.pretty(&problems))?;
    }
    Ok(match problems.len() {
        0 => Exit::Done,
        1 => Exit::No("1 problem found; see above".to_owned()),
        n => Exit::No(format!("{n} problems found; see above")),
    })
}

/// What was found.
struct DoctorReport {
    store: String,
    place: Option<String>,
    namespace: String,
    description: Description,
    figures: StoreFigures,
    clock: clock::Reading,
    snapshot: ClusterSnapshot,
    limits: Option<AgentLimits>,
    /// The times of nodes that name none.
    usual: Timing,
}

impl DoctorReport {
    /// What is wrong, each with what to do.
    fn problems(&self) -> Vec<String> {
        let Self { description, figures, clock, snapshot, .. } = self;
        let mut problems = Vec::new();
        if description.notifies && figures.notify.is_none() {
            problems.push(
                "a change did not notify another watcher within 2s: leaders are replaced up to a beat later; check \
                 that the file system supports inotify"
                    .to_owned(),
            );
        }
        if (description.process_liveness_locks || description.connection_liveness_locks)
            && !figures.acquires_locks
        {
            problems
                .push("the store declares liveness locks but acquires none: report this as a bug".to_owned());
        }
        let limit = self.usual.op_timeout;
        if figures.write.p99 > limit {
            problems.push(format!(
                "one in a hundred writes takes {} or more, but the default timeout is {}: find out what \
                 slows the disk or the server down, or raise --ttl",
                span(figures.write.p99),
                span(limit)
            ));
        }
        problems.extend(clock.problem());
        problems.extend(unreadable(snapshot));
        problems.extend(used_up(snapshot));
        problems
    }

    /// What could be better.
    fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> =
            self.description.remarks.iter().map(|remark| sanitize(remark)).collect();
        remarks.extend(after_a_loss(self.description.class).iter().map(ToString::to_string));
        remarks.extend(long_lease(&self.description, &self.snapshot));
        if self.place.as_deref().is_some_and(location::is_memory) {
            remarks.push(
                "the file is in memory: a restart of the machine loses it; use one on a disk for real work"
                    .to_owned(),
            );
        }
        remarks
    }

    fn pretty(&self, problems: &[String]) -> String {
        let Self { description, figures, .. } = self;
        let yes = |yes: bool, what: &str, not: &str| if yes { what.to_owned() } else { not.to_owned() };
        let notify =
            figures.notify.map_or_else(String::new, |notify| format!(", received after {}", span(notify)));
        let mut lines = vec![
            ("store", self.store.clone()),
            ("what it is", sanitize(&description.about)),
            ("class", format!("{:?}: {}", description.class, promise(description.class))),
            (
                "notifies",
                yes(
                    description.notifies,
                    "yes: other nodes read at once",
                    "no: other nodes read at their next beat",
                ) + &notify,
            ),
            (
                "knows the dead",
                yes(
                    description.process_liveness_locks,
                    "at once on this host: the kernel reports it",
                    "no: the lease has to end",
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
        lines.extend(self.limits.as_ref().map(|limits| ("agent", agent::pretty(limits))));
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
            let _ = write!(text, "\n{}", Tone::Good.paint("No problems found."));
        }
        text
    }
}

/// The times of nodes on that store that name none.
fn usual_timing(store: &str) -> Timing {
    let ttl = Some(tenure::store::default_ttl(store));
    Timing::new(&tenure::TimingSettings { ttl, ..tenure::TimingSettings::default() }).unwrap_or_default()
}

/// What a dropped connection can mean here.
fn disconnected(description: &Description) -> String {
    let settings = tenure::TimingSettings {
        takeover: tenure::Takeover::OnDisconnect,
        ..tenure::TimingSettings::default()
    };
    let bound = Timing::new(&settings).ok().and_then(|timing| timing.bounds().disconnect);
    match bound {
        Some(bound) if description.connection_liveness_locks => {
            format!(
                "the server reports it: with --takeover on-disconnect replaced within {} by default",
                span(bound)
            )
        }
        _ => "not reported: --takeover on-disconnect has no effect on this store".to_owned(),
    }
}

/// What a class promises, in one sentence.
fn promise(class: Class) -> &'static str {
    match class {
        Class::A => "consensus; an acknowledged write is never lost, so there is never a second leader",
        Class::B => "one durable node; an acknowledged write is never lost while its disk lives",
        Class::C => {
            "an acknowledged write can be lost, and two nodes can lead for a while then: fence your writes"
        }
    }
}

/// What may be after a class has lost something, and what a user can do, as docs/explanation/classes.md says it.
fn after_a_loss(class: Class) -> &'static [&'static str] {
    match class {
        Class::A | Class::B => &[],
        Class::C => &[
            "after a loss two nodes may lead and work for a role until the longest ttl has passed, a tick may run twice, and \
             history may have gaps; tokens rise as long as wall clocks agree to within 10 ms",
            "make losses rare with wait=N (Redis) or semi-synchronous replication (MySQL); make overlaps harmless with a fence, \
             or a resource that checks the token; exclude overlaps with a store of class A or B",
        ],
    }
}

fn quantiles(figures: &Quantiles) -> String {
    format!("p50 {}, p99 {} ({} operations)", span(figures.p50), span(figures.p99), figures.count)
}

fn counts(snapshot: &ClusterSnapshot) -> String {
    let some = |n: usize, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    format!("{}, {}", some(snapshot.roles.len(), "role"), some(snapshot.nodes.len(), "node"))
}

fn unreadable(snapshot: &ClusterSnapshot) -> Option<String> {
    let first = snapshot.unreadable.first()?;
    let rest = match snapshot.unreadable.len() - 1 {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    };
    Some(format!(
        "cannot read {first}{rest}: use the version that wrote it, or run `tenure repair` to see what can be \
         done"
    ))
}

/// Roles that are about to run out of tokens, because a register holds one that no leader ever got to.
fn used_up(snapshot: &ClusterSnapshot) -> Option<String> {
    let high = |role: &&RoleReport| role.token >= Token::IMPLAUSIBLE;
    let role = snapshot.roles.iter().chain(&snapshot.internal).find(high)?;
    let (name, token) = (&role.role, role.token);
    Some(format!(
        "token {token} of {name} is near the end of its range: run `tenure repair` to see what can be done"
    ))
}

/// A lease that no node has any more is still waited for.
fn long_lease(description: &Description, snapshot: &ClusterSnapshot) -> Option<String> {
    let lease = snapshot.longest_lease.filter(|_| description.class == Class::C)?;
    let needed =
        snapshot.nodes.iter().filter(|node| !node.state.is_over()).filter_map(|node| node.ttl_ms).max();
    let needed = Duration::from_millis(needed?);
    (lease > needed).then(|| {
        format!(
            "each node that starts waits {} before it claims a role, although no node has a longer ttl than {}: a node had \
             one; the nodes lower it by themselves after that time",
            span(lease),
            span(needed)
        )
    })
}

/// What was found, for programs.
#[derive(Serialize)]
struct DoctorDocument<'a> {
    store: &'a str,
    about: String,
    file_system: Option<&'a str>,
    identity: &'a str,
    class: String,
    promise: &'static str,
    notifies: bool,
    notify_ms: Option<f64>,
    process_liveness_locks: bool,
    connection_liveness_locks: bool,
    write: Milliseconds,
    read: Milliseconds,
    lease_clock: clock::View,
    namespace: &'a str,
    roles: usize,
    nodes: usize,
    longest_lease_ms: Option<f64>,
    unreadable: &'a [String],
    agent: Option<&'a AgentLimits>,
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

impl<'a> DoctorDocument<'a> {
    fn of(report: &'a DoctorReport, problems: &'a [String]) -> Self {
        let DoctorReport { description, figures, clock, snapshot, .. } = report;
        Self {
            store: &report.store,
            about: sanitize(&description.about),
            file_system: report.place.as_deref(),
            identity: &description.identity,
            class: format!("{:?}", description.class),
            promise: promise(description.class),
            notifies: description.notifies,
            notify_ms: figures.notify.map(millis),
            process_liveness_locks: description.process_liveness_locks,
            connection_liveness_locks: description.connection_liveness_locks,
            write: Milliseconds::of(&figures.write),
            read: Milliseconds::of(&figures.read),
            lease_clock: clock.view(),
            namespace: &report.namespace,
            roles: snapshot.roles.len(),
            nodes: snapshot.nodes.len(),
            longest_lease_ms: snapshot.longest_lease.map(millis),
            unreadable: &snapshot.unreadable,
            agent: report.limits.as_ref(),
            remarks: report.remarks(),
            problems,
            healthy: problems.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_class_c_is_what_its_page_says() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/classes.md");
        let page = std::fs::read_to_string(page).unwrap();
        let said = after_a_loss(Class::C).join(" ");
        for words in [
            "wait=N",
            "semi-synchronous replication",
            "fence",
            "checks the token",
            "store of class A or B",
            "10 ms",
        ] {
            assert!(said.contains(words) && page.contains(words), "{words}");
        }
        assert!(after_a_loss(Class::A).is_empty() && after_a_loss(Class::B).is_empty());
    }
}
