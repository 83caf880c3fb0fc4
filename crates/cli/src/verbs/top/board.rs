//! The board: roles or tasks, nodes, alerts, the past of what is chosen, and what happens. It only draws; 80 by 24 is
//! enough, more is used.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use tenure::history::TenureRecord;
use tenure::operator::{ClusterChange, ClusterSnapshot, NodeReport, NodeState, RoleReport, RoleState};
use tenure::{Name, Timestamp};

use super::action::{Answer, Question};
use super::alerts::AlertList;
use super::tasks::TaskList;
use super::{KeyCommand, TopEvent, TopFocus};
use crate::output::paint::Paint;
use crate::output::sanitize;
use crate::output::time::{self, Stamp};
use crate::verbs::watch::sentence;

/// A lower window shows only the list.
const LEAST_HEIGHT: u16 = 14;
/// So many changes are kept.
const KEPT: usize = 100;
/// How long what came of something is shown.
const MESSAGE_SHOWN: Duration = Duration::from_secs(8);
/// How wide the bar of a lease is.
const BAR: usize = 8;
/// The windows of the timeline.
const WINDOWS: [u64; 8] = [10, 60, 300, 900, 3600, 21_600, 86_400, 604_800];

/// What is shown.
pub(super) struct Board {
    place: String,
    snapshot: ClusterSnapshot,
    taken: Instant,
    /// What was seen last, and when: what is shown is what is still known of it.
    seen: (ClusterSnapshot, Instant),
    /// What the store or the agent says instead, since when.
    lost: Option<(Instant, String)>,
    changes: VecDeque<(Timestamp, ClusterChange)>,
    chosen: Option<Name>,
    past: Option<(Name, Vec<TenureRecord>)>,
    tasks: TaskList,
    alerts: AlertList,
    /// Tasks are shown where roles were.
    on_tasks: bool,
    /// Everything is shown at once, on a screen as tall as that takes.
    pub(super) whole: bool,
    search: String,
    searching: bool,
    /// What the viewer is asked before something is done.
    asked: Option<Question>,
    /// What the viewer said yes to, for the caller to do.
    pub(super) answered: Option<Question>,
    /// What came of it, and when that was said.
    said: Option<(Instant, String)>,
    window: usize,
    pub(super) colour: bool,
}

impl Board {
    pub(super) fn new(place: String) -> Self {
        Self {
            place,
            snapshot: ClusterSnapshot::default(),
            taken: Instant::now(),
            seen: (ClusterSnapshot::default(), Instant::now()),
            lost: None,
            changes: VecDeque::new(),
            chosen: None,
            past: None,
            tasks: TaskList::default(),
            alerts: AlertList::default(),
            on_tasks: false,
            whole: false,
            search: String::new(),
            searching: false,
            asked: None,
            answered: None,
            said: None,
            window: 3,
            colour: false,
        }
    }

    pub(super) fn update(&mut self, snapshot: ClusterSnapshot) {
        self.seen = (snapshot.clone(), Instant::now());
        self.snapshot = snapshot;
        self.taken = Instant::now();
        self.lost = None;
    }

    /// What cannot be read any more grows old.
    pub(super) fn age(&mut self) {
        if self.lost.is_some() {
            self.snapshot = self.seen.0.aged(self.seen.1.elapsed());
            self.taken = Instant::now();
        }
    }

    pub(super) fn past(&mut self, role: &Name, tenures: Vec<TenureRecord>) {
        self.past = Some((role.clone(), tenures));
    }

    pub(super) fn apply(&mut self, news: TopEvent) {
        match news {
            TopEvent::Seen(snapshot) => self.update(snapshot),
            TopEvent::Changed(changes) => {
                self.changes.extend(changes.into_iter().map(|change| (Stamp::now().0, change)));
                let old = self.changes.len().saturating_sub(KEPT);
                self.changes.drain(..old);
            }
            TopEvent::Past(role, tenures) => self.past = Some((role, tenures)),
            TopEvent::Tasks(tasks) => self.tasks.update(tasks),
            TopEvent::Alerts(alerts) => self.alerts.update(alerts),
            TopEvent::Done(text) => self.show_message(text),
            TopEvent::Lost(why) => {
                let since = self.lost.take().map_or_else(Instant::now, |(since, _)| since);
                self.lost = Some((since, why));
            }
        }
    }

    /// Does what the viewer wants; false if that is to leave.
    pub(super) fn handle_key(&mut self, key: KeyCommand) -> bool {
        if let Some(question) = &mut self.asked {
            match question.handle_key(key) {
                Answer::NotYet => {}
                Answer::No => self.asked = None,
                Answer::Yes => {
                    self.answered = self.asked.take();
                    self.show_message("asking…".to_owned());
                }
            }
            return true;
        }
        match key {
            KeyCommand::Quit => return false,
            KeyCommand::Back if self.searching || !self.search.is_empty() => {
                self.searching = false;
                self.search.clear();
            }
            KeyCommand::Back => return false,
            KeyCommand::Move(rows) => self.step(rows),
            KeyCommand::View => self.turn(),
            KeyCommand::Erase => _ = self.search.pop(),
            KeyCommand::Enter => self.searching = false,
            KeyCommand::Typed(c) if self.searching => self.search.push(c),
            KeyCommand::Typed('q') => return false,
            KeyCommand::Typed('/') => self.searching = true,
            KeyCommand::Typed('t') => self.turn(),
            KeyCommand::Typed(key @ ('S' | 'T' | 'P')) if !self.on_tasks => self.ask(key),
            KeyCommand::Typed('j') => self.step(1),
            KeyCommand::Typed('k') => self.step(-1),
            KeyCommand::Typed('+' | '=') => self.window = self.window.saturating_sub(1),
            KeyCommand::Typed('-') => self.window = (self.window + 1).min(WINDOWS.len() - 1),
            KeyCommand::Typed(_) => {}
        }
        true
    }

    /// Asks whether something is to be done to the chosen role.
    fn ask(&mut self, key: char) {
        let roles = self.roles();
        let Some(role) = roles.get(self.at(&roles)) else { return };
        match Question::of(key, role) {
            Ok(question) => self.asked = Some(question),
            Err(why) => self.show_message(why),
        }
    }

    fn show_message(&mut self, text: String) {
        self.said = Some((Instant::now(), text));
    }

    /// From roles to tasks, and back.
    fn turn(&mut self) {
        self.on_tasks = !self.on_tasks;
        self.searching = false;
        self.search.clear();
    }

    fn step(&mut self, rows: i64) {
        if self.on_tasks {
            return self.tasks.step(rows, &self.search);
        }
        let roles = self.roles();
        let next = stepped(self.at(&roles), rows, roles.len());
        self.chosen = roles.get(next).map(|role| role.role.clone());
    }

    /// The roles that are searched for.
    fn roles(&self) -> Vec<&RoleReport> {
        let text = self.search.to_lowercase();
        let has = |name: &str| name.to_lowercase().contains(&text);
        let wanted = |role: &&RoleReport| {
            text.is_empty()
                || has(role.role.as_str())
                || role.leader.as_ref().is_some_and(|leader| has(leader.as_str()))
                || role.state.to_string() == text
        };
        self.snapshot.roles.iter().filter(wanted).collect()
    }

    fn at(&self, roles: &[&RoleReport]) -> usize {
        let chosen = self.chosen.as_ref();
        roles.iter().position(|role| Some(&role.role) == chosen).unwrap_or(0)
    }

    /// The role whose past is shown.
    pub(super) fn chosen(&self) -> Option<Name> {
        let roles = self.roles();
        roles.get(self.at(&roles)).map(|role| role.role.clone())
    }

    /// What has to be read for what is shown.
    pub(super) fn focus(&self) -> TopFocus {
        if self.on_tasks { TopFocus::Tasks } else { TopFocus::Role(self.chosen()) }
    }

    /// How tall it must be for everything.
    pub(super) fn tall(&self) -> u16 {
        let duties = self.tasks.rows() + self.alerts.rows();
        let rows = self.snapshot.roles.len() + self.snapshot.nodes.len() + duties + 11;
        u16::try_from(rows.min(2000)).unwrap_or(2000)
    }

    fn paint(&self) -> Paint {
        Paint { colour: self.colour }
    }

    /// Which of the nodes that is, for its colour.
    fn index(&self, node: &Name) -> usize {
        self.snapshot.nodes.iter().position(|report| report.node == *node).unwrap_or(0)
    }

    /// Draws everything.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let area = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
        if area.height < LEAST_HEIGHT && !self.whole {
            return self.draw_list_only(frame, area);
        }
        let short = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX);
        let nodes = short(self.snapshot.nodes.len() + 1).min(area.height / 4 + 2);
        let listed = if self.on_tasks { self.tasks.wanted(&self.search).len() } else { self.roles().len() };
        let alerts = short(self.alerts.rows());
        let rows = [
            Constraint::Length(2),
            Constraint::Max(short(listed + 1).max(2)),
            Constraint::Length(nodes),
            Constraint::Length(if self.whole { alerts } else { alerts.min(area.height / 6 + 1) }),
            Constraint::Length(if self.whole { short(self.tasks.rows()) } else { 0 }),
            Constraint::Length(if self.on_tasks { (area.height / 3).max(4) } else { 4 }),
            Constraint::Min(2),
            Constraint::Length(1),
        ];
        let [title, list, nodes, alerts, tasks, past, changes, keys] = Layout::vertical(rows).areas(area);
        self.draw_title(frame, title);
        self.draw_nodes(frame, nodes);
        self.alerts.draw(frame, alerts, self.paint());
        let node = |node: &str| self.node_style(node);
        if self.on_tasks {
            self.tasks.draw(frame, list, self.paint(), &node, &self.search);
            self.tasks.draw_runs(frame, past, self.paint(), &node, &self.search);
        } else {
            self.draw_roles(frame, list);
            self.draw_past(frame, past);
        }
        if tasks.height > 0 {
            self.tasks.draw(frame, tasks, self.paint(), &node, "");
        }
        self.draw_changes(frame, changes);
        self.draw_keys(frame, keys);
    }

    /// A window without room for the rest shows the list: it is what people look for.
    fn draw_list_only(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = [Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)];
        let [title, list, keys] = Layout::vertical(rows).areas(area);
        self.draw_title(frame, title);
        if self.on_tasks {
            self.tasks.draw(frame, list, self.paint(), &|node| self.node_style(node), &self.search);
        } else {
            self.draw_roles(frame, list);
        }
        self.draw_keys(frame, keys);
    }

    /// The colour of a node that has one.
    fn node_style(&self, node: &str) -> Style {
        let at = self.snapshot.nodes.iter().position(|report| report.node.as_str() == node);
        at.map_or(self.paint().faint(), |at| self.paint().node(at))
    }

    fn draw_title(&self, frame: &mut Frame<'_>, area: Rect) {
        let paint = self.paint();
        let place = format!("  {}  {}", sanitize(&self.place), time::clock(Stamp::now().0));
        let name = Span::styled("tenure top", paint.strong());
        frame.render_widget(Line::from(vec![name, Span::styled(place, paint.faint())]), row(area, 0));
        let line = match &self.lost {
            Some((since, why)) => {
                let text = format!(
                    "DISCONNECTED for {}: {}; the data is stale",
                    time::span(whole(since.elapsed())),
                    sanitize(why)
                );
                Line::styled(text, paint.bad())
            }
            None if self.on_tasks => self.tasks.counts(self.paint()),
            None => self.counts(),
        };
        frame.render_widget(line, row(area, 1));
    }

    fn counts(&self) -> Line<'static> {
        let paint = self.paint();
        let of = |state| self.snapshot.roles.iter().filter(|role| role.state == state).count();
        let mut spans = vec![Span::raw(format!("{} roles: ", self.snapshot.roles.len()))];
        for state in RoleState::ALL {
            let count = of(state);
            if count > 0 {
                spans.push(Span::styled(format!("{count} {state}  "), role_style(paint, state)));
            }
        }
        let live = self.snapshot.nodes.iter().filter(|node| node.state == NodeState::Live).count();
        spans.push(Span::raw(format!("{live} of {} nodes live", self.snapshot.nodes.len())));
        Line::from(spans)
    }

    fn draw_roles(&self, frame: &mut Frame<'_>, area: Rect) {
        let roles = self.roles();
        let at = self.at(&roles);
        let (first, room) = shown_of(area, at, roles.len());
        let name = list_name("roles", &self.search, at, roles.len(), self.snapshot.roles.len());
        rule(frame, area, self.paint(), &name);
        for (index, role) in roles.iter().enumerate().skip(first).take(room) {
            frame.render_widget(self.role(role, index == at, area.width), row(area, index - first + 1));
        }
        if roles.is_empty() {
            frame.render_widget(Line::styled("none", self.paint().faint()), row(area, 1));
        }
    }

    fn role(&self, role: &RoleReport, chosen: bool, width: u16) -> Line<'static> {
        let paint = self.paint();
        let wide = usize::from(width);
        let name = fit(role.role.as_str(), (wide / 4).clamp(8, 40));
        let unknown = role.state == RoleState::Unknown;
        let leader = match (&role.leader, &role.last_leader) {
            (Some(leader), _) => leader.to_string(),
            (None, Some(last)) => format!("({last})"),
            (None, None) if unknown => "unknown".to_owned(),
            (None, None) => "no leader".to_owned(),
        };
        let style = role.leader.as_ref().map_or(paint.faint(), |leader| paint.node(self.index(leader)));
        let led_for = role
            .since
            .filter(|_| !unknown)
            .map(|since| time::span(whole(since_then(since))))
            .unwrap_or_default();
        let next: Vec<&str> = role.candidates.iter().map(Name::as_str).collect();
        let mut spans = vec![
            Span::raw(if chosen { "▶ " } else { "  " }),
            Span::styled(name, paint.strong()),
            Span::styled(format!(" {:<8}", role.state.to_string()), role_style(paint, role.state)),
            Span::styled(fit(&leader, (wide / 7).clamp(8, 24)), style),
            Span::raw(format!(" {:>6} {:>8} ", role.token.to_string(), led_for)),
        ];
        let node = role.leader.as_ref().and_then(|leader| self.snapshot.node(leader));
        spans.extend(self.lease(node));
        spans.push(Span::styled(format!(" {}", next.join(", ")), paint.faint()));
        Line::from(spans)
    }

    /// How much of a node's lease is left.
    fn lease(&self, node: Option<&NodeReport>) -> Vec<Span<'static>> {
        let paint = self.paint();
        let known = node.and_then(|node| Some((node.ttl_ms?, node.last_beat_ms_ago?)));
        let Some((ttl, ago)) = known.filter(|(ttl, _)| *ttl > 0) else {
            return vec![Span::styled(format!("{:<1$}", "", BAR + 6), paint.faint())];
        };
        let gone = ago + u64::try_from(self.taken.elapsed().as_millis()).unwrap_or(u64::MAX);
        let left = ttl.saturating_sub(gone);
        let full = usize::try_from(left * BAR as u64 / ttl).unwrap_or(BAR).min(BAR);
        let style = if left * 5 < ttl { paint.bad() } else { paint.good() };
        vec![
            Span::styled("█".repeat(full), style),
            Span::styled("░".repeat(BAR - full), paint.faint()),
            Span::raw(format!(" {:>4.1}s", left as f64 / 1000.0)),
        ]
    }

    fn draw_nodes(&self, frame: &mut Frame<'_>, area: Rect) {
        rule(frame, area, self.paint(), &format!("nodes  {}", self.snapshot.nodes.len()));
        let room = usize::from(area.height.saturating_sub(1));
        for (index, node) in self.snapshot.nodes.iter().take(room).enumerate() {
            frame.render_widget(self.node(index, node, area.width), row(area, index + 1));
        }
    }

    fn node(&self, index: usize, node: &NodeReport, width: u16) -> Line<'static> {
        let paint = self.paint();
        let (state, style) = match node.state {
            NodeState::Live if node.drained.is_some() => ("drained".to_owned(), paint.warn()),
            NodeState::Live => ("live".to_owned(), paint.good()),
            NodeState::Silent | NodeState::Unknown => (node.state.to_string(), paint.bad()),
            other => (other.to_string(), paint.faint()),
        };
        let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut spans = vec![
            Span::raw("  "),
            Span::styled(fit(node.node.as_str(), (usize::from(width) / 4).clamp(8, 40)), paint.node(index)),
            Span::styled(format!(" {state:<9}"), style),
        ];
        spans.extend(self.lease(Some(node)));
        let counts = format!("  leads {:<6} candidate {:<6} ", node.roles.len(), node.candidacies.len());
        spans.push(Span::raw(counts));
        spans.push(Span::styled(sanitize(&labels.join(" ")), paint.faint()));
        Line::from(spans)
    }

    fn draw_past(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(role) = self.chosen() else { return };
        let paint = self.paint();
        let window = Duration::from_secs(WINDOWS[self.window]);
        rule(frame, area, self.paint(), &format!("leaders of {role}, the last {}", time::span(window)));
        let Some((of, tenures)) = &self.past else { return };
        if *of != role {
            return;
        }
        let cells = lane(tenures, Stamp::now().0, window, usize::from(area.width));
        let span = |cell: &Option<Name>| match cell {
            Some(node) => Span::styled("█", paint.node(self.index(node))),
            None => Span::styled("·", paint.bad()),
        };
        frame.render_widget(Line::from(cells.iter().map(span).collect::<Vec<_>>()), row(area, 1));
        let words = |past: &TenureRecord| {
            let end = past.ended.map_or("goes on".to_owned(), |ended| {
                let held = Duration::from_micros(ended.as_micros().saturating_sub(past.began.as_micros()));
                let why = past.reason.map_or("", |reason| reason.as_str());
                format!("led for {} ({why})", time::span(held))
            });
            format!("{} {} token {}, {end}", time::clock(past.began), past.node, past.token)
        };
        for (index, past) in tenures.iter().rev().take(2).enumerate() {
            frame.render_widget(Line::styled(words(past), paint.faint()), row(area, index + 2));
        }
    }

    fn draw_changes(&self, frame: &mut Frame<'_>, area: Rect) {
        rule(frame, area, self.paint(), "what happens");
        let paint = self.paint();
        let room = usize::from(area.height.saturating_sub(1));
        for (index, (at, change)) in self.changes.iter().rev().take(room).enumerate() {
            let (subject, _, what) = sentence(change);
            let line = Line::from(vec![
                Span::styled(format!("{} ", time::clock_millis(*at)), paint.faint()),
                Span::styled(sanitize(&subject), paint.strong()),
                Span::raw(format!("  {}", sanitize(&what))),
            ]);
            frame.render_widget(line, row(area, index + 1));
        }
        if self.changes.is_empty() {
            frame.render_widget(Line::styled("no events yet", paint.faint()), row(area, 1));
        }
    }

    fn draw_keys(&self, frame: &mut Frame<'_>, area: Rect) {
        let paint = self.paint();
        if self.searching {
            return frame
                .render_widget(Line::styled(format!("/{}█", self.search), paint.strong()), row(area, 0));
        }
        if let Some(question) = &self.asked {
            return frame.render_widget(Line::styled(question.text(), paint.strong()), row(area, 0));
        }
        if let Some((_, text)) = self.said.as_ref().filter(|(at, _)| at.elapsed() < MESSAGE_SHOWN) {
            return frame.render_widget(Line::styled(sanitize(text), paint.strong()), row(area, 0));
        }
        let turn = if self.on_tasks { ("t", "roles") } else { ("t", "tasks") };
        let of_roles = [("+-", "zoom"), ("S", "step down"), ("T", "transfer"), ("P", "pause")];
        let of_roles = of_roles.into_iter().filter(|_| !self.on_tasks);
        let keys = [("↑↓", "move"), ("/", "search")].into_iter().chain(of_roles).chain([turn, ("q", "quit")]);
        let spans = keys.flat_map(|(key, what)| {
            [Span::styled(key, paint.strong()), Span::styled(format!(" {what}  "), paint.faint())]
        });
        frame.render_widget(Line::from(spans.collect::<Vec<_>>()), row(area, 0));
    }
}

/// Who led in each slice of a window that ends now; none where no node did. A tenure that was too short for a slice has
/// it all the same, if no other node led at its end.
fn lane(tenures: &[TenureRecord], now: Timestamp, window: Duration, cells: usize) -> Vec<Option<Name>> {
    let length = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    let from = now.as_micros().saturating_sub(length);
    let slice = (length / cells.max(1) as u64).max(1);
    let end = |index: usize| {
        let next = tenures.get(index + 1).map(|next| next.began.as_micros());
        let over = if tenures[index].reason.is_some() { tenures[index].began.as_micros() } else { u64::MAX };
        tenures[index].ended.map(tenure::Timestamp::as_micros).or(next).unwrap_or(over)
    };
    let of = |cell: usize| {
        let (first, last) = (from + cell as u64 * slice, from + (cell as u64 + 1) * slice);
        let within = |index: &usize| tenures[*index].began.as_micros() < last && end(*index) >= first;
        (0..tenures.len()).rev().find(within).map(|index| tenures[index].node.clone())
    };
    (0..cells).map(of).collect()
}

fn role_style(paint: Paint, state: RoleState) -> Style {
    match state {
        RoleState::Led => paint.good(),
        RoleState::Silent | RoleState::Unknown => paint.bad(),
        _ => paint.warn(),
    }
}

/// The line above a panel, with its name.
pub(super) fn rule(frame: &mut Frame<'_>, area: Rect, paint: Paint, name: &str) {
    let rest = usize::from(area.width).saturating_sub(name.chars().count() + 4);
    let line = Line::styled(format!("── {name} {}", "─".repeat(rest)), paint.faint());
    frame.render_widget(line, row(area, 0));
}

/// What a list is called: how many there are, and which of them are shown.
pub(super) fn list_name(what: &str, search: &str, at: usize, listed: usize, all: usize) -> String {
    match search.is_empty() {
        true => format!("{what}  {} of {listed}", (at + 1).min(listed)),
        false => format!("{what} with {search:?}: {listed} of {all}"),
    }
}

/// The first line of a list that is shown, and how many there is room for: the chosen one is in the middle.
pub(super) fn shown_of(area: Rect, at: usize, listed: usize) -> (usize, usize) {
    let room = usize::from(area.height.saturating_sub(1));
    (at.saturating_sub(room / 2).min(listed.saturating_sub(room)), room)
}

/// So many rows further in a list, and not beyond its ends.
pub(super) fn stepped(at: usize, rows: i64, listed: usize) -> usize {
    let last = i64::try_from(listed).unwrap_or(i64::MAX) - 1;
    let next = i64::try_from(at).unwrap_or(0).saturating_add(rows).clamp(0, last.max(0));
    usize::try_from(next).unwrap_or(0)
}

/// Exactly so wide.
pub(super) fn fit(text: &str, width: usize) -> String {
    match text.chars().count() {
        long if long > width => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        _ => format!("{text:<width$}"),
    }
}

fn since_then(wall: Timestamp) -> Duration {
    Duration::from_micros(Stamp::now().0.as_micros().saturating_sub(wall.as_micros()))
}

/// Parts of a second only flicker.
pub(super) fn whole(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs())
}

/// One line of a panel; empty if it has not that many.
pub(super) fn row(area: Rect, index: usize) -> Rect {
    let index = u16::try_from(index).unwrap_or(u16::MAX);
    let height = u16::from(index < area.height);
    Rect { y: area.y.saturating_add(index.min(area.height)), height, ..area }
}

#[cfg(test)]
mod tests {

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use tenure::{EndReason, SessionId, Token};

    use super::super::tasks::tests::a_task;
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn role(text: &str, leader: Option<&str>) -> RoleReport {
        let state = if leader.is_some() { RoleState::Led } else { RoleState::Vacant };
        let mut report = RoleReport::new(name(text), Token::new(7), state);
        report.leader = leader.map(name);
        report.since = Some(Stamp::now().0);
        (report.last_beat_ms_ago, report.ttl_ms) = (Some(1000), Some(5000));
        report.candidates = vec![name("web-2"), name("web-3")];
        report
    }

    fn board(roles: usize) -> Board {
        let mut node = NodeReport::new(name("web-1"), SessionId::new(1), NodeState::Live, Stamp::now().0);
        node.labels = [("zone".to_owned(), "a\u{1b}[31m".to_owned())].into();
        (node.last_beat_ms_ago, node.ttl_ms) = (Some(1000), Some(5000));
        let mut board = Board::new("default of somewhere".to_owned());
        let roles = (0..roles).map(|index| role(&format!("role-{index:05}"), Some("web-1")));
        let mut snapshot = ClusterSnapshot::default();
        (snapshot.roles, snapshot.nodes) = (roles.collect(), vec![node]);
        board.update(snapshot);
        board
    }

    fn drawn(board: &Board, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| board.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn all_that_matters_is_on_80_by_24() {
        let screen = drawn(&board(3), 80, 24);
        for part in [
            "role-00001",
            "led",
            "web-1",
            "7",
            "████",
            "web-2",
            "3 roles: 3 led",
            "1 of 1 nodes live",
            "q quit",
        ] {
            assert!(screen.contains(part), "{part:?} is not on the board:\n{screen}");
        }
        assert!(!screen.contains('\u{1b}'), "what others say moves no cursor");
    }

    #[test]
    fn alerts_that_fire_are_on_the_board_and_quiet_ones_are_not() {
        let alert = |name: &str, state: &str| {
            serde_json::from_value(serde_json::json!({
                "alert": name, "state": state, "severity": "critical", "since": null, "condition": "x", "for": "30s",
                "summary": format!("{name}: no node leads job\u{1b}[31m"), "total": 1, "instances": [], "notify": [],
                "deliveries": [], "acknowledged": null, "resolved": null, "silenced": null, "silenced_until": null,
                "last": null, "shipped": true, "error": null,
            }))
            .unwrap()
        };
        let mut board = board(3);
        assert!(!drawn(&board, 80, 24).contains("alerts"), "where there are none, nothing says so");
        board.apply(TopEvent::Alerts(vec![alert("no-leader", "firing"), alert("two-leaders", "inactive")]));
        let screen = drawn(&board, 80, 24);
        for part in ["alerts  1", "no-leader", "firing", "critical", "no node leads job", "role-00001"] {
            assert!(screen.contains(part), "{part:?} is not on the board:\n{screen}");
        }
        assert!(!screen.contains("two-leaders") && !screen.contains('\u{1b}'), "{screen}");
        for (width, height) in [(1, 1), (20, 5), (40, 12)] {
            drawn(&board, width, height);
        }
    }

    #[test]
    fn every_size_can_be_drawn() {
        for (width, height) in [(1, 1), (20, 5), (40, 12), (80, 24), (300, 100)] {
            drawn(&board(10_000), width, height);
            drawn(&board(0), width, height);
        }
        let small = drawn(&board(3), 30, 8);
        assert!(small.contains("▶ role-0"), "a small window shows the roles first:\n{small}");
    }

    #[test]
    fn one_walks_and_searches_through_ten_thousand_roles() {
        let mut board = board(10_000);
        assert!(board.handle_key(KeyCommand::Move(i64::MAX)));
        assert_eq!(board.chosen(), Some(name("role-09999")));
        assert!(drawn(&board, 80, 24).contains("▶ role-09999"));
        for key in "/4242".chars() {
            assert!(board.handle_key(KeyCommand::Typed(key)));
        }
        assert_eq!(board.chosen(), Some(name("role-04242")));
        assert!(drawn(&board, 80, 24).contains("1 of 10000"));
        assert!(board.handle_key(KeyCommand::Back), "first the search goes");
        assert!(!board.handle_key(KeyCommand::Back), "then the viewer");
        assert!(!board.handle_key(KeyCommand::Typed('q')));
    }

    #[test]
    fn tasks_are_one_key_away() {
        let mut board = board(3);
        assert_eq!(board.focus(), TopFocus::Role(Some(name("role-00000"))));
        assert!(board.handle_key(KeyCommand::View));
        assert_eq!(board.focus(), TopFocus::Tasks);
        assert!(drawn(&board, 80, 24).contains("none (see `tenure help task`)"), "{}", drawn(&board, 80, 24));
        board.apply(TopEvent::Tasks(
            (0..5000).map(|index| a_task(&format!("task-{index:04}"), "web-1")).collect(),
        ));
        let screen = drawn(&board, 80, 24);
        for part in [
            "5000 tasks: 5000 waiting",
            "tasks  1 of 5000",
            "▶ task-0000",
            "succeeded",
            "web-1",
            "in ",
            "runs of task-0000",
            "every 1h",
            "on web-1, token 7",
            "t roles",
            "nodes  1",
        ] {
            assert!(screen.contains(part), "{part:?} is not on the board:\n{screen}");
        }
        for key in "/4242".chars() {
            assert!(board.handle_key(KeyCommand::Typed(key)));
        }
        assert!(drawn(&board, 80, 24).contains("tasks with \"4242\": 1 of 5000"));
        assert!(board.handle_key(KeyCommand::Back) && board.handle_key(KeyCommand::Move(i64::MAX)));
        assert!(drawn(&board, 80, 24).contains("▶ task-4999"));
        assert!(board.handle_key(KeyCommand::Typed('t')));
        assert!(drawn(&board, 80, 24).contains("▶ role-00000"), "and back");
        for (width, height) in [(1, 1), (20, 5), (300, 100)] {
            board.handle_key(KeyCommand::View);
            drawn(&board, width, height);
        }
    }

    #[test]
    fn nothing_is_done_without_a_reason_and_a_yes() {
        let mut board = board(2);
        let typed = |board: &mut Board, text: &str| {
            text.chars().for_each(|c| _ = board.handle_key(KeyCommand::Typed(c)))
        };
        typed(&mut board, "Tq");
        let screen = drawn(&board, 120, 24);
        assert!(screen.contains("transfer role-00000 from web-1 to web-2 (↑↓). Reason: q"), "{screen}");
        assert!(board.handle_key(KeyCommand::Erase) && board.handle_key(KeyCommand::Enter));
        assert_eq!(board.answered, None, "not without a reason");
        assert!(board.handle_key(KeyCommand::Back) && drawn(&board, 80, 24).contains("S step down"), "no");
        typed(&mut board, "Sdeploy");
        assert!(board.handle_key(KeyCommand::Enter) && board.answered.take().is_some(), "yes");
        board.apply(TopEvent::Done("web-2 leads role-00000 now".to_owned()));
        assert!(drawn(&board, 80, 24).contains("web-2 leads role-00000 now"));
    }

    #[test]
    fn a_lost_agent_is_said_and_what_it_knew_grows_old() {
        let mut board = board(1);
        board.seen.1 = Instant::now() - std::time::Duration::from_secs(60);
        board.age();
        assert!(drawn(&board, 80, 24).contains(" led  "), "nothing is lost yet");
        board.apply(TopEvent::Lost("the agent cannot be reached".to_owned()));
        board.age();
        let shown = drawn(&board, 80, 24);
        assert!(shown.contains("DISCONNECTED for 0s: the agent cannot be reached"), "{shown}");
        assert!(shown.contains(" unknown (web-1)") && !shown.contains(" led  "), "{shown}");
    }

    #[test]
    fn gaps_are_seen_in_the_lane() {
        let past = |token: u64, node: &str, began: u64, ended: Option<u64>| {
            let second = |at: u64| Timestamp::from_micros(at * 1_000_000);
            let session = SessionId::new(token.into());
            let mut record = TenureRecord::new(Token::new(token), name(node), session, second(began));
            record.ended = ended.map(second);
            record.reason = ended.map(|_| EndReason::Expelled);
            record
        };
        let tenures = [past(1, "a", 92, Some(94)), past(2, "b", 97, None)];
        let cells = lane(&tenures, Timestamp::from_micros(100_000_000), Duration::from_secs(10), 10);
        let text: String =
            cells.iter().map(|cell| cell.as_ref().map_or(".", |node| node.as_str()).to_owned()).collect();
        assert_eq!(text, "..aaa..bbb");
    }
}
