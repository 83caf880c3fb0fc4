//! Whatever comes by the network or from the disk: it is what a member wrote, or it is refused. Never a panic, never
//! something else than what was written. `TENURE_LONG` runs more cases; what is known to be nasty is in `tests/corpus`.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use protobuf::Message as _;
use raft::eraftpb::{
    ConfChange, ConfChangeV2, Entry as Step, EntryType, HardState, Message, MessageType, Snapshot,
};
use raft::{GetEntriesContext, Storage};
use tenure_core::{SessionId, Token};

use super::channel::{FrameReader, LONGEST};
use super::codec::{Blob, Wire};
use super::file::{Fault, sealed, split};
use super::frame::{Answer, Ask, Frame, GroupView, Hello, MemberInfo, MemberView, Welcome};
use super::log::Log;
use super::machine::{Command, Machine};
use super::server::parsed;
use super::{STORE, file};
use tenure_store::{Entry, Epoch, Key, Kind, Name, Outcome, Query, StoreError, Value, Version, Write};

fn cases(few: u32, many: u32) -> ProptestConfig {
    let cases = if std::env::var_os("TENURE_LONG").is_some() { many } else { few };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// What is read from these bytes, if anything, is written down as exactly these bytes.
fn is_faithful<T: Wire>(bytes: &[u8]) -> bool {
    T::from_bytes(bytes).is_ok_and(|found| found.to_bytes() == bytes)
}

/// The same, but what cannot be read is fine.
fn is_faithful_or_refused<T: Wire>(bytes: &[u8]) -> bool {
    T::from_bytes(bytes).is_err() || is_faithful::<T>(bytes)
}

fn is_state_or_refused(bytes: &[u8]) -> bool {
    Machine::from_bytes(bytes).map_or(true, |found| bytes.is_empty() || found.to_bytes() == bytes)
}

// What members say to each other, and write down.

fn names() -> impl Strategy<Value = Name> {
    "[a-zA-Z0-9][a-zA-Z0-9._-]{0,9}".prop_map(|name| Name::new(name).unwrap())
}

/// Numbers as they are, and at the edges.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_u64, select(vec![u64::MAX, u64::MAX - 1, u64::MAX / 2]), any::<u64>()]
}

fn keys() -> impl Strategy<Value = Key> {
    let named = select(Kind::ALL[2..].to_vec());
    prop_oneof![
        Just(Key::Cluster),
        (numbers(), any::<u128>())
            .prop_map(|(epoch, id)| Key::Session(Epoch::new(epoch), SessionId::new(id))),
        (0..3_u64, named, names()).prop_map(|(epoch, kind, name)| Key::Named(Epoch::new(epoch), kind, name)),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let value =
        |(token, json): (Option<u64>, String)| Value { token: token.map(Token::new), json: json.into() };
    (proptest::option::of(numbers()), ".{0,40}").prop_map(value)
}

fn versions() -> impl Strategy<Value = Version> {
    prop_oneof![0..5_u128, any::<u128>()].prop_map(Version::new)
}

fn entries() -> impl Strategy<Value = Entry> {
    (keys(), versions(), values()).prop_map(|(key, version, value)| Entry { key, version, value })
}

fn writes() -> impl Strategy<Value = Write> {
    let put = proptest::option::of((versions(), values()));
    (keys(), proptest::option::of(versions()), put, any::<(bool, bool)>()).prop_map(
        |(key, expect, put, (notify, requires_lock))| Write { key, expect, put, notify, requires_lock },
    )
}

fn errors() -> impl Strategy<Value = StoreError> {
    (0..3_u8, any::<bool>(), ".{0,30}").prop_map(|(fate, permanent, message)| {
        let error = match fate {
            0 => StoreError::not_applied(STORE, message),
            1 => StoreError::unknown(STORE, message),
            _ => StoreError::severed(STORE),
        };
        error.permanent_if(permanent)
    })
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(()).prop_map(|()| Outcome::Applied),
        proptest::option::of(entries()).prop_map(Outcome::Conflict),
        errors().prop_map(Outcome::Failed),
    ]
}

fn info() -> impl Strategy<Value = MemberInfo> {
    (numbers(), any::<u128>(), ".{0,20}", any::<bool>())
        .prop_map(|(id, disk, address, voting_only)| MemberInfo { id, disk, address, voting_only })
}

fn rosters() -> impl Strategy<Value = GroupView> {
    let chair = (numbers(), ".{0,20}", any::<(bool, bool, bool)>()).prop_map(
        |(id, address, (votes, voting_only, reached))| MemberView {
            id,
            address,
            votes,
            voting_only,
            reached,
        },
    );
    (any::<u128>(), numbers(), vec(chair, 0..4), numbers())
        .prop_map(|(group, leader, members, me)| GroupView { group, leader, members, me })
}

fn asks() -> impl Strategy<Value = Ask> {
    let kinds = vec((numbers().prop_map(Epoch::new), select(Kind::ALL.to_vec())), 0..3);
    let query = (vec(keys(), 0..4), kinds).prop_map(|(keys, kinds)| Query { keys, kinds });
    prop_oneof![
        (names(), query).prop_map(|(namespace, query)| Ask::Read(namespace, query)),
        (any::<u128>(), numbers(), names(), vec(writes(), 0..4))
            .prop_map(|(number, since, namespace, writes)| Ask::Write(number, since, namespace, writes)),
        Just(Ask::Group),
        (".{0,20}", vec(".{0,20}", 0..4)).prop_map(|(address, list)| Ask::Roll(address, list)),
        ".{0,20}".prop_map(Ask::Add),
        ".{0,20}".prop_map(Ask::Remove),
    ]
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        vec(entries(), 0..4).prop_map(Answer::Entries),
        vec(outcomes(), 0..4).prop_map(Answer::Outcomes),
        rosters().prop_map(Answer::Group),
        vec(".{0,20}", 0..4).prop_map(Answer::Fresh),
        (rosters(), proptest::option::of(numbers()), any::<bool>())
            .prop_map(|(group_view, id, seen)| Answer::Known(group_view, id, seen)),
        Just(()).prop_map(|()| Answer::Done),
        errors().prop_map(Answer::Failed),
    ]
}

fn frames() -> impl Strategy<Value = Frame> {
    let hello = (".{0,20}", proptest::option::of(info()), proptest::option::of(numbers()))
        .prop_map(|(cluster, member, wanted)| Frame::Hello(Hello { cluster, member, wanted }));
    prop_oneof![
        hello,
        (proptest::option::of(info()), numbers())
            .prop_map(|(member, applied)| Frame::Welcome(Welcome { member, applied })),
        errors().prop_map(Frame::Refused),
        messages().prop_map(|message| Frame::Raft(Blob(message.write_to_bytes().unwrap()))),
        (numbers(), numbers(), asks()).prop_map(|(number, within, ask)| Frame::Ask(number, within, ask)),
        (numbers(), numbers(), answers())
            .prop_map(|(number, applied, answer)| Frame::Answer(number, applied, answer)),
        (names(), keys()).prop_map(|(space, key)| Frame::Changed(space, key)),
        numbers().prop_map(Frame::Pong),
        (0..2_usize).prop_map(|nth| [Frame::Resync, Frame::Ping].into_iter().nth(nth).unwrap()),
    ]
}

fn commands() -> impl Strategy<Value = Command> {
    let group = proptest::option::of(any::<u128>());
    let request = prop_oneof![0..6_u128, any::<u128>()];
    (request, numbers(), names(), vec(writes(), 0..4), group).prop_map(
        |(request, since, namespace, writes, group)| Command { request, since, namespace, writes, group },
    )
}

/// Messages of the Raft library, with commands in them, changes of members, and a snapshot.
fn messages() -> impl Strategy<Value = Message> {
    let normal = commands().prop_map(|command| (EntryType::EntryNormal, command.to_bytes()));
    let change = changes().prop_map(|change| (EntryType::EntryConfChange, change));
    let step = (numbers(), numbers(), prop_oneof![normal, change]).prop_map(|(index, term, (kind, data))| {
        Step { index, term, entry_type: kind, data: data.into(), ..Step::default() }
    });
    (0..19_i32, any::<[u64; 4]>(), vec(step, 0..3), any::<bool>()).prop_map(
        |(kind, numbers, steps, snapshot)| {
            let [from, to, term, index] = numbers;
            let mut message = Message { from, to, term, index, ..Message::default() };
            message.set_msg_type(protobuf::ProtobufEnum::from_i32(kind).unwrap_or(MessageType::MsgHup));
            message.set_entries(steps.into());
            if snapshot {
                message.mut_snapshot().mut_metadata().mut_conf_state().set_voters(vec![from, to]);
                message.mut_snapshot().data =
                    Machine::of(BTreeMap::from([(from, "a:1".to_owned())])).to_bytes().into();
            }
            message
        },
    )
}

fn changes() -> impl Strategy<Value = Vec<u8>> {
    (numbers(), any::<u128>(), ".{0,20}").prop_map(|(node_id, request, address)| {
        let context = (request, address).to_bytes().into();
        ConfChange { node_id, context, ..ConfChange::default() }.write_to_bytes().unwrap()
    })
}

/// What may become of bytes on the way.
#[derive(Debug, Clone)]
enum Edit {
    Flip(Index, u8),
    Set(Index, Vec<u8>),
    Cut(Index, Index),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        // Counts and lengths that lie.
        (any::<Index>(), select(vec![0_u32, 1, 0xff, 0xffff, 0x7fff_ffff, u32::MAX]))
            .prop_map(|(at, number)| Edit::Set(at, number.to_le_bytes().to_vec())),
        any::<(Index, Index)>().prop_map(|(from, to)| Edit::Cut(from, to)),
        (any::<Index>(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        any::<(Index, Index)>().prop_map(|(from, to)| Edit::Repeat(from, to)),
    ];
    vec(edit, 1..4)
}

fn edited(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        let length = bytes.len();
        let place = |at: &Index| at.index(length + 1);
        let range = |a: &Index, b: &Index| place(a).min(place(b))..place(a).max(place(b));
        match edit {
            Edit::Flip(at, bit) if length > 0 => bytes[at.index(length)] ^= 1 << bit,
            Edit::Flip(..) => {}
            Edit::Set(at, new) => {
                bytes.iter_mut().skip(place(at)).zip(new).for_each(|(old, new)| *old = *new)
            }
            Edit::Cut(from, to) => drop(bytes.drain(range(from, to))),
            Edit::Insert(at, new) => drop(bytes.splice(place(at)..place(at), new.iter().copied())),
            Edit::Repeat(from, to) => bytes.extend_from_within(range(from, to)),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(cases(300, 20_000))]

    #[test]
    fn a_frame_is_read_as_it_was_written(frame in frames(), cut in any::<Index>(), more in any::<u8>()) {
        let bytes = frame.to_bytes();
        let found = Frame::from_bytes(&bytes).unwrap();
        prop_assert_eq!(format!("{found:?}"), format!("{frame:?}"));
        prop_assert!(is_faithful::<Frame>(&bytes));
        prop_assert!(Frame::from_bytes(&bytes[..cut.index(bytes.len())]).is_err());
        prop_assert!(Frame::from_bytes(&[&bytes[..], &[more]].concat()).is_err());
    }

    #[test]
    fn a_frame_that_was_changed_is_refused_or_says_what_it_says(frame in frames(), edits in edits()) {
        let bytes = edited(frame.to_bytes(), &edits);
        prop_assert!(is_faithful_or_refused::<Frame>(&bytes));
    }

    #[test]
    fn any_bytes_are_refused_or_say_what_they_say(kind in 0..12_u8, mut bytes in vec(any::<u8>(), 0..300)) {
        bytes.insert(0, kind);
        prop_assert!(is_faithful_or_refused::<Frame>(&bytes));
        prop_assert!(is_faithful_or_refused::<Command>(&bytes));
        prop_assert!(is_state_or_refused(&bytes));
        let _ = parsed(&bytes);
    }

    #[test]
    fn a_message_that_was_changed_is_refused_or_parsed(message in messages(), edits in edits()) {
        let bytes = message.write_to_bytes().unwrap();
        prop_assert_eq!(parsed(&bytes), Some(message));
        let _ = parsed(&edited(bytes, &edits));
    }

    /// What a reader is sent: lengths that lie, frames that are cut, frames after each other.
    #[test]
    fn a_stream_is_frames_until_it_is_refused(
        frames in vec((frames(), proptest::option::of(edits())), 0..4),
        lie in proptest::option::of((any::<Index>(), any::<u32>())),
    ) {
        let mut stream = Vec::new();
        let mut sound = 0;
        for (nth, (frame, edits)) in frames.iter().enumerate() {
            let bytes = edits.as_ref().map_or(frame.to_bytes(), |edits| edited(frame.to_bytes(), edits));
            if edits.is_none() && sound == nth {
                sound += 1;
            }
            stream.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
            stream.extend_from_slice(&bytes);
        }
        let whole = lie.is_none();
        if let Some((at, length)) = lie {
            let at = at.index(stream.len() + 1);
            stream.iter_mut().skip(at).zip(length.to_le_bytes()).for_each(|(old, new)| *old = new);
        }
        let heard = read_all(stream);
        prop_assert!(!whole || heard >= sound, "{heard} of {sound}");
    }

    /// Every member comes to the same state whatever is in the log, and a snapshot is that state.
    #[test]
    fn commands_are_carried_out_and_a_snapshot_is_what_came_of_them(
        first in numbers(),
        commands in vec((0..9000_u64, commands()), 0..12),
        edits in edits(),
    ) {
        let mut machine = Machine::of(BTreeMap::from([(1, "a:1".to_owned()), (2, "b:2".to_owned())]));
        let mut index = first;
        for (step, command) in commands {
            index = index.saturating_add(step);
            let again = Command::from_bytes(&command.to_bytes()).unwrap();
            let mut restored = Machine::from_bytes(&machine.to_bytes()).unwrap();
            let (one, other) = (machine.apply(index, &command), restored.apply(index, &again));
            prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
            prop_assert_eq!(machine.to_bytes(), restored.to_bytes());
        }
        prop_assert!(is_state_or_refused(&edited(machine.to_bytes(), &edits)));
        prop_assert!(Machine::from_bytes(&[machine.to_bytes(), vec![0]].concat()).is_err());
    }

    #[test]
    fn any_bytes_are_records_or_refused(records in vec(vec(any::<u8>(), 0..80), 0..5), edits in edits()) {
        let bytes = on_disk(&records);
        prop_assert_eq!(split(&bytes).unwrap(), (records.iter().map(Vec::as_slice).collect(), bytes.len()));
        let changed = edited(bytes, &edits);
        if let Ok((found, end)) = split(&changed) {
            let found: Vec<Vec<u8>> = found.into_iter().map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&on_disk(&found), &changed[..end]);
        }
    }

    /// A power loss: the file ends anywhere in the last record, or sectors of it are missing.
    #[test]
    fn what_a_power_loss_leaves_is_cut_off(
        records in vec(vec(1..=255_u8, 0..1500), 1..4),
        end in any::<Index>(),
        holes in vec(any::<Index>(), 0..3),
    ) {
        let (bytes, kept) = (on_disk(&records), on_disk(&records[..records.len() - 1]));
        let mut torn = bytes[..kept.len() + end.index(bytes.len() - kept.len() + 1)].to_vec();
        for hole in holes {
            let at = kept.len() + hole.index(bytes.len() - kept.len());
            let sector = (at / 512 * 512).max(kept.len())..((at / 512 + 1) * 512).min(torn.len());
            torn.get_mut(sector).unwrap_or_default().fill(0);
        }
        let whole = torn == bytes;
        let (found, end) = split(&torn).unwrap();
        prop_assert_eq!((found.len(), end), if whole { (records.len(), bytes.len()) } else { (records.len() - 1, kept.len()) });
    }
}

/// How many frames are read from this.
fn read_all(stream: Vec<u8>) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut reader = FrameReader::new(Box::new(std::io::Cursor::new(stream)), None, None);
    reader.allow(LONGEST);
    let mut heard = 0;
    while runtime.block_on(reader.read_frame()).is_ok() {
        heard += 1;
    }
    heard
}

fn on_disk(records: &[Vec<u8>]) -> Vec<u8> {
    let sealed = records.iter().flat_map(|record| sealed(record));
    file::MAGIC.iter().copied().chain(sealed).collect()
}

/// A log as a member writes it, and where its last record begins.
fn a_log(path: &std::path::Path, batches: &[Vec<Command>]) -> (Log, usize) {
    let mut snapshot = Snapshot { data: Machine::default().to_bytes().into(), ..Snapshot::default() };
    (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (1, 1);
    let mut log = Log::create(path, snapshot).unwrap();
    let (mut index, mut last) = (1, 0);
    for batch in batches {
        let step = |command: &Command| {
            index += 1;
            Step { index, term: 1, data: command.to_bytes().into(), ..Step::default() }
        };
        let steps = batch.iter().map(step).collect();
        last = usize::try_from(std::fs::metadata(path).unwrap().len()).unwrap();
        log.append(steps, Some(&HardState { term: 1, vote: 3, commit: 1, ..HardState::default() })).unwrap();
    }
    (log, last)
}

fn steps(log: &Log) -> Vec<Step> {
    let (first, last) = (log.first_index().unwrap(), log.last_index().unwrap());
    log.entries(first, last + 1, None, GetEntriesContext::empty(false)).unwrap()
}

proptest! {
    #![proptest_config(cases(60, 3_000))]

    /// What was synchronised can change in no bit without being noticed; what a power loss tore is cut off, and no more.
    #[test]
    fn a_log_is_whole_or_torn_or_refused(
        batches in vec(vec(commands(), 1..4), 1..5),
        at in any::<Index>(),
        bit in 0..8_u8,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (log, last) = a_log(&path, &batches);
        prop_assert_eq!(steps(&Log::open(&path).unwrap().unwrap()), steps(&log));
        let bytes = std::fs::read(&path).unwrap();

        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= 1 << bit;
        std::fs::write(&path, damaged).unwrap();
        let opened = Log::open(&path);
        prop_assert!(matches!(opened, Err(Fault::Damaged(..))), "{opened:?}");

        std::fs::write(&path, &bytes[..last + at.index(bytes.len() - last)]).unwrap();
        let kept = steps(&log).len() - batches.last().unwrap().len();
        let opened = Log::open(&path).unwrap().unwrap();
        prop_assert_eq!(steps(&opened), &steps(&log)[..kept]);
    }

    /// Sound checksums around anything: a log, or refused.
    #[test]
    fn any_records_are_a_log_or_refused(
        batches in vec(vec(commands(), 1..3), 0..3),
        which in any::<Index>(),
        edits in edits(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        drop(a_log(&path, &batches));
        let bytes = std::fs::read(&path).unwrap();
        let mut records: Vec<Vec<u8>> = split(&bytes).unwrap().0.into_iter().map(<[u8]>::to_vec).collect();
        let which = which.index(records.len());
        records[which] = edited(records[which].clone(), &edits);
        std::fs::write(&path, on_disk(&records)).unwrap();
        match Log::open(&path) {
            Ok(Some(log)) => {
                let _ = steps(&log);
                let _ = Machine::from_bytes(&log.latest().data);
            }
            other => prop_assert!(matches!(other, Err(Fault::Foreign(_))), "{other:?}"),
        }
    }
}

/// RUSTSEC-2024-0437 is about a parser that goes down into unknown groups until the stack is full. This one does not: half a
/// million groups in each other are an error wherever they are.
#[test]
fn nested_groups_are_refused_wherever_they_are() {
    let groups = [0xf3, 0x01].repeat(500_000);
    let framed = |field: u8, content: &[u8]| {
        let mut bytes = vec![field << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        [&bytes, content].concat()
    };
    let deep = framed(9, &framed(2, &framed(1, &groups)));
    for bytes in [&groups, &framed(7, &groups), &framed(9, &framed(2, &groups)), &deep] {
        assert_eq!(parsed(bytes), None);
    }
    assert!(parsed(&framed(12, &groups)).is_some(), "bytes are not parsed");
    let mut change = Step { data: groups.clone().into(), ..Step::default() };
    change.set_entry_type(EntryType::EntryConfChange);
    assert_eq!(parsed(&framed(7, &change.write_to_bytes().unwrap())), None);
    // What the library parses, and what a file holds.
    assert!(ConfChangeV2::parse_from_bytes(&framed(2, &groups)).is_err());
    assert!(Step::parse_from_bytes(&groups).is_err() && HardState::parse_from_bytes(&groups).is_err());
    assert!(Snapshot::parse_from_bytes(&framed(2, &framed(1, &groups))).is_err());
}

/// What is known to be nasty, or did harm once: a word for what it is, and the bytes.
#[test]
fn the_corpus_is_read_or_refused() {
    for line in include_str!("corpus.txt").lines().filter(|line| !line.starts_with('#')) {
        let (what, digits) = line.split_once(' ').unwrap();
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(digit).collect();
        match what {
            "frame" => assert!(is_faithful::<Frame>(&bytes), "{line}"),
            "no-frame" => assert!(Frame::from_bytes(&bytes).is_err(), "{line}"),
            "no-message" => assert!(parsed(&bytes).is_none(), "{line}"),
            "no-state" => assert!(Machine::from_bytes(&bytes).is_err(), "{line}"),
            "no-log" => assert!(split(&bytes).is_err(), "{line}"),
            "torn-log" => assert!(split(&bytes).is_ok_and(|(_, end)| end < bytes.len()), "{line}"),
            other => panic!("{other}"),
        }
    }
}
