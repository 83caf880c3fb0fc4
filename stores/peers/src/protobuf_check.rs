//! Looks at a message of the Raft library before it is parsed.
//!
//! The parser (`protobuf` 2.28, RUSTSEC-2024-0437) follows groups that are nested in each other until the stack is full.
//! No message of the library has a group, so that whatever has one is refused: what is left is nested no deeper than the
//! messages themselves are.

/// Which fields of a message are messages themselves.
struct Shape(&'static [(u64, Self)]);

const FLAT: Shape = Shape(&[]);
/// `Message`: entries, and a snapshot, which has metadata, which have a state of the members.
const MESSAGE: Shape = Shape(&[(7, FLAT), (9, Shape(&[(2, Shape(&[(1, FLAT)]))]))]);
/// `ConfChange` is flat; `ConfChangeV2` has a list of changes in its second field, which is a number in the other.
const CHANGE: Shape = Shape(&[(2, FLAT)]);

/// Whether this can be parsed as a message from another member.
pub(super) fn is_safe_message(bytes: &[u8]) -> bool {
    is_safe(bytes, &MESSAGE)
}

/// Whether this can be parsed as a change of the members.
pub(super) fn is_safe_change(bytes: &[u8]) -> bool {
    is_safe(bytes, &CHANGE)
}

fn is_safe(mut bytes: &[u8], shape: &Shape) -> bool {
    while !bytes.is_empty() {
        let Some(tag) = varint(&mut bytes) else { return false };
        let whole = match tag & 7 {
            0 => varint(&mut bytes).is_some(),
            1 => skip(&mut bytes, 8).is_some(),
            2 => content(&mut bytes).is_some_and(|content| {
                let inner = shape.0.iter().find(|(field, _)| *field == tag >> 3);
                inner.is_none_or(|(_, inner)| is_safe(content, inner))
            }),
            5 => skip(&mut bytes, 4).is_some(),
            _ => false,
        };
        if !whole {
            return false;
        }
    }
    true
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let digits = skip(bytes, length)?;
    Some(digits.iter().rev().fold(0, |found, digit| (found << 7) | u64::from(digit & 0x7f)))
}

fn content<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = varint(bytes)?;
    skip(bytes, usize::try_from(length).ok()?)
}

fn skip<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (skipped, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(skipped)
}

#[cfg(test)]
mod tests {
    use protobuf::Message as _;
    use raft::eraftpb::{ConfChange, Entry, Message};

    use super::*;

    fn sample() -> Message {
        let mut message = Message { from: 1, to: u64::MAX, priority: -1, ..Message::default() };
        message
            .set_entries(vec![Entry { index: 300, data: vec![3; 1000].into(), ..Entry::default() }].into());
        let meta = message.mut_snapshot().mut_metadata();
        meta.index = 7;
        meta.mut_conf_state().set_voters(vec![1, 2, u64::MAX]);
        message
    }

    #[test]
    fn what_the_library_writes_is_safe() {
        let bytes = sample().write_to_bytes().unwrap();
        assert!(is_safe_message(&bytes));
        assert_eq!(Message::parse_from_bytes(&bytes).unwrap(), sample());
        let change = ConfChange { node_id: 5, context: vec![3; 20].into(), ..ConfChange::default() };
        assert!(is_safe_change(&change.write_to_bytes().unwrap()));
    }

    /// Half a million groups in each other, which would fill any stack: at the top, in an entry, in the metadata of a
    /// snapshot.
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
            assert!(!is_safe_message(bytes));
        }
        assert!(is_safe_message(&framed(12, &groups)), "bytes are not parsed");
        assert!(!is_safe_change(&groups) && !is_safe_change(&framed(2, &groups)));
    }

    #[test]
    fn what_is_cut_short_is_refused_or_parsed_without_harm() {
        let bytes = sample().write_to_bytes().unwrap();
        for end in 0..bytes.len() {
            if is_safe_message(&bytes[..end]) {
                let _ = Message::parse_from_bytes(&bytes[..end]);
            }
        }
    }
}
