//! The known mistakes, so that the proofs can show that each would be caught.
//!
//! Every variant is one wrong line somewhere in the engine, guarded by `self.mutated(Mutant::…)`, which is
//! `false` at compile time without the feature `mutants`.

/// A mistake, switched on for one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// Followers write a new beat into the session of the leader (the zombie master of Quartz).
    FollowersRenew,
    /// A beat that meets another version is sent again on top of whatever is there.
    UnconditionalRenew,
    /// A resignation that meets another version is sent again on top of whatever is there.
    UnconditionalRelease,
    /// Validity counts from when the acknowledgement arrived.
    ValidityFromReply,
    /// Seeing one's own session in a read extends it.
    ValidityFromRead,
    /// A follower waits for its own ttl, not for the one in the record.
    OwnTtl,
    /// Leadership is a boolean: the deadline is never looked at.
    BooleanLeadership,
    /// A beat or claim without an answer is taken for applied.
    UnknownIsSuccess,
    /// A claim without an answer is taken for not applied, and never looked at again.
    UnknownIsFailure,
    /// A claim keeps the token of the tenure before.
    TokenNotRaised,
    /// A role found in one's own name is led again under its old token.
    TenureReled,
    /// A role is claimed once its holder was silent for a ttl, without expelling the holder.
    ClaimWithoutExpulsion,
    /// A follower counts from when it sent the read, not from when it received the version.
    ExpelFromAsked,
    /// A follower forgets that its own clock may be fast.
    ExpelEarly,
    /// The role is given up before its work has stopped.
    ReleaseBeforeStopped,
    /// The acknowledgement of a claim that had timed out still grants.
    LateReplyBelieved,
    /// The acknowledgement of a claim is credited to whatever session there is by then.
    AckCreditedToLaterSession,
    /// The ttl in the record shrinks between two beats, while the owner goes on counting with the old one.
    TtlLowered,
    /// An absent session is taken for over.
    AbsentIsOver,
    /// A hint is believed when it says that a session is closed.
    HintBelieved,
    /// The death of the elector is taken for the death of its work.
    ElectorDeathIsWorkDeath,
    /// The evidence of any witness is believed, not only of the one in the record.
    AnyWitness,
    /// An opening without an answer is sent again under the same id.
    OpeningSentTwice,
    /// The lease clock is read in an order that a preemption can stretch. (The simulator bends the clock.)
    ClockReadOrder,
    /// Beats are sent and counted after the work was told to stop.
    BeatAfterCancel,
    /// A twin's nonce in one's own session is not noticed.
    CloneUnnoticed,
    /// A pause is not read again between the claim and the election.
    PauseNotReread,
    /// A role found in one's own name, but not led, is left as it is.
    StrayIgnored,
    /// The counter of roles given up is not looked at, so that a lost hint is lost for ever.
    FreedIgnored,
    /// On a store that can forget, roles are claimed without watching first.
    QuarantineSkipped,
    /// On a store that can forget, the wall clock is no floor for tokens.
    NoTokenFloor,
    /// A dropped connection counts at once, without the grace that the owner reckons with.
    GraceSkipped,
    /// A beat is not made to prove that the connection is still there.
    BeatUnproven,
    /// A request is obeyed by whoever leads, not only by the tenure that it addresses.
    RequestFellsAnyone,
    /// The session that expired is left open when the next one is opened.
    ExpiredLeftOpen,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: [Self; 35] = [
        Self::FollowersRenew,
        Self::UnconditionalRenew,
        Self::UnconditionalRelease,
        Self::ValidityFromReply,
        Self::ValidityFromRead,
        Self::OwnTtl,
        Self::BooleanLeadership,
        Self::UnknownIsSuccess,
        Self::UnknownIsFailure,
        Self::TokenNotRaised,
        Self::TenureReled,
        Self::ClaimWithoutExpulsion,
        Self::ExpelFromAsked,
        Self::ExpelEarly,
        Self::ReleaseBeforeStopped,
        Self::LateReplyBelieved,
        Self::AckCreditedToLaterSession,
        Self::TtlLowered,
        Self::AbsentIsOver,
        Self::HintBelieved,
        Self::ElectorDeathIsWorkDeath,
        Self::AnyWitness,
        Self::OpeningSentTwice,
        Self::ClockReadOrder,
        Self::BeatAfterCancel,
        Self::CloneUnnoticed,
        Self::PauseNotReread,
        Self::StrayIgnored,
        Self::FreedIgnored,
        Self::QuarantineSkipped,
        Self::NoTokenFloor,
        Self::GraceSkipped,
        Self::BeatUnproven,
        Self::RequestFellsAnyone,
        Self::ExpiredLeftOpen,
    ];
}
