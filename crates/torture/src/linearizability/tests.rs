//! Both procedures agree wherever both apply.

use super::chain::Operation;
use super::search::{RegisterAction, RegisterOperation, SetOutcome};
use super::{chain, search};

/// What one client did to the register: as both procedures want to be told it.
#[derive(Debug, Clone)]
struct Step {
    from: u64,
    to: u64,
    act: RegisterAction,
}

/// A register, several clients at once, and now and then an answer that is wrong. It names a version that was written
/// before: of one that no note knows, the pass says nothing, because notes can be lost.
fn history(random: &mut fastrand::Rng) -> Vec<Step> {
    let (mut now, mut state, mut steps, mut written) = (10_u64, None, Vec::new(), Vec::new());
    let wrong = random.bool();
    for version in 1..=random.u64(2..9) {
        now += random.u64(1..6);
        // It happens now, between a call and an answer that overlap with those of others.
        let (from, to) = (now - random.u64(0..6).min(now), now + random.u64(0..6));
        let lie = wrong && random.u8(..3) == 0;
        let stale = random.choice(&written).copied().filter(|_| random.bool());
        let act = match random.u8(..6) {
            0 | 1 => RegisterAction::Read(if lie { stale } else { state }),
            2 if state.is_some() => {
                let (expect, put) = (None, Some(100 + version));
                RegisterAction::Set { expect, put, seen: SetOutcome::Conflict(state) }
            }
            3 => {
                let (expect, put) = (if lie { stale } else { state }, Some(version));
                written.push(version);
                if random.bool() {
                    state = put;
                }
                RegisterAction::Set { expect, put, seen: SetOutcome::Unknown }
            }
            _ => {
                let (expect, put) = (if lie { stale } else { state }, Some(version));
                written.push(version);
                state = put;
                RegisterAction::Set { expect, put, seen: SetOutcome::Applied }
            }
        };
        steps.push(Step { from, to, act });
    }
    steps
}

fn for_search(steps: &[Step]) -> Vec<RegisterOperation> {
    let operation = |step: &Step| RegisterOperation {
        key: "k".to_owned(),
        act: step.act.clone(),
        from: step.from,
        to: step.to,
    };
    steps.iter().map(operation).collect()
}

/// A conflict is a write that was refused and a read of what was there instead.
fn for_chain(steps: &[Step]) -> Vec<Operation> {
    let text = |version: &Option<u64>| version.map(|version| version.to_string());
    let mut operations = Vec::new();
    for Step { from, to, act } in steps {
        let read = |version| Operation::Read { version, called: *from, returned: *to };
        let (expect, put, applied, seen) = match act {
            RegisterAction::Read(version) => {
                operations.push(read(text(version)));
                continue;
            }
            RegisterAction::Set { expect, put, seen } => match seen {
                SetOutcome::Applied => (expect, put, Some(true), None),
                SetOutcome::Conflict(found) => (expect, put, Some(false), Some(found)),
                SetOutcome::Unknown => (expect, put, None, None),
                SetOutcome::Never => (expect, put, Some(false), None),
            },
        };
        operations.push(Operation::Write {
            expect: text(expect),
            put: text(put).expect("nothing is deleted"),
            called: *from,
            returned: if applied.is_some() { *to } else { u64::MAX },
            applied,
        });
        operations.extend(seen.map(|found| read(text(found))));
    }
    operations
}

#[test]
fn the_pass_and_the_search_agree() {
    let (mut sound, mut broken) = (0, 0);
    for seed in 0..20_000 {
        let steps = history(&mut fastrand::Rng::with_seed(seed));
        let (pass, found) = (chain::check(&for_chain(&steps)), search::check(&for_search(&steps)));
        assert_eq!(pass.is_ok(), found.is_ok(), "seed {seed}: {pass:?}\n{steps:#?}");
        *(if pass.is_ok() { &mut sound } else { &mut broken }) += 1;
    }
    assert!(sound > 2_000 && broken > 2_000, "{sound} sound, {broken} broken");
}
