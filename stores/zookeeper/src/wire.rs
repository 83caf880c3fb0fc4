//! The protocol of ZooKeeper in its binary form: what is asked, what is answered.
//!
//! Every frame has its length before it. A question has a number, and the answers come in the order of the questions.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// What is asked for.
pub(super) mod op {
    pub(in super::super) const CREATE: i32 = 1;
    pub(in super::super) const DELETE: i32 = 2;
    pub(in super::super) const GET_DATA: i32 = 4;
    pub(in super::super) const SET_DATA: i32 = 5;
    pub(in super::super) const GET_ACL: i32 = 6;
    pub(in super::super) const GET_CHILDREN: i32 = 8;
    pub(in super::super) const PING: i32 = 11;
    pub(in super::super) const MULTI: i32 = 14;
    pub(in super::super) const MULTI_READ: i32 = 22;
    pub(in super::super) const AUTH: i32 = 100;
    pub(in super::super) const ADD_WATCH: i32 = 106;
}

/// The numbers of questions that are no questions.
pub(super) const EVENT: i32 = -1;
pub(super) const PING: i32 = -2;
pub(super) const AUTH: i32 = -4;

/// The longest question that a server takes, unless it is told otherwise (`jute.maxbuffer`).
pub(super) const LONGEST_QUESTION: usize = 0xf_ffff;

/// No answer is longer than this: what is, comes from something else.
const LONGEST_ANSWER: usize = 1 << 28;

/// The bytes of a stat, and where its fields are.
const STAT: usize = 68;
const STAT_CHANGED_BY: usize = 8;
const STAT_CHANGES: usize = 32;

/// Any version of the data will do.
pub(super) const ANY: i32 = -1;

/// One step of a transaction.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Create {
        path: String,
        data: String,
    },
    Delete {
        path: String,
    },
    /// Sets the data, if it was changed so often.
    Set {
        path: String,
        data: String,
        changes: i32,
    },
}

impl Step {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::Delete { path } | Self::Set { path, .. } => path,
        }
    }
}

/// The step of a transaction that could not be carried out, and why. None of its steps was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailedStep {
    pub(super) nth: usize,
    pub(super) code: i32,
}

/// What is known of a znode beside its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// The transaction that set the data.
    pub(super) changed_by: i64,
    /// How often the data was changed.
    pub(super) changes: i32,
}

/// What comes back for a question, or an event.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) number: i32,
    /// The last transaction that the server had carried out.
    pub(super) zxid: i64,
    pub(super) code: i32,
    pub(super) body: Bytes,
}

/// A question being written.
pub(super) struct Question(BytesMut);

impl Question {
    /// Without its number, which [`finish`](Self::finish) fills in.
    pub(super) fn new(op: i32) -> Self {
        let mut this = Self(BytesMut::with_capacity(128));
        this.0.put_i32(0);
        this.0.put_i32(0);
        this.0.put_i32(op);
        this
    }

    /// One about a znode.
    pub(super) fn about(op: i32, path: &str) -> Self {
        Self::new(op).text(path)
    }

    /// Who begins a session that ends when nothing is heard for so many milliseconds.
    pub(super) fn connect(millis: i32) -> Bytes {
        let mut this = Self(BytesMut::with_capacity(64));
        [0, 0].iter().for_each(|word| this.0.put_i32(*word));
        this.0.put_i64(0);
        this.0.put_i32(millis);
        this.0.put_i64(0);
        let this = this.bytes(&[0; 16]).flag(false);
        this.with_length()
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.put_slice(bytes);
        self
    }

    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.put_i32(number);
        self
    }

    pub(super) fn flag(mut self, flag: bool) -> Self {
        self.0.put_u8(flag.into());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.put_slice(bytes);
        self
    }

    /// A znode to be made, with rights in their binary form.
    pub(super) fn create(self, path: &str, data: &str, acl: &[u8]) -> Self {
        let lasting = 0;
        self.text(path).text(data).raw(acl).int(lasting)
    }

    /// Steps of which all are carried out or none.
    pub(super) fn transaction(steps: &[Step], acl: &[u8]) -> Self {
        let each = |question: Self, step: &Step| match step {
            Step::Create { path, data } => question.step(op::CREATE).create(path, data, acl),
            Step::Delete { path } => question.step(op::DELETE).text(path).int(ANY),
            Step::Set { path, data, changes } => {
                question.step(op::SET_DATA).text(path).text(data).int(*changes)
            }
        };
        steps.iter().fold(Self::new(op::MULTI), each).end_of_steps()
    }

    /// Asks for the names of what some znodes hold, and then for the data of others.
    pub(super) fn several(lists: &[String], paths: &[String]) -> Self {
        let list = |question: Self, path: &String| question.step(op::GET_CHILDREN).text(path).flag(false);
        let data = |question: Self, path: &String| question.step(op::GET_DATA).text(path).flag(false);
        paths.iter().fold(lists.iter().fold(Self::new(op::MULTI_READ), list), data).end_of_steps()
    }

    fn step(self, op: i32) -> Self {
        self.int(op).flag(false).int(-1)
    }

    fn end_of_steps(self) -> Self {
        self.int(-1).flag(true).int(-1)
    }

    /// How long it is for the server.
    pub(super) fn len(&self) -> usize {
        self.0.len() - 4
    }

    pub(super) fn finish(mut self, number: i32) -> Bytes {
        self.0[4..8].copy_from_slice(&number.to_be_bytes());
        self.with_length()
    }

    fn with_length(mut self) -> Bytes {
        let length = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0.freeze()
    }
}

/// The next whole frame of what has arrived, if there is one.
///
/// # Errors
/// If no ZooKeeper server sent it.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Bytes>, Strange> {
    let Some(length) = buffer.get(..4) else { return Ok(None) };
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length > LONGEST_ANSWER {
        return Err(Strange);
    }
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// An answer that no ZooKeeper server gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strange;

/// An answer being read.
pub(super) struct Answer(Bytes);

impl Answer {
    pub(super) fn new(body: Bytes) -> Self {
        Self(body)
    }

    pub(super) fn int(&mut self) -> Result<i32, Strange> {
        (self.0.len() >= 4).then(|| self.0.get_i32()).ok_or(Strange)
    }

    fn long(&mut self) -> Result<i64, Strange> {
        (self.0.len() >= 8).then(|| self.0.get_i64()).ok_or(Strange)
    }

    fn flag(&mut self) -> Result<bool, Strange> {
        (!self.0.is_empty()).then(|| self.0.get_u8() != 0).ok_or(Strange)
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Strange> {
        // Nothing is minus one byte long.
        let length = usize::try_from(self.int()?).unwrap_or(0);
        self.part(length)
    }

    pub(super) fn text(&mut self) -> Result<String, Strange> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Strange)
    }

    fn part(&mut self, length: usize) -> Result<Bytes, Strange> {
        (self.0.len() >= length).then(|| self.0.split_to(length)).ok_or(Strange)
    }

    /// The stat that comes next.
    pub(super) fn stat(&mut self) -> Result<Stat, Strange> {
        let stat = self.part(STAT)?;
        let (mut by, mut changes) = (stat.slice(STAT_CHANGED_BY..), stat.slice(STAT_CHANGES..));
        Ok(Stat { changed_by: by.get_i64(), changes: changes.get_i32() })
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Strange> {
        (0..self.int()?.max(0)).map(|_| self.text()).collect()
    }

    /// Number, state and body of a frame.
    pub(super) fn reply(mut self) -> Result<Reply, Strange> {
        let (number, zxid, code) = (self.int()?, self.long()?, self.int()?);
        Ok(Reply { number, zxid, code, body: self.0 })
    }

    /// How long the session lives that was begun, in milliseconds.
    pub(super) fn session_millis(mut self) -> Result<i32, Strange> {
        self.int()?;
        let millis = self.int()?;
        self.long()?;
        self.bytes()?;
        Ok(millis)
    }

    /// The rights of a znode in their binary form, without the stat that follows.
    pub(super) fn acl(self) -> Result<Bytes, Strange> {
        let length = self.0.len().checked_sub(STAT).ok_or(Strange)?;
        Ok(self.0.slice(..length))
    }

    /// What became of a transaction.
    pub(super) fn transaction(mut self) -> Result<Result<(), FailedStep>, Strange> {
        let mut failed = None;
        for nth in 0.. {
            let (kind, done) = (self.int()?, self.flag()?);
            self.int()?;
            if done {
                break;
            }
            match kind {
                op::CREATE => drop(self.bytes()?),
                op::SET_DATA => drop(self.part(STAT)?),
                op::DELETE => {}
                -1 => {
                    // Steps before the one that failed say that they are well, and those after it that they are not.
                    let code = self.int()?;
                    if code != 0 && failed.is_none() {
                        failed = Some(FailedStep { nth, code });
                    }
                }
                _ => return Err(Strange),
            }
        }
        Ok(failed.map_or(Ok(()), Err))
    }

    /// What several znodes hold, and why not for each of the others.
    pub(super) fn several(mut self) -> Result<Vec<Result<Part, i32>>, Strange> {
        let mut found = Vec::new();
        loop {
            let (kind, done) = (self.int()?, self.flag()?);
            self.int()?;
            match kind {
                _ if done => return Ok(found),
                op::GET_DATA => {
                    let data = self.bytes()?;
                    self.part(STAT)?;
                    found.push(Ok(Part::Data(data)));
                }
                op::GET_CHILDREN => found.push(Ok(Part::Names(self.texts()?))),
                -1 => found.push(Err(self.int()?)),
                _ => return Err(Strange),
            }
        }
    }
}

/// What one of several znodes holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Names(Vec<String>),
    Data(Bytes),
}

/// The rights of a znode whose maker gives none: everything, for one kind of client.
pub(super) fn rights(scheme: &str, id: &str) -> Bytes {
    let all = 31;
    let question = Question(BytesMut::new()).int(1).int(all).text(scheme).text(id);
    question.0.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_have_their_length_and_number_before_them() {
        let question = Question::about(op::GET_DATA, "/a").flag(true).finish(7);
        assert_eq!(question[..], [0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2, b'/', b'a', 1]);
        assert_eq!(Question::connect(4000).len(), 4 + 4 + 8 + 4 + 8 + 20 + 1);
    }

    #[test]
    fn frames_come_in_parts_and_long_ones_from_no_server() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 2, 1][..]);
        assert_eq!(take(&mut buffer), Ok(None));
        buffer.put_slice(&[2, 0, 0]);
        assert_eq!(take(&mut buffer), Ok(Some(Bytes::from_static(&[1, 2]))));
        assert_eq!(take(&mut buffer), Ok(None));
        assert_eq!(take(&mut BytesMut::from("HTTP/1.1")), Err(Strange));
    }

    #[test]
    fn the_step_that_failed_is_found_between_those_that_did_not() {
        let step = |kind: i32, code: Option<i32>| {
            let question = Question(BytesMut::new()).step(kind);
            code.into_iter().fold(question, Question::int).0
        };
        let end = Question(BytesMut::new()).end_of_steps().0;
        let answer = |steps: &[BytesMut]| Answer(steps.concat().into()).transaction();
        let failed = [step(-1, Some(0)), step(-1, Some(-101)), step(-1, Some(-2)), end.clone()];
        assert_eq!(answer(&failed), Ok(Err(FailedStep { nth: 1, code: -101 })));
        assert_eq!(answer(&[step(op::DELETE, None), end.clone()]), Ok(Ok(())));
        assert_eq!(answer(&[step(99, None), end]), Err(Strange));
        assert_eq!(answer(&[]), Err(Strange));
    }

    #[test]
    fn what_is_cut_off_is_strange_and_no_panic() {
        let whole = Question(BytesMut::new()).int(1).text("x").0.freeze();
        for end in 0..whole.len() {
            assert_eq!(Answer(whole.slice(..end)).texts(), Err(Strange), "{end}");
        }
        assert_eq!(Answer(whole).texts(), Ok(vec!["x".to_owned()]));
        assert!(Answer(Bytes::from_static(&[0; 15])).reply().is_err());
        assert!(Answer(Bytes::from_static(&[0; 67])).acl().is_err());
    }
}
