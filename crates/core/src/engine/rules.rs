//! The rules on which safety rests, each a small pure function of its arguments, the times and the class of the store.
//!
//! The parts of the engine ask a rule instead of deciding themselves, so that each decision has one name and one
//! place; and this is the one place where deliberate faults enter: a [`Mutant`] bends one rule. Without the feature
//! `mutants` no engine can be given one, and [`Rules::bent`] is `false` at compile time.

use std::time::Duration;

use crate::io::Pairing;
use crate::mutant::Mutant;
use crate::record::{EndReason, LivenessLock, Session as SessionRecord, SessionState};
use crate::{Fate, OpId, Outcome, Takeover, Time, Timing, Token, Version};

use super::{Class, Config};

/// The wall clocks of the nodes of a store that can forget agree to within 10 ms. Twice that, and room for a lease clock
/// that is fast.
const CLAIM_SETTLING: Duration = Duration::from_millis(25);

/// A claim that was answered within this was applied before another one that was made later, and whose token is higher,
/// could have settled.
const CLAIM_FLIGHT: Duration = Duration::from_millis(3);

/// So many roles are read again with each poll on a store that can forget; elsewhere one, because a loss is not expected.
pub const AUDITED_PER_POLL: usize = 64;

/// The times of a node, the class of its store, and the rules that follow from them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Rules {
    timing: Timing,
    class: Class,
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

impl Rules {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            timing: config.timing,
            class: config.class,
            #[cfg(feature = "mutants")]
            mutant: config.mutant,
        }
    }

    /// From now on the store can lose what it acknowledges.
    pub(super) fn weaken(&mut self) {
        if !self.bent(Mutant::WeakeningIgnored) {
            self.class = Class::C;
        }
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.timing
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Whether the store can lose what it acknowledged.
    pub(super) fn store_can_forget(&self) -> bool {
        self.class == Class::C
    }

    /// Time to wait before an operation that failed is tried again.
    pub(super) fn retry_delay(&self) -> Duration {
        self.timing.beat / 5
    }

    /// How often the owner of that session beats, as far as it says so. No record makes us look more than about four times in a
    /// beat of our own.
    pub(super) fn pace_of(&self, record: &SessionRecord) -> Duration {
        let every = if record.every.is_zero() { record.ttl / 4 } else { record.every };
        every.min(record.ttl).max(self.timing.beat / 4)
    }

    /// How long a node leaves the expulsion of a session that holds nothing to others. Among many nodes such a session is read
    /// only by every fifth poll, and those of a node at rest are far apart.
    pub(super) fn idle_expulsion_delay(&self, few_nodes: bool) -> Duration {
        4 * if few_nodes { self.timing.beat } else { self.timing.rest() }
    }

    #[cfg(feature = "mutants")]
    fn bent(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    #[allow(clippy::unused_self, reason = "the same call with and without mutants")]
    fn bent(&self, _: Mutant) -> bool {
        false
    }
}

/// Rules 1, 2 and 6: our own session.
impl Rules {
    /// How long a beat of that session counts, from before it was sent.
    pub(super) fn validity(&self, record: &SessionRecord) -> Duration {
        self.timing.validity_under(record.takeover)
    }

    /// The work is told to stop from then on, and nothing is claimed any more.
    pub(super) fn cancel_at(&self, valid_until: Time) -> Time {
        valid_until.before(self.timing.stop_grace)
    }

    /// From then on no beat is sent or counted any more.
    pub(super) fn beats_end_at(&self, valid_until: Time) -> Time {
        if self.bent(Mutant::BeatAfterCancel) { valid_until } else { self.cancel_at(valid_until) }
    }

    /// The instant from which an acknowledged beat counts.
    pub(super) fn beat_counts_from(&self, sent_at: Time, now: Time) -> Time {
        if self.bent(Mutant::ValidityFromReply) { now } else { sent_at }
    }

    /// Leadership is a deadline.
    pub(super) fn is_valid(&self, now: Time, until: Time) -> bool {
        now < until || !self.deadlines_count()
    }

    pub(super) fn deadlines_count(&self) -> bool {
        !self.bent(Mutant::BooleanLeadership)
    }

    /// The ttl in the record of a beat: the one that the session was opened with.
    pub(super) fn beat_ttl(&self, opened_with: Duration) -> Duration {
        if self.bent(Mutant::TtlLowered) { self.timing.ttl / 2 } else { opened_with }
    }

    /// Whether the store must prove with a beat that the connection of the session is still there.
    pub(super) fn beat_is_proven(&self, takeover: Takeover) -> bool {
        takeover == Takeover::OnDisconnect && !self.bent(Mutant::BeatUnproven)
    }

    /// What a beat came to: an unknown outcome is not a success.
    pub(super) fn beat_outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Failed(_) if self.bent(Mutant::UnknownIsSuccess) => Outcome::Applied,
            outcome => outcome,
        }
    }

    /// An opening that is not acknowledged abandons the id.
    pub(super) fn abandons_openings(&self) -> bool {
        !self.bent(Mutant::OpeningSentTwice)
    }

    /// A beat replaces only a version that we wrote.
    pub(super) fn renews_only_own_versions(&self) -> bool {
        !self.bent(Mutant::UnconditionalRenew)
    }

    /// A live value in our session that we never sent means that we were cloned.
    pub(super) fn notices_clones(&self) -> bool {
        !self.bent(Mutant::CloneUnnoticed)
    }

    /// A read never extends a session.
    pub(super) fn reads_extend_nothing(&self) -> bool {
        !self.bent(Mutant::ValidityFromRead)
    }

    /// An owner closes its expired session before it opens the next one.
    pub(super) fn closes_expired_sessions(&self) -> bool {
        !self.bent(Mutant::ExpiredLeftOpen)
    }

    /// Work that has not stopped means neither resign nor close.
    pub(super) fn may_give_up(&self, working: bool) -> bool {
        !working || self.bent(Mutant::ReleaseBeforeStopped)
    }
}

/// Rule 3: other sessions.
impl Rules {
    /// The instant from which a version that a read showed has been here.
    pub(super) fn received_at(&self, asked_at: Time, now: Time) -> Time {
        if self.bent(Mutant::ExpelFromAsked) { asked_at } else { now }
    }

    /// The instant from which a version counts that was received then, whenever it may have been sent.
    pub(super) fn counts_from(&self, sent_after: Option<Time>, received_at: Time) -> Time {
        match sent_after {
            Some(sent_after) if self.bent(Mutant::ExpelFromExpected) => sent_after.min(received_at),
            _ => received_at,
        }
    }

    /// How long one version of a session must have been here before it may be expelled: its own ttl counts.
    pub(super) fn expulsion_wait(&self, ttl: Duration) -> Duration {
        let ttl = if self.bent(Mutant::OwnTtl) { self.timing.ttl } else { ttl };
        if self.bent(Mutant::ExpelEarly) {
            // "Both clocks are good."
            return ttl - ttl / 50;
        }
        self.timing.expulsion_wait(ttl)
    }

    /// How long after its last beat a session that was seen to disconnect may be expelled, if that counts.
    pub(super) fn disconnect_wait(&self, record: &SessionRecord) -> Option<Duration> {
        let counts = record.takeover == Takeover::OnDisconnect || self.bent(Mutant::DropEndsStrict);
        let grace = if self.bent(Mutant::GraceSkipped) { Duration::ZERO } else { record.grace };
        counts.then(|| self.timing.expulsion_wait(grace))
    }

    /// An absent session is not over.
    pub(super) fn absent_is_over(&self) -> bool {
        self.bent(Mutant::AbsentIsOver)
    }

    /// A holder is expelled before its roles are claimed.
    pub(super) fn expels_before_claiming(&self) -> bool {
        !self.bent(Mutant::ClaimWithoutExpulsion)
    }

    /// What replaces the record of a session that is expelled.
    pub(super) fn expulsion(&self, record: SessionRecord) -> SessionRecord {
        if self.hands_off() {
            SessionRecord { state: SessionState::Expelled, ..record }
        } else {
            SessionRecord { beat: record.beat + 1, ..record }
        }
    }

    /// Followers never renew the session of another node.
    pub(super) fn hands_off(&self) -> bool {
        !self.bent(Mutant::FollowersRenew)
    }

    /// Only the lock that the record names is believed.
    pub(super) fn believes_lock(&self, named: &LivenessLock, id: &str) -> bool {
        named.id == id || self.bent(Mutant::AnyLivenessLock)
    }

    /// Whether the death that the lock shows is also the death of the work.
    pub(super) fn covers_work(&self, named: &LivenessLock) -> bool {
        named.covers_work || self.bent(Mutant::ElectorDeathIsWorkDeath)
    }

    /// A session counts the roles that it resigned: a change means "read them again".
    pub(super) fn follows_freed_count(&self) -> bool {
        !self.bent(Mutant::FreedIgnored)
    }

    /// A role is not handed to a node that may not claim yet.
    pub(super) fn may_receive(&self, holds_back: bool) -> bool {
        !holds_back || self.bent(Mutant::HandsOverTooEarly)
    }
}

/// Rules 4 and 5: claims and tenures.
impl Rules {
    /// What a claim came to: an unknown outcome is neither a success nor a failure.
    pub(super) fn claim_outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Failed(_) if self.bent(Mutant::UnknownIsSuccess) => Outcome::Applied,
            Outcome::Failed(_) if self.bent(Mutant::UnknownIsFailure) => Outcome::Failed(Fate::NotApplied),
            outcome => outcome,
        }
    }

    /// A claim counts only for the session named in it: it ends with that session.
    pub(super) fn claim_ends_with_session(&self) -> bool {
        !self.bent(Mutant::AckCreditedToLaterSession)
    }

    /// A node that finds its own live session holding a role that it does not lead resigns the role or claims it anew.
    pub(super) fn clears_strays(&self) -> bool {
        !self.bent(Mutant::StrayIgnored) && !self.bent(Mutant::UnknownIsFailure)
    }

    /// A store that forgets may put a role back into our name after we resigned it.
    pub(super) fn resigned_role_may_return(&self) -> bool {
        self.store_can_forget() && self.finds_unknown_strays()
    }

    /// Roles in the name of our session that we do not know are resigned.
    pub(super) fn finds_unknown_strays(&self) -> bool {
        !self.bent(Mutant::StrayForgotten)
    }

    /// A tenure that was given up is never led again.
    pub(super) fn never_leads_again(&self) -> bool {
        !self.bent(Mutant::TenureReled)
    }

    /// A late reply grants nothing.
    pub(super) fn late_replies_are_inert(&self) -> bool {
        !self.bent(Mutant::LateReplyBelieved)
    }

    /// A hint says "read", and nothing more.
    #[cfg(feature = "mutants")]
    pub(super) fn hints_say_nothing(&self) -> bool {
        !self.bent(Mutant::HintBelieved)
    }

    /// What operators ask is read once more between a claim and its tenure.
    pub(super) fn rereads_controls(&self) -> bool {
        !self.bent(Mutant::PauseNotReread)
    }

    /// Whether that read may go out with its claim. On a store that can forget, a tenure begins some time after its claim.
    pub(super) fn controls_follow_claim(&self) -> bool {
        !self.store_can_forget()
    }

    /// How that read goes out: it shows every pause that came before the claim.
    pub(super) fn pairing_with_claim(&self, claim: OpId) -> Pairing {
        if self.bent(Mutant::ControlsBesideClaim) { Pairing::Beside(claim) } else { Pairing::After(claim) }
    }

    /// Whether a resignation is written under a version that standbys know beforehand. Where acknowledged writes can be lost, two
    /// primaries might have different bytes under it.
    pub(super) fn resignations_are_foreseen(&self) -> bool {
        !self.store_can_forget()
    }

    /// What a claim on a hint replaces: the resignation of the tenure that was read, and never that tenure.
    pub(super) fn claimed_on_hint(&self, read: Version) -> Option<Version> {
        if self.bent(Mutant::HintDeposes) { Some(read) } else { read.of_resignation() }
    }

    /// A resignation replaces only the version that it was decided on.
    pub(super) fn resigns_only_own_version(&self) -> bool {
        !self.bent(Mutant::UnconditionalRelease)
    }
}

/// Operators and priorities.
impl Rules {
    /// A request addresses one tenure and fells no other.
    pub(super) fn requests_address_one_tenure(&self) -> bool {
        !self.bent(Mutant::RequestFellsAnyone)
    }

    /// A node asks for a role only when it may claim it.
    pub(super) fn may_preempt(&self, may_claim: bool) -> bool {
        may_claim || self.bent(Mutant::AsksTooEarly)
    }

    /// Priority does not undo a transfer that an operator asked for.
    pub(super) fn transfers_hold(&self) -> bool {
        !self.bent(Mutant::TransferUndone)
    }

    /// An operator does not ask a leader to step down in order to see it lead again at once.
    pub(super) fn backs_off_after(&self, reason: EndReason) -> bool {
        reason == EndReason::StepDown && !self.bent(Mutant::StepDownForgotten)
    }
}

/// Rule 7: stores that forget.
impl Rules {
    /// A store that keeps what it acknowledged reports a loss only when it was replaced or set back: nothing that rests
    /// on it may be relied on any longer.
    pub(super) fn loss_ends_session(&self) -> bool {
        !self.store_can_forget() && !self.bent(Mutant::ForgotIgnored)
    }

    /// After a sign of loss nothing is claimed until every lease has run out that a node may still rely on.
    pub(super) fn quarantines(&self) -> bool {
        !self.bent(Mutant::QuarantineSkipped)
    }

    /// Whether a role must have been watched for the longest lease before it is claimed.
    pub(super) fn watches_before_claiming(&self) -> bool {
        self.store_can_forget() && self.quarantines()
    }

    /// After a sign of loss no beat counts before a poll has shown what is left.
    pub(super) fn audits_losses(&self) -> bool {
        !self.bent(Mutant::LossUnaudited)
    }

    /// How many roles a poll reads in turn.
    pub(super) fn audited_per_poll(&self) -> usize {
        if self.store_can_forget() && self.audits_losses() { AUDITED_PER_POLL } else { 1 }
    }

    /// How much of the allowance for hints a poll costs that goes out for hints alone.
    pub(super) fn hint_poll_cost(&self, for_hints: bool) -> u8 {
        u8::from(for_hints && !self.bent(Mutant::HintsUnlimited))
    }

    /// The longest lease falls only after it was announced and every list of sessions agreed for long enough.
    pub(super) fn announces_shorter_leases(&self) -> bool {
        !self.bent(Mutant::LeaseFallsEarly)
    }

    /// A claim that was long in flight, or whose token is below one seen since, is made once more before it is led.
    pub(super) fn must_restamp(&self, in_flight: Duration, token: Token, highest: Token) -> bool {
        let restamps = self.store_can_forget() && !self.bent(Mutant::SlowClaimLed);
        restamps && (in_flight > CLAIM_FLIGHT || token < highest)
    }

    /// Whether a claim must be read once more, some time after it was acknowledged, before its tenure begins.
    pub(super) fn claims_settle(&self) -> bool {
        self.store_can_forget() && !self.bent(Mutant::ElectedUnsettled)
    }

    /// How long after a claim its tenure begins: the wall clocks of two claimers may differ by this, and the later one,
    /// if it knows nothing of the earlier, takes its token from its clock.
    pub(super) fn claim_settling(&self) -> Duration {
        if self.claims_settle() { CLAIM_SETTLING } else { Duration::ZERO }
    }

    /// The token of the next tenure: `max(register, highest ever seen) + 1`; on a store that can forget, the wall clock
    /// is a floor.
    ///
    /// Wall clocks that agree give rising tokens although the store has lost a claim in between that the claimer never
    /// saw: a tenure begins only when its claim is older than clocks may differ. A clock that is wrong by generations is
    /// no floor: it would use up the tokens of the role for good.
    pub(super) fn next_token(&self, seen: Token, floor: Option<TokenFloor>) -> Token {
        if self.bent(Mutant::TokenNotRaised) && seen > Token::new(0) {
            return seen;
        }
        let Some(floor) = floor.filter(|_| !self.bent(Mutant::NoTokenFloor)) else { return seen.next() };
        let wall = if floor.wall < Token::IMPLAUSIBLE.get() { floor.wall } else { 0 };
        seen.next().max(Token::new(wall.max(self.advanced(&floor)).min(Token::MAX.get())))
    }

    /// A wall clock that is behind those who led before is no floor at all. So the highest token goes on by itself, a
    /// microsecond at a time, from when it was first seen; and no faster than true time, or it would outrun the wall
    /// clocks of claimers that never saw it.
    fn advanced(&self, floor: &TokenFloor) -> u64 {
        let age = match () {
            () if self.bent(Mutant::HighestStandsStill) => Duration::ZERO,
            () if self.bent(Mutant::TokensOutrunClocks) => floor.highest_age,
            () => self.timing.min_elapsed(floor.highest_age),
        };
        floor.highest.get().saturating_add(u64::try_from(age.as_micros()).unwrap_or(u64::MAX))
    }
}

/// What keeps tokens rising on a store that can forget.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenFloor {
    /// The wall clock, in microseconds since 1970.
    pub(super) wall: u64,
    /// The highest token ever seen of the role.
    pub(super) highest: Token,
    /// Since when, by the lease clock.
    pub(super) highest_age: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(class: Class) -> Rules {
        let node = crate::Name::new("a").unwrap();
        Rules::new(&Config::new(node, Timing::default(), class))
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn deadlines_count_from_the_safe_side() {
        let rules = rules(Class::B);
        let (sent, replied) = (Time::from_nanos(0).after(secs(10)), Time::from_nanos(0).after(secs(11)));
        assert_eq!(rules.beat_counts_from(sent, replied), sent, "a leader counts from before it asked");
        assert_eq!(rules.received_at(sent, replied), replied, "a follower counts from after it heard");
        let until = Time::from_nanos(0).after(secs(20));
        assert_eq!(rules.beats_end_at(until), rules.cancel_at(until));
        assert!(rules.is_valid(replied, until) && !rules.is_valid(until, until));
    }

    #[test]
    fn tokens_rise() {
        let day = 86_400_000_000;
        let floor =
            |wall, highest, age| Some(TokenFloor { wall, highest: Token::new(highest), highest_age: age });
        for (what, seen, floor, next) in [
            ("one higher", 7, None, 8),
            ("the wall clock is a floor", 7, floor(day, 7, secs(0)), day),
            ("a clock that is behind is none", 2 * day, floor(day, 2 * day, secs(0)), 2 * day + 1),
            (
                "the highest goes on, slower than the clock may be fast",
                2 * day,
                floor(day, 2 * day, secs(101)),
                2 * day + 100_000_000,
            ),
            ("a clock that is wrong by generations is none", 7, floor(1 << 60, 7, secs(0)), 8),
        ] {
            assert_eq!(rules(Class::C).next_token(Token::new(seen), floor), Token::new(next), "{what}");
        }
    }

    #[test]
    fn what_the_class_of_the_store_decides() {
        for (class, forgets) in [(Class::A, false), (Class::B, false), (Class::C, true)] {
            let rules = rules(class);
            let of_class = [
                rules.store_can_forget(),
                rules.watches_before_claiming(),
                rules.claims_settle(),
                !rules.claim_settling().is_zero(),
                rules.resigned_role_may_return(),
                !rules.loss_ends_session(),
                rules.audited_per_poll() > 1,
                rules.must_restamp(secs(1), Token::new(7), Token::new(7)),
                rules.must_restamp(secs(0), Token::new(6), Token::new(7)),
            ];
            assert_eq!(of_class, [forgets; 9], "{class:?}");
            assert!(!rules.must_restamp(CLAIM_FLIGHT, Token::new(7), Token::new(7)), "{class:?}");
        }
        let mut rules = rules(Class::A);
        rules.weaken();
        assert_eq!(rules.class(), Class::C);
    }
}
