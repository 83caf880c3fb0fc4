//! How far the log is committed: what a member asks the Raft leader before it serves a read.
//!
//! A question carries the term of the member that asks. It was sent after the reads came in: until then that member had voted
//! for no later term, and the leader had not either when it gets the question. Where the two are a majority, none had elected another
//! leader before the reads came in, and the leader answers at once. Otherwise the library asks the others: one more round trip.
//!
//! A question vouches for nothing but itself. It may have been long on its way: reads that came in elsewhere meanwhile may be
//! younger than another leader. (The library takes one answer to a heartbeat as proof for all reads before it. An answer that
//! comes without a heartbeat, with the question, would be none.)

use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Raft, StateRole, Storage};

use super::codec::Wire;

/// The question of a member that does not lead.
pub(super) fn question<S: Storage>(raft: &Raft<S>, to: u64, number: u128) -> Message {
    let mut question = about(raft, MessageType::MsgReadIndex, to);
    question.context = raft.term.to_bytes().into();
    question
        .set_entries(vec![Entry { data: number.to_le_bytes().to_vec().into(), ..Entry::default() }].into());
    // The library takes a message with a term for one of the leader's.
    question.term = 0;
    question
}

/// The leader's answer, if it and the member that asks are a majority; otherwise it is for the library to answer.
pub(super) fn answer<S: Storage>(raft: &Raft<S>, question: &Message) -> Option<Message> {
    let asked = question.get_msg_type() == MessageType::MsgReadIndex
        && question.entries.len() == 1
        && u64::from_bytes(&question.context) == Ok(raft.term);
    // A leader that committed nothing in its term does not know how far its predecessors did.
    let leads = raft.state == StateRole::Leader && raft.commit_to_current_term();
    let both = [raft.id, question.from].into_iter().collect();
    if !asked || !leads || !raft.prs().has_quorum(&both) {
        return None;
    }
    let mut answer = about(raft, MessageType::MsgReadIndexResp, question.from);
    answer.index = raft.raft_log.committed;
    answer.set_entries(question.entries.clone());
    Some(answer)
}

fn about<S: Storage>(raft: &Raft<S>, kind: MessageType, to: u64) -> Message {
    let mut message = Message { from: raft.id, to, term: raft.term, ..Message::default() };
    message.set_msg_type(kind);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft::storage::MemStorage;
    use raft::{Config, RawNode};

    /// A group without a network: messages arrive when the test says so.
    struct TestGroup {
        members: Vec<RawNode<MemStorage>>,
        /// Which member was told how far the log is committed.
        told: Vec<(u64, u64)>,
    }

    impl TestGroup {
        /// So many voters, and a learner; the first of them leads.
        fn of(voters: u64) -> Self {
            let member = |id| {
                let conf = ((1..=voters).collect::<Vec<_>>(), vec![voters + 1]);
                let config = Config { id, check_quorum: true, pre_vote: true, ..Config::default() };
                let logger = slog::Logger::root(slog::Discard, slog::o!());
                RawNode::new(&config, MemStorage::new_with_conf_state(conf), &logger).unwrap()
            };
            let mut this = Self { members: (1..=voters + 1).map(member).collect(), told: Vec::new() };
            this.at(1).campaign().unwrap();
            let all: Vec<u64> = (1..=voters + 1).collect();
            this.settle(&all);
            assert_eq!(this.at(1).raft.state, StateRole::Leader);
            this
        }

        fn at(&mut self, id: u64) -> &mut RawNode<MemStorage> {
            &mut self.members[id as usize - 1]
        }

        /// Lets these members talk to each other until they have nothing to say; what they say to others is lost.
        fn settle(&mut self, among: &[u64]) {
            loop {
                let messages: Vec<Message> = among.iter().flat_map(|id| self.turn(*id)).collect();
                if messages.is_empty() {
                    return;
                }
                for message in messages.into_iter().filter(|message| among.contains(&message.to)) {
                    let to = message.to;
                    let _ = self.at(to).step(message);
                }
            }
        }

        /// One member does what its library wants; gives what it has to say.
        fn turn(&mut self, id: u64) -> Vec<Message> {
            let (mut messages, mut told) = (Vec::new(), Vec::new());
            let member = self.at(id);
            while member.has_ready() {
                let mut ready = member.ready();
                messages.extend(ready.take_messages());
                told.extend(ready.take_read_states().into_iter().map(|state| (id, state.index)));
                let store = member.store().clone();
                store.wl().append(&ready.take_entries()).unwrap();
                if let Some(hard) = ready.hs() {
                    store.wl().set_hardstate(hard.clone());
                }
                messages.extend(ready.take_persisted_messages());
                let mut light = member.advance(ready);
                messages.extend(light.take_messages());
                member.advance_apply();
            }
            self.told.append(&mut told);
            messages
        }

        /// That member asks the first one; gives the question.
        fn question(&mut self, from: u64) -> Message {
            question(&self.at(from).raft, 1, 7)
        }

        /// The second member is elected by the third while the first hears nothing, and commits something.
        fn depose(&mut self) {
            // They have heard nothing of their leader for as long as an election takes.
            for _ in 0..=2 * self.at(3).raft.election_timeout() {
                self.at(3).tick();
            }
            let _ = self.turn(3);
            self.at(2).campaign().unwrap();
            self.settle(&[2, 3]);
            assert_eq!(self.at(2).raft.state, StateRole::Leader);
            assert!(self.at(2).raft.raft_log.committed > self.at(1).raft.raft_log.committed);
            assert_eq!(self.at(1).raft.state, StateRole::Leader, "it has not heard of that");
        }
    }

    #[test]
    fn a_leader_answers_at_once_where_it_and_the_member_that_asks_are_a_majority() {
        let mut three = TestGroup::of(3);
        let question = three.question(2);
        let committed = three.at(1).raft.raft_log.committed;
        let answer = answer(&three.at(1).raft, &question).expect("an answer");
        assert_eq!((answer.to, answer.index), (2, committed));
        // The library takes it as it takes its own.
        assert_eq!(answer.entries[0].data.as_ref(), 7_u128.to_le_bytes());
        three.at(2).step(answer).unwrap();
        three.settle(&[2]);
        assert_eq!(three.told, [(2, committed)]);
    }

    #[test]
    fn two_of_five_and_a_learner_vouch_for_nothing() {
        for (voters, from) in [(5, 2), (3, 4)] {
            let mut group = TestGroup::of(voters);
            let question = group.question(from);
            assert_eq!(answer(&group.at(1).raft, &question), None, "member {from} of {voters}");
            // The library answers, once it has asked the others.
            let committed = group.at(1).raft.raft_log.committed;
            group.at(1).step(question).unwrap();
            group.settle(&[1, from]);
            assert_eq!(group.told, [], "no majority was asked");
            let question = group.question(from);
            group.at(1).step(question).unwrap();
            group.settle(&[1, 2, 3, from]);
            assert_eq!(group.told, [(from, committed)]);
        }
    }

    /// A read under a Raft leader that was deposed, and does not know, is never stale.
    #[test]
    fn a_deposed_leader_answers_no_question_that_was_asked_afterwards() {
        let mut three = TestGroup::of(3);
        three.depose();
        for from in [2, 3] {
            let question = three.question(from);
            assert_eq!(answer(&three.at(1).raft, &question), None, "member {from} is in a later term");
        }
    }

    /// The question was sent before the other leader was elected: it vouches for the reads that it was asked for, and not for one
    /// that comes to the deposed leader afterwards.
    #[test]
    fn a_question_that_was_long_on_its_way_vouches_for_no_read_but_its_own() {
        let mut three = TestGroup::of(3);
        let late = three.question(3);
        three.depose();
        three.at(1).read_index(b"younger".to_vec());
        assert!(answer(&three.at(1).raft, &late).is_some(), "older than the election");
        three.settle(&[1]);
        assert_eq!(three.told, []);
        assert_eq!(
            three.at(1).raft.pending_read_count(),
            1,
            "it waits for a majority, which it does not have"
        );
    }

    /// A new leader does not know yet how far the log was committed.
    #[test]
    fn a_leader_that_committed_nothing_in_its_term_answers_nothing() {
        let mut three = TestGroup::of(3);
        three.depose();
        // Elected once more, by itself and the third; what it then proposes reaches no other member.
        let two = three.at(2);
        two.raft.become_follower(9, 0);
        two.raft.become_candidate();
        two.raft.become_leader();
        let mut question = three.question(3);
        question.context = three.at(2).raft.term.to_bytes().into();
        assert_eq!(answer(&three.at(2).raft, &question), None);
    }
}
