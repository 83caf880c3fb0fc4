//! The terminal: taken, and always given back; and what is typed at it.

use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What a key means, if anything.
pub(crate) type Meaning<W> = fn(KeyCode, KeyModifiers) -> Option<W>;

/// The terminal in our hands. Given back when dropped; a panic gives it back before it speaks.
#[derive(Debug)]
pub(crate) struct Screen<W> {
    /// Never dropped: if the terminal is gone, it would complain to it, which is a panic.
    pub(crate) terminal: ManuallyDrop<DefaultTerminal>,
    /// What the viewer wants; it ends when the terminal is gone.
    pub(crate) commands: UnboundedReceiver<W>,
}

impl<W: Send + 'static> Screen<W> {
    /// Takes the terminal.
    pub(crate) fn take(meaning: Meaning<W>) -> io::Result<Self> {
        let terminal = ManuallyDrop::new(ratatui::try_init()?);
        let (sender, commands) = unbounded_channel();
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            while !sender.is_closed() {
                let Ok(command) = command(Duration::from_millis(200), meaning) else { return };
                command.map(|command| sender.send(command));
            }
        })?;
        Ok(Self { terminal, commands })
    }
}

impl<W> Drop for Screen<W> {
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

/// What is typed within `patience`, if it means anything.
fn command<W>(patience: Duration, meaning: Meaning<W>) -> io::Result<Option<W>> {
    match event::poll(patience)?.then(event::read).transpose()? {
        Some(Event::Key(key)) if key.kind == KeyEventKind::Press => Ok(meaning(key.code, key.modifiers)),
        _ => Ok(None),
    }
}
