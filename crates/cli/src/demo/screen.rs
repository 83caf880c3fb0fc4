//! The terminal: taken, and always given back; and what is typed at it.

use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

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

/// The terminal in the demo's hands. Given back when dropped; a panic gives it back before it speaks.
#[derive(Debug)]
pub(super) struct Screen {
    /// Never dropped: if the terminal is gone, it would complain to it, which is a panic.
    pub(super) terminal: ManuallyDrop<DefaultTerminal>,
    pub(super) wishes: UnboundedReceiver<Wish>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn take() -> io::Result<Self> {
        let terminal = ManuallyDrop::new(ratatui::try_init()?);
        let (sender, wishes) = unbounded_channel();
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            while !sender.is_closed() {
                if let Some(wish) = wish(Duration::from_millis(200))
                    && sender.send(wish).is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Self { terminal, wishes })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Given back already, and the story of the panic is on it.
        if std::thread::panicking() {
            return;
        }
        // A terminal that is gone needs neither.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// What is typed within `patience`, if it means anything. A terminal that is gone wants to leave.
fn wish(patience: Duration) -> Option<Wish> {
    let read = event::poll(patience).and_then(|ready| ready.then(event::read).transpose());
    match read {
        Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => meaning(key.code, key.modifiers),
        Ok(_) => None,
        Err(_) => {
            std::thread::sleep(patience);
            Some(Wish::Quit)
        }
    }
}

fn meaning(code: KeyCode, modifiers: KeyModifiers) -> Option<Wish> {
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
