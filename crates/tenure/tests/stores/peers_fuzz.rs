//! Whatever is said to members, by strangers and by those who know the secret: they go on, and serve the others.
//!
//! What their decoders make of arbitrary bytes is tried beside them, in `stores/peers/src/fuzz.rs`; here the bytes come by a
//! real connection to real processes.

use std::io::Write as _;

use crate::peers_kit::processes::{Processes, be_a_member};
use crate::peers_kit::wire::{self, Insider};
use crate::peers_kit::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use tenure::store::Peers;

/// Not a test of its own: what the copies of this program do.
#[test]
fn member_process() {
    be_a_member();
}

const MEMBER: &[&str] = &["--exact", "peers_fuzz::member_process", "--nocapture"];

/// So much more memory may a member ever have taken, in KiB: no client here sends it a megabyte.
const MORE: u64 = 64 << 10;

#[derive(Debug, Clone)]
enum Attack {
    /// Speaks something else.
    Noise(Vec<u8>),
    /// Begins as it should, and goes on otherwise.
    Greeting(usize, Vec<u8>),
    /// Knows the secret, and goes on without sealing.
    Unsealed(Vec<u8>),
    /// Seals anything.
    Sealed(Vec<Vec<u8>>),
    /// Announces a frame that does not come, or not so.
    Lie(bool, u32, Vec<u8>),
    /// Is let in, and says anything.
    Frames(Vec<(u8, Vec<u8>)>),
    /// Is let in, and says something that has changed on the way.
    Changed(usize, Vec<(Index, u8)>),
    /// Says that he is a member.
    Impostor(u64, u128, u64),
}

fn attacks() -> impl Strategy<Value = Attack> {
    let bytes = || vec(any::<u8>(), 0..200);
    prop_oneof![
        bytes().prop_map(Attack::Noise),
        (0..11_usize, bytes()).prop_map(|(sound, rest)| Attack::Greeting(sound, rest)),
        bytes().prop_map(Attack::Unsealed),
        vec(bytes(), 0..4).prop_map(Attack::Sealed),
        (any::<bool>(), any::<u32>(), bytes())
            .prop_map(|(let_in, length, rest)| Attack::Lie(let_in, length, rest)),
        vec((0..12_u8, bytes()), 1..5).prop_map(Attack::Frames),
        (0..4_usize, vec((any::<Index>(), any::<u8>()), 1..4))
            .prop_map(|(which, changes)| Attack::Changed(which, changes)),
        any::<(u64, u128, u64)>().prop_map(|(id, disk, wanted)| Attack::Impostor(id, disk, wanted)),
    ]
}

impl Attack {
    /// Says it all, and waits until the member has heard it.
    fn strike(&self, address: &str) {
        match self {
            Self::Noise(bytes) => say(address, &[bytes]),
            Self::Greeting(sound, rest) => say(address, &[&wire::GREETING[..(*sound).min(10)], rest]),
            Self::Unsealed(bytes) => {
                let mut insider = Insider::at(address);
                let _ = insider.stream.write_all(bytes);
                wire::part(insider.stream);
            }
            Self::Sealed(chunks) => {
                let mut insider = Insider::at(address);
                chunks.iter().for_each(|chunk| insider.seal(chunk));
                wire::part(insider.stream);
            }
            Self::Lie(let_in, length, rest) => {
                let mut insider = Insider::at(address);
                if *let_in {
                    insider.say(&wire::hello());
                }
                insider.seal(&[&length.to_le_bytes(), &rest[..]].concat());
                wire::part(insider.stream);
            }
            Self::Frames(frames) => {
                let frames = frames.iter().map(|(kind, rest)| [&[*kind], &rest[..]].concat());
                converse(address, &wire::hello(), frames);
            }
            Self::Changed(which, changes) => converse(address, &wire::hello(), [changed(*which, changes)]),
            Self::Impostor(id, disk, wanted) => {
                converse(address, &wire::hello_of_a_member(*id, *disk, *wanted), [vec![3, 0, 0, 0, 0]]);
            }
        }
    }
}

fn say(address: &str, parts: &[&[u8]]) {
    let mut stream = wire::connect(address);
    let _ = stream.write_all(&parts.concat());
    wire::part(stream);
}

fn converse(address: &str, hello: &[u8], frames: impl IntoIterator<Item = Vec<u8>>) {
    let mut insider = Insider::at(address);
    insider.say(hello);
    assert!(insider.hear().is_some(), "a client that knows the secret is answered");
    frames.into_iter().for_each(|frame| insider.say(&frame));
    wire::part(insider.stream);
}

/// What a client could say, with some of its bytes replaced.
fn changed(which: usize, changes: &[(Index, u8)]) -> Vec<u8> {
    let frames = [wire::ping(), wire::ask_for_group(1), wire::read(2, "a"), wire::write(3, 1, "a")];
    let mut frame = frames[which].clone();
    for (at, byte) in changes {
        let at = at.index(frame.len());
        frame[at] = *byte;
    }
    frame
}

/// The most memory that a process ever had, in KiB.
fn peak(group: &Processes, nth: usize) -> u64 {
    let pid = group.children[nth].as_ref().unwrap().id();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What is read is what was written, by way of each member.
fn serves(runtime: &tokio::runtime::Runtime, clients: &[Peers], round: u128) {
    runtime.block_on(async {
        must_write(&clients[0], put("served", (round > 0).then_some(round), round + 1)).await;
        for client in clients {
            assert_eq!(eventually_version(client, "served").await, Some(round + 1));
        }
    });
}

async fn eventually_version(client: &Peers, name: &str) -> Option<u128> {
    let started = std::time::Instant::now();
    loop {
        match version(client, name).await {
            Ok(found) => return found,
            Err(error) => assert!(started.elapsed() < EVENTUALLY, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[test]
fn members_bear_whatever_is_said_to_them_and_serve_the_others() {
    let cases = if std::env::var_os("TENURE_LONG").is_some() { 20_000 } else { 600 };
    let mut group = Processes::of(3);
    let words = |group: &Processes, nth: usize| group.dir.path().join(format!("words-{nth}"));
    for nth in 0..3 {
        let heard = format!("exec 2>'{}';", words(&group, nth).display());
        group.start_after(nth, &heard, MEMBER);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let clients: Vec<Peers> = (0..3).map(|nth| group.client_of(nth)).collect();
    serves(&runtime, &clients, 0);
    let before: Vec<u64> = (0..3).map(|nth| peak(&group, nth)).collect();
    let round = std::cell::Cell::new(1_u128);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let fought = TestRunner::new(config).run(&(0..3_usize, attacks()), |(nth, attack)| {
        attack.strike(&group.addresses[nth]);
        if round.get().is_multiple_of(15) {
            serves(&runtime, &clients, round.get() / 15);
        }
        round.set(round.get() + 1);
        Ok(())
    });
    fought.unwrap();
    for (nth, before) in before.into_iter().enumerate() {
        let ended = group.children[nth].as_mut().unwrap().try_wait().unwrap();
        assert!(ended.is_none(), "member {nth} has ended: {ended:?}");
        let said = std::fs::read_to_string(words(&group, nth)).unwrap();
        assert!(!said.contains("panicked"), "member {nth}: {said}");
        let after = peak(&group, nth);
        assert!(after < before + MORE, "member {nth} took {after} KiB, and {before} before");
    }
    // The one who says it all right is served too.
    let mut insider = Insider::at(&group.addresses[0]);
    insider.say(&wire::hello());
    assert_eq!(insider.hear().unwrap()[4], 1, "welcome");
    insider.say(&wire::write(5, u64::MAX, "right"));
    let answer = insider.hear().unwrap();
    assert_eq!(answer[4..13], [5, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(answer[21..], [1, 1, 0, 0, 0, 0], "one outcome: applied");
}
