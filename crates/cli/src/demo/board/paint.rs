//! Colours: only those that every terminal has in a shade that suits its background, and none if so wished.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::super::timeline::Cell;
use super::super::world::Health;

/// One for each node. Nothing depends on them: lanes and rows have names.
const NODES: [Color; 6] =
    [Color::Cyan, Color::Magenta, Color::Green, Color::Blue, Color::LightRed, Color::LightMagenta];

/// Whether the viewer wants colours (<https://no-color.org>).
pub(in crate::demo) fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// How things are painted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    pub(super) colour: bool,
}

impl Paint {
    fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A node's own.
    pub(super) fn node(self, index: usize) -> Style {
        self.fg(NODES[index % NODES.len()])
    }

    /// What is beside the point.
    pub(super) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What matters.
    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is as it must be.
    pub(super) fn good(self) -> Style {
        self.fg(Color::Green).add_modifier(Modifier::BOLD)
    }

    /// What is not.
    pub(super) fn bad(self) -> Style {
        self.fg(Color::Red).add_modifier(Modifier::BOLD)
    }

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
