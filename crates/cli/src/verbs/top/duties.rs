//! What runs by the clock, and what somebody should look at: a panel for tasks and one for alerts, if there are any.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use tenure::Wall;

use super::board::{Board, fit, row, whole};
use crate::agent::http::alerts::AlertView;
use crate::agent::http::tasks::TaskView;
use crate::output::tame;
use crate::output::time::{self, Stamp};

/// So many of the last runs are marked.
const MARKS: usize = 10;

/// Tasks, and the alerts that are not quiet.
#[derive(Debug, Default)]
pub(super) struct Duties {
    pub(super) tasks: Vec<TaskView>,
    pub(super) alerts: Vec<AlertView>,
}

impl Duties {
    /// How many lines each panel wants, its name included; none if it has nothing to show.
    pub(super) fn lines(&self) -> [u16; 2] {
        let lines = |count: usize| if count == 0 { 0 } else { u16::try_from(count + 1).unwrap_or(u16::MAX) };
        [lines(self.tasks.len()), lines(self.alerts.len())]
    }
}

impl Board {
    pub(super) fn draw_tasks(&self, frame: &mut Frame<'_>, area: Rect) {
        let tasks = &self.duties.tasks;
        if tasks.is_empty() {
            return;
        }
        self.rule(frame, area, &format!("tasks  {}", tasks.len()));
        for (index, task) in tasks.iter().take(usize::from(area.height.saturating_sub(1))).enumerate() {
            frame.render_widget(self.task(task, area.width), row(area, index + 1));
        }
    }

    fn task(&self, task: &TaskView, width: u16) -> Line<'static> {
        let paint = self.paint();
        let style = if task.state == "paused" { paint.warn() } else { paint.faint() };
        let when =
            if task.zone == "UTC" { task.when.clone() } else { format!("{} {}", task.when, task.zone) };
        let mut spans = vec![
            Span::raw("  "),
            Span::styled(fit(&tame(&task.id), (usize::from(width) / 4).clamp(8, 40)), paint.strong()),
            Span::styled(format!(" {:<8}", task.state), style),
            Span::raw(format!("{:<12}", next(task))),
        ];
        let old = task.runs.len().saturating_sub(MARKS);
        spans.extend(task.runs.iter().skip(old).map(|run| self.mark(&run.state)));
        spans.push(Span::styled(format!("  {}", tame(&when)), paint.faint()));
        Line::from(spans)
    }

    /// A mark for each state, as on the page: nothing is told by colour alone.
    fn mark(&self, state: &str) -> Span<'static> {
        let paint = self.paint();
        let (mark, style) = match state {
            "succeeded" => ("●", paint.good()),
            "running" => ("▶", paint.good()),
            "failed" => ("✕", paint.bad()),
            "timed-out" => ("◷", paint.bad()),
            "missed" => ("○", paint.bad()),
            "interrupted" => ("!", paint.warn()),
            "cancelled" => ("■", paint.warn()),
            _ => ("–", paint.faint()),
        };
        Span::styled(mark, style)
    }

    pub(super) fn draw_alerts(&self, frame: &mut Frame<'_>, area: Rect) {
        let alerts = &self.duties.alerts;
        if alerts.is_empty() {
            return;
        }
        self.rule(frame, area, &format!("alerts  {}", alerts.len()));
        for (index, alert) in alerts.iter().take(usize::from(area.height.saturating_sub(1))).enumerate() {
            let line = Line::from(vec![
                Span::raw("  "),
                Span::styled(
                    fit(&tame(&alert.alert), (usize::from(area.width) / 4).clamp(8, 40)),
                    self.paint().strong(),
                ),
                Span::styled(format!(" {:<13}{:<9}", alert.state, alert.severity), self.alarm(alert)),
                Span::raw(tame(&alert.summary)),
            ]);
            frame.render_widget(line, row(area, index + 1));
        }
    }

    fn alarm(&self, alert: &AlertView) -> Style {
        let paint = self.paint();
        match (alert.state.as_str(), alert.severity.as_str()) {
            ("firing", "critical") => paint.bad(),
            ("firing", _) => paint.warn(),
            _ => paint.faint(),
        }
    }
}

/// When it runs next.
fn next(task: &TaskView) -> String {
    let at = task.next.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let Some(at) = at.and_then(|at| u64::try_from(at.as_microsecond()).ok()) else { return "—".to_owned() };
    let Wall(now) = Stamp::now().0;
    match at.checked_sub(now) {
        Some(left) if left > 0 => format!("in {}", time::span(whole(std::time::Duration::from_micros(left)))),
        _ => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::board::tests::{board, drawn};
    use super::*;

    fn duties() -> Duties {
        let totals = json!({ "runs": 3, "failures": 1, "interrupted": 0, "late": 0, "missed": 0, "skipped": 0, "took_ms": 5 });
        let run = |state: &str| {
            json!({ "task": "nightly", "tick": "2030-01-31T12:00:00Z", "to": null, "count": 1, "state": state, "token": 7,
                    "node": "web-1", "started": null, "took_ms": null, "attempts": 1, "exit": null, "why": "", "trigger": null })
        };
        let task = json!({ "id": "nightly", "task": "nightly", "role": "job", "node": null, "when": "30 2 * * *",
            "zone": "Europe/Vienna", "state": "waiting", "next": "2001-01-01T00:00:00Z", "owed": 0, "paused": null,
            "totals": totals, "last": null, "runs": [run("succeeded"), run("failed"), run("skipped")] });
        let alert = json!({ "alert": "no-leader", "state": "firing", "severity": "critical", "since": null, "condition": "x",
            "for": "30s", "summary": "nobody leads job\u{1b}[31m", "total": 1, "instances": [], "notify": [], "told": [],
            "acknowledged": null, "resolved": null, "silenced": null, "silenced_until": null, "last": null,
            "shipped": true, "error": null });
        Duties {
            tasks: vec![serde_json::from_value(task).unwrap()],
            alerts: vec![serde_json::from_value(alert).unwrap()],
        }
    }

    #[test]
    fn tasks_and_alerts_are_on_the_board() {
        let mut board = board(3);
        assert!(!drawn(&board, 80, 24).contains("tasks"), "where there are none, nothing says so");
        board.duties = duties();
        let screen = drawn(&board, 80, 24);
        for part in [
            "tasks  1",
            "nightly",
            "waiting",
            "now",
            "●✕–",
            "30 2 * * * Europe",
            "alerts  1",
            "firing",
            "critical",
            "nobody leads job",
        ] {
            assert!(screen.contains(part), "{part:?} is not on the board:\n{screen}");
        }
        assert!(!screen.contains('\u{1b}'), "what others say moves no cursor");
        for (width, height) in [(1, 1), (20, 5), (40, 12)] {
            drawn(&board, width, height);
        }
    }
}
