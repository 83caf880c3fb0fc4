//! What is typed at the board.

use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::nemesis::Act;

/// What the viewer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// To see that happen to the leader.
    See(Act),
    /// The nemesis to rest, or to go on.
    Rest,
    /// To leave.
    Quit,
}

pub(super) fn meaning(code: KeyCode, modifiers: KeyModifiers) -> Option<Wish> {
    match code {
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('k') => Some(Wish::See(Act::Kill)),
        KeyCode::Char('f') => Some(Wish::See(Act::Freeze)),
        KeyCode::Char('t') => Some(Wish::See(Act::HandOver)),
        KeyCode::Char('p') => Some(Wish::Rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_board_says() {
        let plain = |c| meaning(KeyCode::Char(c), KeyModifiers::NONE);
        assert_eq!(plain('k'), Some(Wish::See(Act::Kill)));
        assert_eq!(plain('f'), Some(Wish::See(Act::Freeze)));
        assert_eq!(plain('t'), Some(Wish::See(Act::HandOver)));
        assert_eq!(plain('p'), Some(Wish::Rest));
        assert_eq!(plain('q'), Some(Wish::Quit));
        assert_eq!(plain('c'), None);
        assert_eq!(meaning(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Quit));
    }
}
