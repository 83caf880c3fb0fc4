//! One row of docs/evidence.md, made from what was measured.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use tenure_testkit::judge::Verdict;

use super::nemesis::Record;
use super::report::{faults, show};
use crate::exit::Exit;

/// Appends the row.
pub(super) fn append(file: &Path, record: &Record, verdict: &Verdict) -> Result<(), Exit> {
    let written = std::fs::File::options().append(true).create(true).open(file);
    let written = written.and_then(|mut file| writeln!(file, "{}", row(record, verdict)));
    written.map_err(|error| Exit::Failed(format!("{}: {error}; name another file", file.display())))
}

fn row(record: &Record, verdict: &Verdict) -> String {
    let minutes = Duration::from_nanos(record.expected.1 - record.expected.0).as_secs_f64() / 60.0;
    let faults = faults(record);
    let (total, kinds) = (faults.values().sum::<usize>(), faults.len());
    let (counted, _) = verdict.longest_gap();
    format!(
        "| {} | {:?} | {minutes:.1} | {} | {} | {} | {total} of {kinds} kinds | {} | {} / {} | {} | {} | {} |",
        record.store,
        record.class,
        record.settings.nodes,
        show(record.settings.ttl),
        record.settings.seed,
        verdict.reigns.len(),
        show(counted),
        show(record.bound()),
        verdict.fenced.1,
        verdict.losses.len(),
        verdict.violations.len(),
    )
}
