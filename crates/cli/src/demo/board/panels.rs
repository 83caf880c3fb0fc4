//! The parts of the board, from top to bottom.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::cluster::{Cause, DemoNode, DemoTenure, FailOver};
use super::super::summary::span;
use super::super::timeline::Window;
use super::super::{SHARDS, timing};
use super::{BoardView, WINDOW};

/// As wide as the longest thing in front of a lane.
const LABEL: u16 = 8;

/// How wide the bar of the lease is.
const BAR: usize = 16;

pub(super) fn title(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    let seconds = view.now.saturating_sub(view.cluster.began) / 1_000_000_000;
    let clock = format!("{}:{:02}", seconds / 60, seconds % 60);
    let what = format!(
        "  {} real processes, {} roles, one SQLite file, ttl {} s",
        view.cluster.nodes.len(),
        SHARDS + 1,
        timing().ttl.as_secs()
    );
    let used = "tenure demo".len() + what.chars().count() + clock.len();
    let gap = usize::from(area.width).saturating_sub(used);
    let line = Line::from(vec![
        Span::styled("tenure demo", view.paint().strong()),
        Span::styled(what, view.paint().faint()),
        Span::raw(" ".repeat(gap)),
        Span::raw(clock),
    ]);
    frame.render_widget(line, area);
}

pub(super) fn headline(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    let text = format!("▶ {}", view.cluster.headline);
    frame.render_widget(Line::styled(text, view.paint().strong()), row(area, 0));
}

pub(super) fn leader(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    rule(frame, area, view, &format!("role {}", view.cluster.main_role()));
    let line = match view.cluster.holder(view.cluster.main_role()) {
        Some(tenure) => held(view, tenure),
        None => Line::styled("no leader", view.paint().bad()),
    };
    frame.render_widget(line, row(area, 1));
}

/// Who holds the role, and how long it may rely on that if nothing more is heard.
fn held<'a>(view: &BoardView<'_>, tenure: &DemoTenure) -> Line<'a> {
    let (paint, frozen) = (view.paint(), tenure.ended.is_some());
    let left = Duration::from_nanos(view.cluster.lease_until.saturating_sub(view.now));
    let share = (left.as_secs_f64() / timing().ttl.as_secs_f64()).clamp(0.0, 1.0);
    let full = (share * BAR as f64).round() as usize;
    let style = if frozen { paint.cold() } else { paint.node(view.index(&tenure.node)) };
    let who = if frozen { "held by" } else { "led by" };
    let mut spans = vec![
        Span::raw(format!("{who} ")),
        Span::styled(tenure.node.to_string(), style.patch(paint.strong())),
        Span::raw(" · token "),
        Span::styled(tenure.token.to_string(), paint.strong()),
        Span::raw(" · lease "),
        Span::styled("█".repeat(full), style),
        Span::styled("░".repeat(BAR - full), paint.faint()),
        Span::raw(format!(" {:.1} s", left.as_secs_f64())),
    ];
    if frozen {
        let why = if left.is_zero() { " · others take over" } else { " · others must wait" };
        spans.push(Span::styled(why, paint.cold()));
    }
    Line::from(spans)
}

pub(super) fn members(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    rule(frame, area, view, "nodes");
    for (index, node_state) in view.cluster.nodes.iter().enumerate() {
        frame.render_widget(member(view, index, node_state), row(area, index + 1));
    }
}

fn member<'a>(view: &BoardView<'_>, index: usize, node_state: &DemoNode) -> Line<'a> {
    let paint = view.paint();
    let mut spans = vec![
        Span::styled(format!("{:<7}", node_state.name.as_str()), paint.node(index).patch(paint.strong())),
        Span::styled(format!(" {:>7}  ", node_state.pid), paint.faint()),
        paint.health(node_state.health()),
        Span::raw("  "),
    ];
    let held = view.cluster.held_by(&node_state.name);
    for role in &held {
        let main = *role == view.cluster.main_role();
        let style = if main { paint.node(index).patch(paint.strong()) } else { Style::new() };
        spans.push(Span::styled(format!("{role}  "), style));
    }
    if held.is_empty() {
        spans.push(Span::styled("leads nothing", paint.faint()));
    }
    Line::from(spans)
}

pub(super) fn timeline(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    rule(frame, area, view, &format!("who led {}", view.cluster.main_role()));
    let width = usize::from(area.width.saturating_sub(LABEL));
    let window = Window::until(view.now, WINDOW, width);
    let paint = view.paint();
    for (index, node_state) in view.cluster.nodes.iter().enumerate() {
        let label = format!("{:<1$}", node_state.name.as_str(), usize::from(LABEL));
        let mut spans = vec![Span::styled(label, paint.node(index))];
        let cells = window.lane(view.cluster, &node_state.name).into_iter();
        spans.extend(cells.map(|cell| Span::styled(cell.symbol().to_string(), paint.cell(cell, index))));
        frame.render_widget(Line::from(spans), row(area, index + 1));
    }
    let axis = format!("{}60 s ago", " ".repeat(usize::from(LABEL)));
    let legend = "█ leads  ─ stands by  × killed  ‖ frozen  ▒ still holds it";
    let gap = usize::from(area.width).saturating_sub(axis.len() + legend.chars().count());
    let line = Line::styled(format!("{axis}{}{legend}", " ".repeat(gap)), paint.faint());
    frame.render_widget(line, row(area, view.cluster.nodes.len() + 1));
}

pub(super) fn fail_overs(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    rule(frame, area, view, "latest fail-overs: time without a leader at work");
    let room = usize::from(area.height.saturating_sub(1));
    for (index, over) in view.cluster.fail_overs().iter().rev().take(room).enumerate() {
        frame.render_widget(fail_over(view, over), row(area, index + 1));
    }
}

fn fail_over<'a>(view: &BoardView<'_>, over: &FailOver) -> Line<'a> {
    let paint = view.paint();
    let (what, style) = match over.cause {
        Cause::Crash => ("crash".to_owned(), paint.bad()),
        Cause::Freeze => ("freeze".to_owned(), paint.cold()),
        Cause::HandOver => ("hand-over".to_owned(), paint.good()),
        Cause::Other(reason) => (reason.as_str().to_owned(), paint.bad()),
    };
    let ago = Duration::from_nanos(view.now.saturating_sub(over.at)).as_secs();
    Line::from(vec![
        Span::styled(format!("{ago:>4} s ago  "), paint.faint()),
        Span::styled(format!("{what:<10}"), style),
        Span::styled(over.from.to_string(), paint.node(view.index(&over.from))),
        Span::raw(" → "),
        Span::styled(over.to.to_string(), paint.node(view.index(&over.to))),
        Span::styled(format!("  token {:<5}", over.token.to_string()), paint.faint()),
        Span::styled(format!("{:>8}", span(over.gap)), paint.strong()),
    ])
}

pub(super) fn figures(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    rule(frame, area, view, "so far");
    let paint = view.paint();
    for (index, (kind, figures, bound)) in view.summary.kinds().into_iter().enumerate() {
        let told = figures.map_or("none yet".to_owned(), |figures| figures.to_string());
        let bound = bound.map_or(String::new(), |bound| format!("  (promised: at most {})", span(bound)));
        let line = Line::from(vec![
            Span::raw(format!("{kind:<12}")),
            Span::styled(told, paint.strong()),
            Span::styled(bound, paint.faint()),
        ]);
        frame.render_widget(line, row(area, index + 1));
    }
    let style = if view.summary.is_good() { paint.good() } else { paint.bad() };
    let line = Line::from(vec![
        Span::styled(view.summary.at_once(), style),
        Span::styled(format!("  (all roles, {} notes)", view.summary.acts()), paint.faint()),
    ]);
    frame.render_widget(line, row(area, 4));
}

pub(super) fn keys(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>) {
    let rest = if view.resting { "attack again" } else { "stop attacking" };
    let keys = [("k", "kill the leader"), ("f", "freeze it"), ("t", "hand over"), ("p", rest), ("q", "quit")];
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled(key, view.paint().strong()));
        spans.push(Span::styled(format!(" {what}   "), view.paint().faint()));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), row(area, 0));
}

/// The line above a panel, with its name.
fn rule(frame: &mut Frame<'_>, area: Rect, view: &BoardView<'_>, name: &str) {
    let rest = usize::from(area.width).saturating_sub(name.chars().count() + 4);
    let line = Line::styled(format!("── {name} {}", "─".repeat(rest)), view.paint().faint());
    frame.render_widget(line, row(area, 0));
}

/// One line of a panel; empty if it has not that many.
fn row(area: Rect, index: usize) -> Rect {
    let index = u16::try_from(index).unwrap_or(u16::MAX);
    let height = u16::from(index < area.height);
    Rect { y: area.y.saturating_add(index.min(area.height)), height, ..area }
}
