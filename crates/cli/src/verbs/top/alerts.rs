//! Alerts on the board: those that are not quiet. Agents evaluate them, so that a store alone shows none.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::board::{fit, row, rule};
use crate::output::paint::Paint;
use crate::output::sanitize;
use tenure_agent::model::AlertStatus;

/// The alerts that an operator should look at.
#[derive(Debug, Default)]
pub(super) struct AlertList {
    seen: Vec<AlertStatus>,
}

impl AlertList {
    pub(super) fn update(&mut self, mut alerts: Vec<AlertStatus>) {
        alerts.retain(|alert| !["inactive", "pending"].contains(&alert.state.as_str()));
        self.seen = alerts;
    }

    /// How many rows a panel with all of them has; none where there are none.
    pub(super) fn rows(&self) -> usize {
        if self.seen.is_empty() { 0 } else { self.seen.len() + 1 }
    }

    /// The list.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, paint: Paint) {
        if area.height == 0 {
            return;
        }
        rule(frame, area, paint, &format!("alerts  {}", self.seen.len()));
        let name = (usize::from(area.width) / 4).clamp(8, 40);
        for (index, alert) in self.seen.iter().take(usize::from(area.height) - 1).enumerate() {
            let line = Line::from(vec![
                Span::raw("  "),
                Span::styled(fit(&sanitize(&alert.alert), name), paint.strong()),
                Span::styled(format!(" {:<13}{:<9}", alert.state, alert.severity), tone(alert, paint)),
                Span::raw(sanitize(&alert.summary)),
            ]);
            frame.render_widget(line, row(area, index + 1));
        }
    }
}

fn tone(alert: &AlertStatus, paint: Paint) -> Style {
    match (alert.state.as_str(), alert.severity.as_str()) {
        ("firing", "critical") => paint.bad(),
        ("firing", _) => paint.warn(),
        _ => paint.faint(),
    }
}
