//! The verdict in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tenure::store::Class;
use tenure_torture::judge::{DataLoss, NeighbourActivity, Verdict, ViolationKind};

use crate::exit::Exit;
use tenure_torture::TortureRecord;
use tenure_torture::fault::{FaultKind, is_kind};

/// How many violations are told in full.
const SHOWN: usize = 10;

/// How often each kind of fault was done.
pub(super) fn faults(record: &TortureRecord) -> BTreeMap<&str, usize> {
    let mut count = BTreeMap::new();
    for fault in record.injected.iter().filter(|fault| is_kind(&fault.kind)) {
        *count.entry(fault.kind.as_str()).or_insert(0) += 1;
    }
    count
}

/// The report.
pub(super) fn text(record: &TortureRecord, verdict: &Verdict) -> String {
    let mut text = String::new();
    let lasted = Duration::from_nanos(record.expected.1 - record.expected.0);
    let early = if record.cut_short { ", ended early" } else { "" };
    let _ = writeln!(
        text,
        "\n{:.1} s on {} (class {:?}){early}",
        lasted.as_secs_f64(),
        record.about,
        record.class
    );
    let kinds: Vec<String> = faults(record).iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let _ =
        writeln!(text, "injected:   {}", if kinds.is_empty() { "nothing".into() } else { kinds.join(", ") });
    let done =
        |kind: &&FaultKind| kind.is_condition() && !record.unable.iter().any(|(unable, _)| unable == *kind);
    for kind in record.settings.kinds.iter().filter(done) {
        let _ = writeln!(text, "throughout: {}", kind.about());
    }
    unable(record, &mut text);
    figures(record, verdict, &mut text);
    losses(record, verdict, &mut text);
    for (key, words) in &record.exited {
        let _ = writeln!(text, "{key} ended by itself, A VIOLATION: {words}");
    }
    for violation in verdict.violations.iter().take(SHOWN) {
        let _ = writeln!(text, "VIOLATION: {violation}");
    }
    if verdict.violations.len() > SHOWN {
        let _ = writeln!(text, "… and {} more", verdict.violations.len() - SHOWN);
    }
    let _ = write!(
        text,
        "violations: {}; repeat with --seed {}",
        violations(record, verdict),
        record.settings.seed
    );
    text
}

/// How many there were: a node that ended by itself is one too.
pub(super) fn violations(record: &TortureRecord, verdict: &Verdict) -> usize {
    verdict.violations.len() + record.exited.len()
}

fn unable(record: &TortureRecord, text: &mut String) {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (kind, why) in &record.unable {
        reasons.entry(why).or_default().push(FaultKind::name(*kind));
    }
    for (why, kinds) in reasons {
        let _ = writeln!(text, "skipped:    {} ({why})", kinds.join(", "));
    }
    let mut failed: BTreeMap<FaultKind, Vec<&str>> = BTreeMap::new();
    for (kind, why) in &record.failed {
        failed.entry(*kind).or_default().push(why);
    }
    for (kind, whys) in failed {
        let _ = writeln!(
            text,
            "failed:     {}, {} times, last: {}",
            kind.name(),
            whys.len(),
            whys[whys.len() - 1]
        );
    }
}

fn figures(record: &TortureRecord, verdict: &Verdict, text: &mut String) {
    let (counted, raw) = verdict.longest_gap();
    let (taken, refused) = verdict.fenced;
    let _ = writeln!(text, "elections:  {}, witnessed at {} instants", verdict.tenures.len(), record.acts);
    let _ = writeln!(
        text,
        "leaderless: at most {} where a node could have led, bound {} ({} in all)",
        show(counted),
        show(record.bound()),
        show(raw)
    );
    let held = if has(verdict, ViolationKind::Fence) { "IT WENT BACK" } else { "it never went back" };
    let _ = writeln!(text, "fence:      {taken} writes taken, {refused} stale ones refused; {held}");
    let ran = has(verdict, ViolationKind::TickTwice) || has(verdict, ViolationKind::TickLost);
    let ran = if ran { "NOT EACH ONCE" } else { "none twice, none lost" };
    let _ = writeln!(text, "ticks:      {} run, {ran}", verdict.ticks);
    let linear = if has(verdict, ViolationKind::Register) { "NOT LINEARIZABLE" } else { "linearizable" };
    let _ = writeln!(text, "registers:  {} operations, {linear}", verdict.operations);
    if verdict.nuisance != NeighbourActivity::default() {
        let NeighbourActivity { forged, refused, connections, locks } = verdict.nuisance;
        let _ = writeln!(
            text,
            "neighbour:  {forged} notifications forged, {refused} attempts refused, {connections} connections flooded, \
             {locks} locks taken"
        );
    }
}

/// What a store that can forget has lost, and that the token held.
fn losses(record: &TortureRecord, verdict: &Verdict, text: &mut String) {
    let destroyed =
        record.injected.iter().filter(|fault| fault.loses != DataLoss::None && is_kind(&fault.kind)).count();
    if record.class != Class::C && destroyed == 0 {
        return;
    }
    let shared = verdict.losses.iter().filter(|loss| loss.wrong == ViolationKind::SharedToken).count();
    let held = match shared {
        _ if has(verdict, ViolationKind::Fence) => "DID NOT HOLD".to_owned(),
        0 => "held".to_owned(),
        times => format!("was given twice {times} times, because the register that knew it was lost"),
    };
    let _ = writeln!(
        text,
        "lost:       data {destroyed} times; {} consequences that no guarantee covers: only the token protects, and it \
         {held}",
        verdict.losses.len(),
    );
    for loss in verdict.losses.iter().take(3) {
        let _ = writeln!(text, "            {loss}");
    }
}

fn has(verdict: &Verdict, wrong: ViolationKind) -> bool {
    verdict.violations.iter().any(|violation| violation.wrong == wrong)
}

pub(super) fn show(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

/// How the process ends.
pub(super) fn exit(record: &TortureRecord, verdict: &Verdict) -> Exit {
    if let Some(violation) = verdict.violations.first() {
        return Exit::No(format!("{violation}"));
    }
    if let Some((key, words)) = record.exited.first() {
        return Exit::No(format!("{key} ended by itself: {words}"));
    }
    Exit::Done
}
