//! How the board paints what only it shows.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::super::cluster::Health;
use super::super::timeline::Cell;
pub(super) use crate::output::paint::Paint;

impl Paint {
    /// What is frozen.
    pub(super) fn cold(self) -> Style {
        self.fg(Color::Blue).add_modifier(Modifier::BOLD)
    }

    /// How a node fares.
    pub(super) fn health(self, health: Health) -> Span<'static> {
        match health {
            Health::Live => Span::styled("live   ", self.good()),
            Health::Joining => Span::styled("joining", self.faint()),
            Health::Frozen => Span::styled("frozen ", self.cold()),
            Health::Dead => Span::styled("dead   ", self.bad()),
        }
    }

    /// A cell of a lane.
    pub(super) fn cell(self, cell: Cell, index: usize) -> Style {
        match cell {
            Cell::Leading => self.node(index),
            Cell::Killed => self.bad(),
            Cell::Froze => self.cold(),
            Cell::Holding => self.fg(Color::Blue),
            Cell::Frozen | Cell::Standby | Cell::Absent => self.faint(),
        }
    }
}
