//! Tasks on the board: what state each is in, how it last went and where, when it runs next, and its last runs.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::board::{fit, list_name, row, rule, shown_of, stepped, whole};
use crate::output::paint::Paint;
use crate::output::sanitize;
use crate::output::time::{self, Stamp};
use tenure_agent::model::{TaskRun, TaskStatus};

/// The colour of a node.
type NodeStyle<'a> = &'a dyn Fn(&str) -> Style;

/// The tasks that are there, and which of them is chosen.
#[derive(Debug, Default)]
pub(super) struct TaskList {
    seen: Vec<TaskStatus>,
    /// By the name of its ledger.
    chosen: Option<String>,
}

impl TaskList {
    pub(super) fn update(&mut self, tasks: Vec<TaskStatus>) {
        self.seen = tasks;
    }

    pub(super) fn step(&mut self, rows: i64, search: &str) {
        let wanted = self.wanted(search);
        let next = stepped(self.at(&wanted), rows, wanted.len());
        self.chosen = wanted.get(next).map(|task| task.id.clone());
    }

    /// How many rows a panel with all of them has; none where there are none.
    pub(super) fn rows(&self) -> usize {
        if self.seen.is_empty() { 0 } else { self.seen.len() + 1 }
    }

    /// Those that are searched for: by name, by who runs them, or by state.
    pub(super) fn wanted(&self, search: &str) -> Vec<&TaskStatus> {
        let text = search.to_lowercase();
        let has = |name: &str| name.to_lowercase().contains(&text);
        let fits = |task: &&TaskStatus| has(&task.id) || has(runs_on(task)) || task.state == text;
        self.seen.iter().filter(fits).collect()
    }

    fn at(&self, wanted: &[&TaskStatus]) -> usize {
        wanted.iter().position(|task| Some(&task.id) == self.chosen.as_ref()).unwrap_or(0)
    }

    /// How many there are, in each state.
    pub(super) fn counts(&self, paint: Paint) -> Line<'static> {
        let mut spans = vec![Span::raw(format!("{} tasks: ", self.seen.len()))];
        for state in ["running", "waiting", "paused", "retired"] {
            let count = self.seen.iter().filter(|task| task.state == state).count();
            if count > 0 {
                spans.push(Span::styled(format!("{count} {state}  "), state_style(paint, state)));
            }
        }
        let failed = self.seen.iter().filter(|task| last_state(task).is_some_and(is_bad)).count();
        if failed > 0 {
            spans.push(Span::styled(format!("{failed} failed last"), paint.bad()));
        }
        Line::from(spans)
    }

    /// The list.
    pub(super) fn draw(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        paint: Paint,
        node: NodeStyle<'_>,
        search: &str,
    ) {
        let wanted = self.wanted(search);
        let at = self.at(&wanted);
        let (first, room) = shown_of(area, at, wanted.len());
        rule(frame, area, paint, &list_name("tasks", search, at, wanted.len(), self.seen.len()));
        for (index, task) in wanted.iter().enumerate().skip(first).take(room) {
            let line = self.line(task, index == at, area.width, paint, node);
            frame.render_widget(line, row(area, index - first + 1));
        }
        if wanted.is_empty() {
            let text = if self.seen.is_empty() { "none (see `tenure help task`)" } else { "none" };
            frame.render_widget(Line::styled(text, paint.faint()), row(area, 1));
        }
    }

    fn line(
        &self,
        task: &TaskStatus,
        chosen: bool,
        width: u16,
        paint: Paint,
        node: NodeStyle<'_>,
    ) -> Line<'static> {
        let wide = usize::from(width);
        let place = runs_on(task);
        let last = task.last.as_ref();
        let (how, tick) = match last {
            Some(run) => (run.state.clone(), ago(run.to.as_ref().unwrap_or(&run.tick))),
            None => ("never ran".to_owned(), String::new()),
        };
        let next = task.next.as_deref().map_or_else(String::new, until);
        vec![
            Span::raw(if chosen { "▶ " } else { "  " }),
            Span::styled(fit(&sanitize(&task.id), (wide / 4).clamp(8, 40)), paint.strong()),
            Span::styled(format!(" {:<7} ", task.state), state_style(paint, &task.state)),
            Span::styled(fit(place, (wide / 7).clamp(8, 24)), node(place)),
            Span::styled(format!(" {how:<11}"), run_style(paint, &how)),
            Span::raw(format!(" {tick:<9} ")),
            Span::styled(next, paint.faint()),
        ]
        .into()
    }

    /// How the chosen one went, the newest first.
    pub(super) fn draw_runs(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        paint: Paint,
        node: NodeStyle<'_>,
        search: &str,
    ) {
        let wanted = self.wanted(search);
        let Some(task) = wanted.get(self.at(&wanted)) else { return };
        let zone = if task.zone == "UTC" { String::new() } else { format!(" {}", task.zone) };
        rule(frame, area, paint, &format!("runs of {}, {}{zone}", sanitize(&task.id), sanitize(&task.when)));
        let room = usize::from(area.height.saturating_sub(1));
        for (index, run) in task.runs.iter().rev().take(room).enumerate() {
            frame.render_widget(run_line(run, paint, node), row(area, index + 1));
        }
        if task.runs.is_empty() {
            frame.render_widget(Line::styled("none yet", paint.faint()), row(area, 1));
        }
    }
}

/// Who runs it, or ran it last; before that, whose leader will.
fn runs_on(task: &TaskStatus) -> &str {
    let last = task.runs.iter().rev().find(|run| run.started.is_some()).map(|run| &run.node);
    task.node.as_ref().or(last).or(task.role.as_ref()).map_or("-", String::as_str)
}

fn run_line(run: &TaskRun, paint: Paint, node: NodeStyle<'_>) -> Line<'static> {
    let tick = match &run.to {
        Some(to) => format!("{} … {} ({}) ", time::clock_of(&run.tick), time::clock_of(to), run.count),
        None => format!("{} ", time::clock_of(&run.tick)),
    };
    let took = run.took_ms.map(|ms| format!(", took {}", time::span(Duration::from_millis(ms))));
    let why = if run.why.is_empty() { String::new() } else { format!(": {}", sanitize(&run.why)) };
    vec![
        Span::styled(tick, paint.faint()),
        Span::styled(run.state.clone(), run_style(paint, &run.state)),
        Span::raw(" on "),
        Span::styled(run.node.clone(), node(&run.node)),
        Span::raw(format!(", token {}{}{why}", run.token, took.unwrap_or_default())),
    ]
    .into()
}

/// How long ago that was.
fn ago(stamp: &str) -> String {
    format!("{} ago", time::span(gap(stamp).0))
}

/// How long until the next tick.
fn until(stamp: &str) -> String {
    let ahead = gap(stamp).1;
    if ahead.is_zero() { "due".to_owned() } else { format!("next in {}", time::span(ahead)) }
}

/// How far a time lies behind us, or ahead.
fn gap(stamp: &str) -> (Duration, Duration) {
    let then = time::wall_of(stamp).unwrap_or_default().as_micros();
    let now = Stamp::now().0.as_micros();
    let span = |from: u64, to: u64| whole(Duration::from_micros(to.saturating_sub(from)));
    (span(then, now), span(now, then))
}

fn last_state(task: &TaskStatus) -> Option<&str> {
    task.last.as_ref().map(|run| run.state.as_str())
}

fn is_bad(state: &str) -> bool {
    ["failed", "timed-out"].contains(&state)
}

fn state_style(paint: Paint, state: &str) -> Style {
    match state {
        "running" => paint.good(),
        "paused" => paint.warn(),
        "retired" => paint.faint(),
        _ => Style::new(),
    }
}

fn run_style(paint: Paint, state: &str) -> Style {
    match state {
        "running" | "succeeded" => paint.good(),
        state if is_bad(state) => paint.bad(),
        "cancelled" | "interrupted" | "missed" => paint.warn(),
        _ => paint.faint(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A task that ran an hour ago, on that node.
    pub(in super::super) fn a_task(name: &str, node: &str) -> TaskStatus {
        let run = json!({
            "task": name, "tick": "2030-01-31T12:00:00.000Z", "to": null, "count": 1, "state": "succeeded", "token": 7,
            "node": node, "started": "2030-01-31T12:00:00.001Z", "took_ms": 1200, "attempts": 1, "exit": 0, "why": "",
            "trigger": null,
        });
        let totals = json!({
            "runs": 1, "failures": 0, "interrupted": 0, "late": 0, "missed": 0, "skipped": 0, "took_ms": 1200,
        });
        let task = json!({
            "id": name, "task": name, "role": "scheduler", "node": null, "when": "every 1h", "zone": "UTC",
            "state": "waiting", "next": "2030-01-31T13:00:00.000Z", "owed": 0, "paused": null, "totals": totals,
            "last": run, "runs": [run],
        });
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn the_node_that_ran_it_last_is_shown_and_before_that_the_leader_that_will() {
        let mut task = a_task("t", "web-1");
        assert_eq!(runs_on(&task), "web-1");
        task.runs.clear();
        assert_eq!(runs_on(&task), "scheduler");
        task.node = Some("web-2".to_owned());
        assert_eq!(runs_on(&task), "web-2");
    }
}
