//! Those who wait for a member: for their entry to be applied, or for a read that is not stale.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use raft::eraftpb::ConfChange;
use tenure_core::Entropy;
use tokio::sync::oneshot;

use super::STORE;
use super::frame::Answer;
use tenure_store::entropy::KernelEntropy;
use tenure_store::{Name, Query, StoreError};

/// Where an answer goes.
pub(super) type Reply = oneshot::Sender<Answer>;

/// How long to wait before an entry is proposed again; then twice as long. Under another Raft leader it is at once.
const AGAIN: Duration = Duration::from_secs(1);

/// What is to become an entry of the log.
#[derive(Debug, Clone)]
pub(super) enum Proposal {
    Command(Vec<u8>),
    Change(ConfChange),
}

/// A proposal, and who waits for it. It is proposed again until it is applied: a Raft leader that is deposed drops
/// what it was given, and the request's number keeps a second copy from doing anything.
#[derive(Debug)]
struct Pending {
    proposal: Proposal,
    proposed: bool,
    again: Instant,
    pause: Duration,
    deadline: Instant,
    replies: Vec<Reply>,
}

/// Every proposal that was not applied yet, by the number of its request.
#[derive(Debug, Default)]
pub(super) struct Proposals(HashMap<u128, Pending>);

impl Proposals {
    /// Takes a request. A caller that asks for the same one again waits with the others.
    pub(super) fn add(&mut self, request: u128, proposal: Proposal, deadline: Instant, reply: Reply) {
        let now = Instant::now();
        let new =
            || Pending { proposal, proposed: false, again: now, pause: AGAIN, deadline, replies: Vec::new() };
        let pending = self.0.entry(request).or_insert_with(new);
        pending.deadline = pending.deadline.max(deadline);
        pending.replies.push(reply);
    }

    /// Hands out what is due to be proposed; `propose` says whether it was.
    pub(super) fn each_due(&mut self, now: Instant, mut propose: impl FnMut(&Proposal) -> bool) {
        for pending in self.0.values_mut().filter(|pending| pending.again <= now) {
            if propose(&pending.proposal) {
                pending.proposed = true;
                pending.again = now + pending.pause;
                pending.pause *= 2;
            }
        }
    }

    /// Lets everything be proposed again at once: there is another Raft leader.
    pub(super) fn all_due(&mut self) {
        let now = Instant::now();
        for pending in self.0.values_mut() {
            (pending.again, pending.pause) = (now, AGAIN);
        }
    }

    /// Answers a request that was applied.
    pub(super) fn answer(&mut self, request: u128, mut answer: impl FnMut() -> Answer) {
        if let Some(pending) = self.0.remove(&request) {
            pending.replies.into_iter().for_each(|reply| drop(reply.send(answer())));
        }
    }

    /// Whether a caller waits for that request.
    pub(super) fn has(&self, request: u128) -> bool {
        self.0.contains_key(&request)
    }

    /// Gives up what is overdue. Only what was never proposed is sure not to come.
    pub(super) fn expire(&mut self, now: Instant, why: &str) {
        self.0.retain(|_, pending| pending.deadline > now || pending.give_up(why));
    }

    /// Gives up everything.
    pub(super) fn fail(&mut self, why: &str) {
        self.0.retain(|_, pending| pending.give_up(why));
    }
}

impl Pending {
    fn give_up(&mut self, why: &str) -> bool {
        for reply in self.replies.drain(..) {
            let error = if self.proposed {
                StoreError::unknown(STORE, format!("{why}; the write may be carried out yet"))
            } else {
                StoreError::not_applied(STORE, why)
            };
            let _ = reply.send(Answer::Failed(error));
        }
        false
    }
}

/// A read, and who waits for it.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) namespace: Name,
    pub(super) query: Query,
    pub(super) deadline: Instant,
    pub(super) reply: Reply,
}

/// Reads that are not stale: the Raft leader is asked how far the log was committed, *after* the reads came in, and
/// proves to a majority that it still leads; they are served once that much is applied. Many share one question.
#[derive(Debug, Default)]
pub(super) struct Reads {
    new: Vec<Read>,
    asked: Option<(u128, Instant)>,
    /// How many questions in a row were not answered.
    lost: u32,
    /// Those that the question was asked for.
    batch: Vec<Read>,
    /// Those that may be served once so much is applied.
    ready: Vec<(u64, Vec<Read>)>,
}

impl Reads {
    pub(super) fn add(&mut self, read: Read) {
        self.new.push(read);
    }

    /// What to ask the Raft leader now, if anything. A number is never used twice: an answer to an old question would
    /// be stale.
    pub(super) fn question(&mut self, now: Instant, patience: Duration) -> Option<u128> {
        // Longer each time: where everything is slow, asking again and again would not help.
        if self.asked.take_if(|(_, at)| *at + patience * (1 << self.lost.min(6)) <= now).is_some() {
            self.lost += 1;
        }
        if self.asked.is_some() || (self.new.is_empty() && self.batch.is_empty()) {
            return None;
        }
        self.batch.append(&mut self.new);
        let number = KernelEntropy.nonce();
        self.asked = Some((number, now));
        Some(number)
    }

    /// The number of the question that was not answered yet.
    #[cfg(test)]
    pub(super) fn asked(&self) -> Option<u128> {
        self.asked.map(|(number, _)| number)
    }

    /// The question may be lost with the former Raft leader.
    pub(super) fn ask_again(&mut self) {
        self.asked = None;
    }

    /// The answer: what was asked under that number may be served at that index.
    pub(super) fn answered(&mut self, number: u128, index: u64) {
        if self.asked.take_if(|(asked, _)| *asked == number).is_some() {
            self.lost = 0;
            self.ready.push((index, std::mem::take(&mut self.batch)));
        }
    }

    /// Those that may be served now that so much is applied.
    pub(super) fn served(&mut self, applied: u64) -> Vec<Read> {
        let ready = self.ready.extract_if(.., |(index, _)| *index <= applied);
        ready.flat_map(|(_, reads)| reads).collect()
    }

    /// Gives up what is overdue.
    pub(super) fn expire(&mut self, now: Instant, why: &str) {
        let lists =
            [&mut self.new, &mut self.batch].into_iter().chain(self.ready.iter_mut().map(|(_, list)| list));
        for list in lists {
            for read in list.extract_if(.., |read| read.deadline <= now) {
                let _ = read.reply.send(Answer::Failed(StoreError::not_applied(STORE, why)));
            }
        }
    }

    /// Gives up everything.
    pub(super) fn fail(&mut self, why: &str) {
        let all = std::mem::take(self);
        let ready = all.ready.into_iter().flat_map(|(_, reads)| reads);
        for read in all.new.into_iter().chain(all.batch).chain(ready) {
            let _ = read.reply.send(Answer::Failed(StoreError::not_applied(STORE, why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> (Read, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let namespace = Name::new("a").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        (Read { namespace, query: Query::default(), deadline, reply }, answer)
    }

    /// A read that came after the question was asked must not be served by its answer.
    #[test]
    fn a_read_waits_for_an_answer_to_a_question_that_was_asked_after_it() {
        let (mut reads, now, patience) = (Reads::default(), Instant::now(), Duration::from_secs(1));
        let ((first, _a), (second, _b)) = (read(), read());
        reads.add(first);
        let one = reads.question(now, patience).unwrap();
        reads.add(second);
        assert_eq!(reads.question(now, patience), None, "one question at a time");
        reads.answered(one + 1, 9);
        reads.answered(one, 10);
        assert_eq!(reads.served(9).len(), 0, "not before so much is applied");
        assert_eq!(reads.served(10).len(), 1, "the second read has yet to be asked for");
        let two = reads.question(now, patience).unwrap();
        reads.answered(two, 10);
        assert_eq!(reads.served(10).len(), 1);
    }

    #[test]
    fn a_lost_question_is_asked_again_under_another_number() {
        let (mut reads, now, patience) = (Reads::default(), Instant::now(), Duration::from_secs(1));
        let (only, _answer) = read();
        reads.add(only);
        let one = reads.question(now, patience).unwrap();
        let two = reads.question(now + patience, patience).unwrap();
        assert_ne!(one, two);
        reads.answered(one, 10);
        assert_eq!(reads.served(10).len(), 0);
        reads.answered(two, 10);
        assert_eq!(reads.served(10).len(), 1);
    }

    #[test]
    fn only_what_was_never_proposed_is_sure_not_to_come() {
        let (mut proposals, now) = (Proposals::default(), Instant::now());
        for (request, proposed) in [(1, true), (2, false)] {
            let (reply, mut answer) = oneshot::channel();
            proposals.add(request, Proposal::Command(Vec::new()), now, reply);
            proposals.each_due(now + AGAIN, |_| proposed);
            proposals.expire(now + AGAIN, "too late");
            let Ok(Answer::Failed(error)) = answer.try_recv() else { panic!("an error") };
            assert_eq!(error.fate() == tenure_store::Fate::Unknown, proposed);
        }
    }
}
