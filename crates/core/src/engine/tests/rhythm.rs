//! How a standby finds the moment of a leader's beats.

use super::*;

const EVERY: Duration = Duration::from_millis(1250);
const LEADER: SessionId = SessionId::new(7);

/// Looks for the beats of a leader that beats at `beat(n)`, in milliseconds; each look goes out `late` after it is due. Gives how
/// late each beat was seen, and how many looks there were.
fn follow(beats: u64, beat: impl Fn(u64) -> u64, late: impl Fn(u64) -> u64) -> (Vec<u64>, u64) {
    let mut rhythm = Rhythm::default();
    let (mut due, mut seen, mut looks, mut lags) = (Time::from_nanos(700_000_000), 0, 0, Vec::new());
    while seen < beats {
        let now = due.after(Duration::from_millis(late(looks)));
        looks += 1;
        rhythm.look_sent(due, now);
        let millis = now.as_nanos() / 1_000_000;
        let latest = (seen..).take_while(|n| beat(*n) <= millis).last().unwrap_or(seen);
        if latest > seen {
            lags.push(millis - beat(latest));
            seen = latest;
        }
        due = now.after(rhythm.looked(LEADER, latest + 1, EVERY));
        assert!(due.since(now) <= EVERY + EVERY / 10, "hardly later than one beat");
    }
    (lags, looks)
}

#[test]
fn a_beat_is_seen_soon_after_it_and_for_hardly_more_looks_than_beats() {
    for drift in [0, 1, 3] {
        for start in [0, 300, 699, 1100] {
            let (lags, looks) = follow(400, |n| start + (1250 + drift) * n, |_| 1);
            assert!(lags[12..].iter().all(|lag| *lag <= 1250 / 16), "{drift} {start}: {lags:?}");
            assert!(looks <= 440, "{drift} {start}: {looks} looks at 400 beats");
        }
    }
}

#[test]
fn a_beat_that_comes_earlier_than_it_used_to_is_found_again() {
    let (lags, looks) = follow(600, |n| if n < 200 { 900 + 1251 * n } else { 600 + 1251 * n }, |_| 1);
    assert!(lags[260..].iter().all(|lag| *lag <= 1250 / 16), "{lags:?}");
    assert!(looks <= 660, "{looks} looks at 600 beats");
}

#[test]
fn on_a_busy_machine_it_costs_no_more() {
    // Anything up to 80 ms late, on both sides.
    let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let beats: Vec<u64> = (0..800)
        .scan(0, |at, n| {
            *at += 1250 + noise(n) % 80;
            Some(*at)
        })
        .collect();
    let (lags, looks) = follow(700, |n| beats[n as usize], |n| noise(n + 7777) % 80);
    let mean = lags.iter().sum::<u64>() / lags.len() as u64;
    assert!(looks <= 770, "{looks} looks at 700 beats");
    assert!(mean <= 200, "{mean} ms: {lags:?}");
}

#[test]
fn one_that_does_not_come_is_looked_for_a_few_times_and_then_at_the_usual_pace() {
    let mut rhythm = Rhythm::default();
    rhythm.looked(LEADER, 1, EVERY);
    let gaps: Vec<Duration> = (0..20).map(|_| rhythm.looked(LEADER, 1, EVERY)).collect();
    assert!(gaps[12..].iter().all(|gap| *gap == searching(EVERY)), "{gaps:?}");
}

/// Whatever a session does, it cannot make a node look without end.
#[test]
fn a_session_that_beats_as_it_likes_is_looked_at_little_more_often() {
    let mut rhythm = Rhythm::default();
    let (mut at, mut beat, mut looks) = (Duration::ZERO, 1, 0);
    while at < 1000 * EVERY {
        // New only when that makes the next look come early.
        beat += u64::from(looks % 3 != 1);
        at += rhythm.looked(LEADER, beat, EVERY);
        looks += 1;
    }
    assert!(looks <= 1400, "{looks} looks in 1000 beats");
}
