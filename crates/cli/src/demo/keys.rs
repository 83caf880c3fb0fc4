//! What is typed at the board.

use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::script::DemoFault;

/// What the viewer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyCommand {
    /// To see that happen to the leader.
    See(DemoFault),
    /// The fault script to rest, or to go on.
    Rest,
    /// To leave.
    Quit,
}

pub(super) fn meaning(code: KeyCode, modifiers: KeyModifiers) -> Option<KeyCommand> {
    match code {
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Some(KeyCommand::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(KeyCommand::Quit),
        KeyCode::Char('k') => Some(KeyCommand::See(DemoFault::Kill)),
        KeyCode::Char('f') => Some(KeyCommand::See(DemoFault::Freeze)),
        KeyCode::Char('t') => Some(KeyCommand::See(DemoFault::HandOver)),
        KeyCode::Char('p') => Some(KeyCommand::Rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_board_says() {
        let plain = |c| meaning(KeyCode::Char(c), KeyModifiers::NONE);
        assert_eq!(plain('k'), Some(KeyCommand::See(DemoFault::Kill)));
        assert_eq!(plain('f'), Some(KeyCommand::See(DemoFault::Freeze)));
        assert_eq!(plain('t'), Some(KeyCommand::See(DemoFault::HandOver)));
        assert_eq!(plain('p'), Some(KeyCommand::Rest));
        assert_eq!(plain('q'), Some(KeyCommand::Quit));
        assert_eq!(plain('c'), None);
        assert_eq!(meaning(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(KeyCommand::Quit));
    }
}
