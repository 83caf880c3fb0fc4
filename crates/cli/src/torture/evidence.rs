//! One row of docs/evidence.md, made from what was measured.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use tenure_torture::judge::Verdict;

use super::report::{faults, show, violations};
use crate::exit::Exit;
use tenure_torture::TortureRecord;

/// Appends the row.
pub(super) fn append(file: &Path, record: &TortureRecord, verdict: &Verdict) -> Result<(), Exit> {
    let written = std::fs::File::options().append(true).create(true).open(file);
    let written = written.and_then(|mut file| writeln!(file, "{}", row(record, verdict)));
    written
        .map_err(|error| Exit::Failed(format!("cannot write {}: {error}; use another file", file.display())))
}

fn row(record: &TortureRecord, verdict: &Verdict) -> String {
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
        verdict.tenures.len(),
        show(counted),
        show(record.bound()),
        verdict.fenced.1,
        verdict.losses.len(),
        violations(record, verdict),
    )
}
