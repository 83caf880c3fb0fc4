//! Acting from the board: a key asks for something, the viewer says why, Enter does it and Esc does not.

use std::time::Duration;

use tenure::Name;
use tenure::operator::RoleReport;

use super::{KeyCommand, why};
use crate::exit::Exit;
use crate::output::sanitize;
use crate::verbs::source::Source;

/// How long a leader may take.
const WAIT: Duration = Duration::from_secs(30);

/// What can be done to a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoleAction {
    StepDown,
    Transfer,
    Pause,
    Resume,
}

/// A question that the viewer has not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    action: RoleAction,
    role: Name,
    leader: String,
    /// Who could lead next, and which of them is chosen.
    targets: Vec<Name>,
    at: usize,
    why: String,
}

/// What becomes of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It stands.
    NotYet,
    No,
    Yes,
}

impl Question {
    /// What a key asks about a role; or why that cannot be.
    pub(super) fn of(key: char, role: &RoleReport) -> Result<Self, String> {
        let name = &role.role;
        let action = match key {
            'S' => RoleAction::StepDown,
            'T' => RoleAction::Transfer,
            _ if role.paused.is_some() => RoleAction::Resume,
            _ => RoleAction::Pause,
        };
        let moves = matches!(action, RoleAction::StepDown | RoleAction::Transfer);
        match () {
            () if moves && role.leader.is_none() => return Err(format!("{name} has no leader")),
            () if action == RoleAction::Transfer && role.candidates.is_empty() => {
                return Err(format!("{name} has no other candidate"));
            }
            () => {}
        }
        let leader = role.leader.as_ref().map_or("no leader", Name::as_str).to_owned();
        let (targets, why) = (role.candidates.clone(), String::new());
        Ok(Self { action, role: name.clone(), leader, targets, at: 0, why })
    }

    pub(super) fn handle_key(&mut self, key: KeyCommand) -> Answer {
        match key {
            KeyCommand::Quit | KeyCommand::Back => return Answer::No,
            KeyCommand::Enter if !self.why.trim().is_empty() => return Answer::Yes,
            KeyCommand::Move(rows) if self.action == RoleAction::Transfer => {
                self.at = super::board::stepped(self.at, rows, self.targets.len());
            }
            KeyCommand::Typed(c) => self.why.push(c),
            KeyCommand::Erase => _ = self.why.pop(),
            KeyCommand::Enter | KeyCommand::Move(_) | KeyCommand::View => {}
        }
        Answer::NotYet
    }

    /// The question in one line.
    pub(super) fn text(&self) -> String {
        let (role, leader) = (&self.role, &self.leader);
        let what = match self.action {
            RoleAction::StepDown => format!("step-down: {leader} resigns {role}"),
            RoleAction::Transfer => format!("transfer {role} from {leader} to {} (↑↓)", self.target()),
            RoleAction::Pause => format!("pause {role}: no node leads it until it is resumed"),
            RoleAction::Resume => format!("resume {role}"),
        };
        format!("{what}. Reason: {}▏  Enter confirms, Esc cancels", sanitize(&self.why))
    }

    fn target(&self) -> &str {
        self.targets.get(self.at).map_or("no leader", Name::as_str)
    }

    /// Does it; what came of it, for people.
    pub(super) async fn run(&self, source: &Source) -> String {
        self.ask(source).await.unwrap_or_else(|exit| format!("not done: {}", why(&exit)))
    }

    async fn ask(&self, source: &Source) -> Result<String, Exit> {
        let (role, reason) = (&self.role, self.why.trim());
        Ok(match self.action {
            RoleAction::StepDown => {
                format!("{} leads {role} now", source.step_down(role, reason, WAIT).await?.node)
            }
            RoleAction::Transfer => match self.targets.get(self.at) {
                Some(to) => {
                    format!("{} leads {role} now", source.transfer(role, to, reason, WAIT).await?.node)
                }
                None => format!("{role} has no other candidate"),
            },
            RoleAction::Pause => match source.pause(role, reason, WAIT).await? {
                None => format!("{role} is paused"),
                Some(leader) => format!("{role} is paused; {leader} has not stopped its work yet"),
            },
            RoleAction::Resume => {
                source.resume(role, reason).await?;
                format!("{role} is resumed")
            }
        })
    }
}
