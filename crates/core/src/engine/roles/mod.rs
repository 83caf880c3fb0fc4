//! Roles: following, claiming, leading, draining, resigning.
//!
//! Rules 4, 5 and 6. A claim is one compare-and-set on the version that the decision was based on; it grants only if
//! the session named in it is still valid when the answer is processed in time. A role is given up once its work has
//! stopped, and a tenure that was given up is never led again.

mod claim;
mod foresee;
mod inputs;
mod mutants;
mod observe;
mod report;
mod resign;
mod table;

use crate::io::{Candidacy, State};
use crate::record::{EndReason, Holder, Role as RoleRecord};
use crate::{Name, OpId, SessionId, Time, Timestamp, Token, Version};

pub(super) use table::Roles;

/// One role that this node campaigns for or watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::engine) struct TrackedRole {
    /// None: we only watch.
    candidacy: Option<Candidacy>,
    /// Forget it as soon as nothing of it is left.
    withdrawn: bool,
    view: RoleView,
    /// Reads sent before this operation are too old to tell.
    view_from: OpId,
    stage: Stage,
    /// The tenure whose work was started and has not stopped.
    work: Option<Token>,
    /// The highest token ever seen.
    highest_token: Token,
    /// Since when.
    highest_since: Time,
    /// The register was seen below the highest token, and that was taken for a loss.
    set_back: bool,
    /// Its register was seen in this epoch: if it is gone, an operator deleted it by force.
    existed: bool,
    watched_since: Time,
    /// None: it may not be claimed.
    claimable_since: Option<Time>,
    /// Back-off after a failure: no claim before.
    not_before: Time,
    /// The same for giving it back: no resignation of what is not led before.
    resign_from: Time,
    /// When it is considered again.
    due: Option<Time>,
    /// The register may be in our session's name without our knowing: a claim went unanswered, or a tenure was not found.
    maybe_stray: bool,
    /// How many polls in a row did not show our tenure.
    missed_audits: u8,
    /// Claimed in the session in use. A store that forgets may put it back into our name after we resigned it, and then
    /// only we can resign it again.
    claimed_in_session: bool,
    reported_state: State,
    reported_leader: Option<(Name, Token)>,
}

/// What is known of a role register.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum RoleView {
    /// Nothing, or nothing any more.
    Unknown,
    /// It does not exist.
    Absent,
    /// It holds this.
    Seen { version: Version, record: RoleRecord },
}

impl RoleView {
    pub(in crate::engine) fn record(&self) -> Option<&RoleRecord> {
        match self {
            Self::Seen { record, .. } => Some(record),
            _ => None,
        }
    }

    fn version(&self) -> Option<Version> {
        match self {
            Self::Seen { version, .. } => Some(*version),
            _ => None,
        }
    }

    fn holder(&self) -> Option<&Holder> {
        self.record().and_then(|record| record.holder.as_ref())
    }
}

/// Our part in a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage {
    /// Nothing.
    Following,
    /// The claim is on its way. `on_hint`: it replaces a resignation that was foreseen and not read.
    Claiming { op: OpId, session: SessionId, version: Version, record: RoleRecord, on_hint: bool },
    /// The register is ours, but on a store that can forget another tenure may have begun, and been lost, since the token was
    /// chosen: the role is claimed once more, on top of that.
    Restamping,
    /// The register is ours; a poll that is served after the claim reads what operators ask before the election is reported: the
    /// one that went out with it, or one from `after` on.
    /// On a store that can forget, not before `ready_at`, and only if it was seen to be ours once more.
    Verifying { after: Option<OpId>, ready_at: Time, seen: bool, token: Token, version: Version },
    /// Ours, and worked.
    Leading { token: Token, version: Version, since: Time },
    /// The work was told to stop.
    Draining { token: Token, version: Version, reason: EndReason, successor: Option<Name> },
    /// The work has stopped; the register is told.
    Resigning(Resigning),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Resigning {
    expect: Version,
    /// Every try writes the same bytes, under the same version.
    since: Timestamp,
    writing: Option<(OpId, Version, RoleRecord)>,
    unacknowledged: Vec<Version>,
    retry_at: Time,
    reason: EndReason,
    successor: Option<Name>,
}

impl Stage {
    /// The token of a tenure that may be relied on.
    fn tenure(&self) -> Option<Token> {
        match self {
            Self::Leading { token, .. } | Self::Draining { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// Whether the role is another's, as far as was read: a claim on a hint changes nothing of that before its answer.
    fn follows(&self) -> bool {
        matches!(self, Self::Following | Self::Claiming { on_hint: true, .. })
    }
}

/// What is known of a role, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleStatus<'a> {
    /// This node's part in it.
    pub state: State,
    /// The register, as last seen.
    pub view: &'a RoleView,
    /// Whether the holder's session is known to be over.
    pub holder_over: bool,
}

/// What to do about a role next.
enum NextAction {
    Nothing,
    Wait(Time),
    Claim,
    Resign,
}

impl NextAction {
    /// This, once the time has come.
    fn from(self, at: Time, now: Time) -> Self {
        if now >= at { self } else { Self::Wait(at) }
    }
}

impl TrackedRole {
    /// How we campaign for it; none: we only watch.
    pub(in crate::engine) fn candidacy(&self) -> Option<&Candidacy> {
        self.candidacy.as_ref()
    }

    /// What its register holds, as last seen.
    pub(in crate::engine) fn record(&self) -> Option<&RoleRecord> {
        self.view.record()
    }

    /// The token of a tenure that may be relied on.
    pub(in crate::engine) fn tenure(&self) -> Option<Token> {
        self.stage.tenure()
    }

    /// The tenure that is led and not draining, and since when.
    pub(in crate::engine) fn led_since(&self) -> Option<(Token, Time)> {
        match self.stage {
            Stage::Leading { token, since, .. } => Some((token, since)),
            _ => None,
        }
    }

    pub(in crate::engine) fn is_following(&self) -> bool {
        matches!(self.stage, Stage::Following)
    }

    /// Whether a claim is on its way that replaces what was read.
    pub(in crate::engine) fn is_claiming(&self) -> bool {
        matches!(self.stage, Stage::Claiming { on_hint: false, .. })
    }

    /// Whether it would not claim even if it could.
    pub(in crate::engine) fn is_backing_off(&self, now: Time) -> bool {
        now < self.not_before
    }

    /// Whether that is less than what was seen of the register before. Of one that cannot be read nothing is known.
    fn went_back(&self, view: &RoleView) -> bool {
        let less = view.progress() < self.view.progress() || view.progress().0 < self.highest_token;
        less && !matches!(view, RoleView::Unknown)
    }

    /// Seeing the same once more is no news: a register that went back once must not alarm for ever.
    fn is_news(&self, view: &RoleView) -> bool {
        view.version() != self.view.version() || matches!(self.view, RoleView::Unknown)
    }

    fn new(now: Time) -> Self {
        Self {
            candidacy: None,
            withdrawn: false,
            view: RoleView::Unknown,
            view_from: OpId::new(0),
            stage: Stage::Following,
            work: None,
            highest_token: Token::new(0),
            highest_since: now,
            set_back: false,
            existed: false,
            watched_since: now,
            claimable_since: None,
            not_before: now,
            resign_from: now,
            due: None,
            maybe_stray: false,
            missed_audits: 0,
            claimed_in_session: false,
            reported_state: State::Follower,
            reported_leader: None,
        }
    }
}
