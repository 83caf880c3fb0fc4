//! What requests cost. Prices are assumptions, and are said with every figure.

use std::time::Duration;

/// Dollars for a thousand puts or lists, and for a thousand reads: S3 Standard in us-east-1, November 2026.
const WRITE: f64 = 0.005;
const READ: f64 = 0.0004;

/// Requests of a node in each beat, with one role and three nodes, as a test counts them: the beat, the list of what operators ask
/// for, every fifth time the list of sessions; and one read for each register that a poll names, every fifth time the sessions
/// that moved.
const WRITES_PER_BEAT: f64 = 2.2;
const READS_PER_BEAT: f64 = 5.3;

/// Seconds in a month.
const MONTH: f64 = 30.4 * 86_400.0;

/// What `tenure check` says of the requests of nodes at rest.
pub(super) fn said(beat: Duration) -> String {
    let beats = 60.0 / beat.as_secs_f64();
    let (writes, reads) = (beats * WRITES_PER_BEAT, beats * READS_PER_BEAT);
    let dollars = (writes * WRITE + reads * READ) / 1000.0 * MONTH / 60.0;
    format!(
        "about {:.0} puts and lists and {:.0} reads a minute for each node at rest: ${dollars:.2} a month, if a thousand puts or \
         lists cost ${WRITE} and a thousand reads ${READ}",
        writes.ceil(),
        reads.ceil()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_beat_costs_less() {
        let at = |seconds| said(Duration::from_secs(seconds));
        assert!(at(4).contains("33 puts and lists and 80 reads a minute"), "{}", at(4));
        assert!(at(4).contains("$8.62 a month"), "{}", at(4));
        assert!(at(8).contains("$4.31 a month"), "{}", at(8));
    }
}
