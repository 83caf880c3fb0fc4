//! The board: everything that is known, on one screen. It only draws; 80 by 24 is enough, more is used.

mod paint;
mod panels;

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use tenure::Name;

use self::paint::Paint;
use super::cluster::DemoCluster;
use super::summary::DemoSummary;

/// How much of the past the timeline shows.
const WINDOW: Duration = Duration::from_secs(60);

/// What is drawn.
pub(super) struct BoardView<'a> {
    pub(super) cluster: &'a DemoCluster,
    pub(super) summary: &'a DemoSummary,
    /// Now, on the lease clock.
    pub(super) now: u64,
    /// Whether the fault script rests.
    pub(super) resting: bool,
    /// Whether colours may be used.
    pub(super) colour: bool,
}

impl BoardView<'_> {
    fn paint(&self) -> Paint {
        Paint { colour: self.colour }
    }

    /// Which of the nodes that is, for its colour.
    fn index(&self, node: &Name) -> usize {
        self.cluster.nodes.iter().position(|node_state| node_state.name == *node).unwrap_or(0)
    }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, view: &BoardView<'_>) {
    let nodes = u16::try_from(view.cluster.nodes.len()).unwrap_or(u16::MAX);
    let area = margin(frame.area());
    // A tall terminal can afford air between the panels.
    let air = u16::from(area.height >= 2 * nodes + 24);
    // A low one shows who leads now rather than who led.
    let lanes = if area.height >= 2 * nodes + 15 { nodes + 2 + air } else { 0 };
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1 + air),
        Constraint::Length(2 + air),
        Constraint::Length(nodes + 1 + air),
        Constraint::Length(lanes),
        Constraint::Min(0),
        Constraint::Length(5 + air),
        Constraint::Length(1),
    ];
    let [title, headline, leader, members, timeline, fail_overs, figures, keys] =
        Layout::vertical(rows).areas(area);
    panels::title(frame, title, view);
    panels::headline(frame, headline, view);
    panels::leader(frame, leader, view);
    panels::members(frame, members, view);
    panels::timeline(frame, timeline, view);
    panels::fail_overs(frame, fail_overs, view);
    panels::figures(frame, figures, view);
    panels::keys(frame, keys, view);
}

/// One column of air on each side.
fn margin(area: Rect) -> Rect {
    Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;
    use tenure::Token;

    use super::super::cluster::DemoEvent;
    use super::super::cluster::tests::{MS, led, name, say, two};
    use super::super::message::MemberMessage;
    use super::super::summary::tests::witnessed;
    use super::super::timing;
    use super::*;

    /// Ten seconds in: a crash, then a freeze that no node has taken over yet.
    fn cluster() -> DemoCluster {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 100 * MS);
        cluster.apply(5_000 * MS, DemoEvent::Killed { node: name("node-1") });
        led(&mut cluster, "node-2", 2, 5_008 * MS);
        cluster.apply(6_000 * MS, DemoEvent::Started { node: name("node-1"), pid: 4_242 });
        say(&mut cluster, "node-1", MemberMessage::Joined);
        say(
            &mut cluster,
            "node-2",
            MemberMessage::Led { role: name("shard-1"), token: Token::new(1), at: 6_100 * MS },
        );
        say(&mut cluster, "node-2", MemberMessage::Lease { until: 11_500 * MS });
        cluster
    }

    fn drawn(cluster: &DemoCluster, width: u16, height: u16, colour: bool) -> TestBackend {
        let witness = witnessed(&[("scheduler", 1, 1, 0, 5_000), ("scheduler", 2, 2, 5_008, 10_000)]);
        let summary = DemoSummary::new(&cluster.fail_overs(), &witness, 4, &timing().bounds());
        let view = BoardView { cluster, summary: &summary, now: 10_000 * MS, resting: false, colour };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &view)).unwrap();
        terminal.backend().clone()
    }

    fn assert_shows(screen: &str, texts: &[&str]) {
        for text in texts {
            assert!(screen.contains(text), "{text:?} is not on the board:\n{screen}");
        }
    }

    #[test]
    fn all_that_matters_is_on_80_by_24() {
        let screen = drawn(&cluster(), 80, 24, true).to_string();
        assert_shows(
            &screen,
            &[
                "node-2 leads scheduler with token 2, 8.0 ms after the crash of node-1",
                "led by node-2",
                "token 2",
                "1.5 s",
                "node-1     4242  live",
                "scheduler  shard-1",
                "×",
                "60 s ago",
                "node-1 → node-2",
                "crash",
                "1, 8.0 ms",
                "never more than 1",
                "k kill the leader",
                "q quit",
            ],
        );
    }

    #[test]
    fn a_frozen_leader_is_shown_for_what_it_is() {
        let mut cluster = cluster();
        cluster.apply(9_000 * MS, DemoEvent::Frozen { node: name("node-2") });
        let screen = drawn(&cluster, 80, 24, true).to_string();
        assert_shows(
            &screen,
            &[
                "frozen",
                "‖",
                "no node may lead scheduler until its lease ends",
                "others must wait",
                "held by node-2",
            ],
        );
    }

    #[test]
    fn every_size_can_be_drawn() {
        for (width, height) in [(1, 1), (20, 5), (40, 12), (80, 24), (120, 40), (300, 100)] {
            drawn(&cluster(), width, height, true);
        }
    }

    #[test]
    fn without_colour_there_is_none() {
        let cells = drawn(&cluster(), 80, 24, false);
        let plain = |colour: Color| colour == Color::Reset;
        assert!(cells.buffer().content().iter().all(|cell| plain(cell.fg) && plain(cell.bg)));
    }

    #[test]
    fn what_must_never_be_is_shown_at_once() {
        let cluster = cluster();
        let witness = witnessed(&[("scheduler", 1, 1, 0, 5_000), ("scheduler", 2, 2, 4_000, 10_000)]);
        let summary = DemoSummary::new(&[], &witness, 4, &timing().bounds());
        let view =
            BoardView { cluster: &cluster, summary: &summary, now: 10_000 * MS, resting: true, colour: true };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &view)).unwrap();
        let screen = terminal.backend().to_string();
        assert_shows(&screen, &["leaders at once: 2, A VIOLATION", "p attack again"]);
    }
}
