//! Colours of boards: only those that every terminal has in a shade that suits its background, and none if so wished.

use ratatui::style::{Color, Modifier, Style};

/// One for each node. Nothing depends on them: lanes and rows have names.
const NODES: [Color; 6] =
    [Color::Cyan, Color::Magenta, Color::Green, Color::Blue, Color::LightRed, Color::LightMagenta];

/// Whether the viewer wants colours (<https://no-color.org>).
pub(crate) fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// How things are painted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    pub(crate) colour: bool,
}

impl Paint {
    pub(crate) fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A node's own.
    pub(crate) fn node(self, index: usize) -> Style {
        self.fg(NODES[index % NODES.len()])
    }

    /// What is beside the point.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What matters.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is as it must be.
    pub(crate) fn good(self) -> Style {
        self.fg(Color::Green).add_modifier(Modifier::BOLD)
    }

    /// What an operator should look at.
    pub(crate) fn warn(self) -> Style {
        self.fg(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// What is not as it must be.
    pub(crate) fn bad(self) -> Style {
        self.fg(Color::Red).add_modifier(Modifier::BOLD)
    }
}
