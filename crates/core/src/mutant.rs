//! Mutants: known faults, made on purpose, so that the proofs can show that each would be caught.
//!
//! Each bends one rule of the engine (`engine/rules.rs`). Without the feature `mutants` none can be chosen, and the
//! type is not public.

/// A deliberate fault, switched on for one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "mutants"),
    allow(dead_code, unreachable_pub, reason = "some enter elsewhere than in the engine")
)]
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
    /// Leadership is a boolean: the deadline is never checked.
    BooleanLeadership,
    /// A beat or claim without an answer is taken for applied.
    UnknownIsSuccess,
    /// A claim without an answer is taken for not applied, and never read again.
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
    /// A hint is believed when it says that a session is closed, or what a role's register holds.
    HintBelieved,
    /// A claim on a hint replaces what was read of the role, its leader included.
    HintDeposes,
    /// Hints cause as many reads as there are hints.
    HintsUnlimited,
    /// The death of the elector is taken for the death of its work.
    ElectorDeathIsWorkDeath,
    /// The evidence of any lock is believed, not only of the one in the record.
    AnyLivenessLock,
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
    /// What operators ask is read beside a claim, in any order, and the tenure begins on that.
    ControlsBesideClaim,
    /// A role found in one's own name, but not led, is left as it is.
    StrayIgnored,
    /// The counter of resigned roles is ignored, so that a lost hint is lost for ever.
    FreedIgnored,
    /// On a store that can forget, roles are claimed without watching first.
    QuarantineSkipped,
    /// On a store that can forget, the wall clock is no floor for tokens.
    NoTokenFloor,
    /// A dropped connection counts at once, without the grace that the owner reckons with.
    GraceSkipped,
    /// A beat is not made to prove that the connection is still there.
    BeatUnproven,
    /// Every leader obeys a request, not only the tenure that it addresses.
    RequestFellsAnyone,
    /// The session that expired is left open when the next one is opened.
    ExpiredLeftOpen,
    /// The longest lease is lowered as soon as a list of sessions shows none that needs it.
    LeaseFallsEarly,
    /// After a sign that the store lost something, polls read roles in turn as ever, and beats go on counting.
    LossUnaudited,
    /// A store that keeps what it acknowledged says that it lost it, and the leader leads on until its lease is over.
    ForgotIgnored,
    /// A role that was given up and withdrawn from is forgotten, although the store may put it back into our name.
    StrayForgotten,
    /// On a store that can forget, a tenure begins as soon as its claim was acknowledged.
    ElectedUnsettled,
    /// On a store that can forget, a claim that was long on its way is led under the token that it set out with.
    SlowClaimLed,
    /// The highest token seen goes on as fast as a lease clock that is fast.
    TokensOutrunClocks,
    /// The highest token seen does not go on by itself.
    HighestStandsStill,
    /// A node asks for a role that it may not claim yet.
    AsksTooEarly,
    /// A leader hands over to a node that may not claim yet.
    HandsOverTooEarly,
    /// A dropped connection ends a strict session too.
    DropEndsStrict,
    /// A store that can lose what it acknowledges from now on is taken for what it was.
    WeakeningIgnored,
    /// A node of higher priority asks for a role that an operator has just given to its leader.
    TransferUndone,
    /// A leader that was asked to step down claims the role again at once.
    StepDownForgotten,
    /// A standby that follows the beats of a session counts from when the last one may have been sent.
    ExpelFromExpected,
    /// Timers stand still while the machine is suspended. (The simulator bends the timers.)
    TimersSleep,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// Every mutant.
    pub const ALL: [Self; 54] = [
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
        Self::HintDeposes,
        Self::HintsUnlimited,
        Self::ElectorDeathIsWorkDeath,
        Self::AnyLivenessLock,
        Self::OpeningSentTwice,
        Self::ClockReadOrder,
        Self::BeatAfterCancel,
        Self::CloneUnnoticed,
        Self::PauseNotReread,
        Self::ControlsBesideClaim,
        Self::StrayIgnored,
        Self::FreedIgnored,
        Self::QuarantineSkipped,
        Self::NoTokenFloor,
        Self::GraceSkipped,
        Self::BeatUnproven,
        Self::RequestFellsAnyone,
        Self::ExpiredLeftOpen,
        Self::LeaseFallsEarly,
        Self::LossUnaudited,
        Self::ForgotIgnored,
        Self::StrayForgotten,
        Self::ElectedUnsettled,
        Self::SlowClaimLed,
        Self::TokensOutrunClocks,
        Self::HighestStandsStill,
        Self::AsksTooEarly,
        Self::HandsOverTooEarly,
        Self::DropEndsStrict,
        Self::WeakeningIgnored,
        Self::TransferUndone,
        Self::StepDownForgotten,
        Self::ExpelFromExpected,
        Self::TimersSleep,
    ];
}
