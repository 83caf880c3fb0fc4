//! How a standby finds the moment of a leader's beats.

use super::*;

const EVERY: Duration = Duration::from_millis(1250);

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Looks for the beats of a leader that beats at `beat(n)`; gives how late each was seen, and how many looks it took.
fn follow(beats: u64, beat: impl Fn(u64) -> u64) -> (Vec<u64>, u32) {
    let (mut seen, mut received, mut looks, mut lags) = (0, at(beat(0) + 700), 0, Vec::new());
    let mut rhythm = Rhythm::new(received, EVERY);
    while seen < beats {
        let now = rhythm.look_at(EVERY);
        looks += 1;
        let millis = now.as_nanos() / 1_000_000;
        let latest = (seen..).take_while(|n| beat(*n) <= millis).last().unwrap_or(seen);
        if latest > seen {
            rhythm.beaten(latest - seen, now, EVERY);
            lags.push(millis - beat(latest));
            (seen, received) = (latest, now);
        } else {
            rhythm.not_yet(now, received, EVERY);
        }
    }
    (lags, looks)
}

#[test]
fn a_beat_is_seen_soon_after_it_and_for_hardly_more_looks_than_beats() {
    let (lags, looks) = follow(400, |n| 300 + 1252 * n);
    assert!(lags[10..].iter().all(|lag| *lag <= 1250 / 20), "{lags:?}");
    assert!(looks <= 450, "{looks} looks at 400 beats");
}

#[test]
fn a_beat_that_comes_earlier_than_it_used_to_is_found_again() {
    let (lags, looks) = follow(400, |n| if n < 200 { 300 + 1251 * n } else { 1251 * n });
    assert!(lags[350..].iter().all(|lag| *lag <= 1250 / 20), "{lags:?}");
    assert!(looks <= 450, "{looks} looks at 400 beats");
}

#[test]
fn one_that_does_not_come_is_looked_for_ever_more_seldom() {
    let mut rhythm = Rhythm::new(at(0), EVERY);
    let mut looks = Vec::new();
    while looks.last().is_none_or(|last| *last < at(10_000)) {
        let now = rhythm.look_at(EVERY);
        looks.push(now);
        rhythm.not_yet(now, at(0), EVERY);
    }
    assert!(looks.len() <= 16, "{looks:?}");
    assert!(looks.windows(2).all(|pair| pair[1].since(pair[0]) <= EVERY), "{looks:?}");
}
