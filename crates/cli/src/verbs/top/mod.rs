//! `tenure top`: the dashboard in a terminal.
//!
//! ```text
//!   store or agent ── looks, changes ──┐
//!   keys ──────────────────────────────┼─▶ board ─▶ screen, or one print
//!   history of the chosen role, tasks ─┤
//!   alerts, if an agent is asked ──────┘
//! ```

mod alerts;
mod board;
mod tasks;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use tenure::Name;
use tenure::history::Past;
use tenure::operator::{Change, Snapshot, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::board::Board;
use super::source::{Source, Watching};
use crate::agent::client::Changes;
use crate::agent::http::alerts::AlertView;
use crate::agent::http::tasks::TaskView;
use crate::args::{Common, TopArgs};
use crate::exit::Exit;
use crate::output::paint::colour_wanted;
use crate::output::screen::Screen;
use crate::output::{self, width};

/// How often the board is drawn: leases run out meanwhile.
const TICK: Duration = Duration::from_millis(200);
/// How often an agent is asked, and what is chosen is read.
const LOOK: Duration = Duration::from_secs(1);

/// What comes from the cluster.
enum News {
    Seen(Snapshot),
    Changed(Vec<Change>),
    Past(Name, Vec<Past>),
    Tasks(Vec<TaskView>),
    Alerts(Vec<AlertView>),
    Lost(String),
}

/// What has to be read for what is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Focus {
    /// The past of a role, if there is any role.
    Role(Option<Name>),
    /// The ledgers of tasks.
    Tasks,
}

/// What the viewer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// To leave, whatever is being done.
    Quit,
    /// To leave what is being done.
    Back,
    /// Another role or task, so many rows further.
    Move(i64),
    /// Tasks instead of roles, or roles again.
    View,
    /// What a letter means, or to search for it.
    Typed(char),
    /// The last letter of the search to go.
    Erase,
    /// The search to stay.
    Enter,
}

/// Shows the cluster until the viewer leaves, or once.
///
/// # Errors
/// If the store or the agent cannot be used, or there is no terminal to draw on.
pub async fn main(common: &Common, args: TopArgs) -> Result<Exit, Exit> {
    if common.is_json() {
        let why =
            "top is for people; programs read `tenure status --format json` and `tenure watch --format json`";
        return Err(Exit::Usage(why.to_owned()));
    }
    let source = Arc::new(Source::of(common).await?);
    let mut board = Board::new(format!("{} of {}", source.namespace(), source.place()));
    board.see(source.snapshot().await?);
    if args.once || !std::io::stdout().is_terminal() {
        return once(&source, board).await;
    }
    board.colour = colour_wanted();
    live(source, board).await
}

/// One screen, as tall as it needs to be.
async fn once(source: &Source, mut board: Board) -> Result<Exit, Exit> {
    if let Some(role) = board.chosen() {
        let book = source.history(Some(&role)).await?.remove(&role).unwrap_or_default();
        board.past(&role, book.tenures);
    }
    board.hear(News::Tasks(source.tasks(None).await?));
    if let Source::Agent(agent) = source {
        board.hear(News::Alerts(agent.alerts().await?.alerts));
    }
    board.whole = true;
    let width = u16::try_from(width().unwrap_or(110)).unwrap_or(110);
    let backend = TestBackend::new(width, board.tall());
    let no_board = |error| Exit::Failed(format!("the board cannot be drawn: {error}"));
    let mut terminal = Terminal::new(backend).map_err(|error| no_board(error.to_string()))?;
    terminal.draw(|frame| board.draw(frame)).map_err(|error| no_board(error.to_string()))?;
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width.max(1)));
    let line = |row: &[ratatui::buffer::Cell]| {
        row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    let text: Vec<String> = rows.map(line).collect();
    output::print(text.join("\n").trim_end())?;
    Ok(Exit::Done)
}

async fn live(source: Arc<Source>, mut board: Board) -> Result<Exit, Exit> {
    let no_screen = |error| Exit::Failed(format!("no board on this terminal: {error}; try --once"));
    let mut screen = Screen::take(meaning).map_err(no_screen)?;
    let (tell, mut news) = mpsc::channel(16);
    let (choose, chosen) = watch::channel(board.focus());
    if matches!(*source, Source::Agent(_)) {
        tokio::spawn(look(source.clone(), tell.clone()));
    }
    tokio::spawn(follow(source.clone(), tell.clone()));
    tokio::spawn(read(source, chosen, tell));
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            Some(news) = news.recv() => board.hear(news),
            wish = screen.wishes.recv() => if !board.grant(wish.unwrap_or(Wish::Quit)) {
                return Ok(Exit::Done);
            },
        }
        choose.send_if_modified(|focus| {
            let now = board.focus();
            std::mem::replace(focus, now.clone()) != now
        });
        screen.terminal.draw(|frame| board.draw(frame)).map_err(no_screen)?;
    }
}

/// Asks an agent for everything, again and again. Ends with the board.
async fn look(source: Arc<Source>, tell: mpsc::Sender<News>) {
    loop {
        let told = match source.snapshot().await {
            Ok(snapshot) => News::Seen(snapshot),
            Err(error) => News::Lost(why(&error)),
        };
        if tell.send(told).await.is_err() {
            return;
        }
        if let Source::Agent(agent) = &*source
            && let Ok(view) = agent.alerts().await
        {
            let _ = tell.send(News::Alerts(view.alerts)).await;
        }
        sleep(LOOK).await;
    }
}

/// Tells what changes. Ends with the board.
async fn follow(source: Arc<Source>, tell: mpsc::Sender<News>) {
    while !tell.is_closed() {
        match source.watch().await {
            Ok(Watching::Store(watch)) => look_along(*watch, &tell).await,
            Ok(Watching::Agent(changes)) => listen(changes, &tell).await,
            Err(error) => _ = tell.send(News::Lost(why(&error))).await,
        }
        sleep(LOOK).await;
    }
}

/// A watch of the store has everything each time it looks.
async fn look_along(mut watch: Watch, tell: &mpsc::Sender<News>) {
    loop {
        let told = match watch.look_again().await {
            Ok(changes) => {
                let _ = tell.send(News::Seen(watch.last().clone())).await;
                tell.send(News::Changed(changes)).await
            }
            Err(error) => {
                sleep(LOOK).await;
                tell.send(News::Lost(error.to_string())).await
            }
        };
        if told.is_err() {
            return;
        }
    }
}

/// Until the stream breaks.
async fn listen(mut changes: Changes, tell: &mpsc::Sender<News>) {
    while let Ok(changes) = changes.next().await {
        if tell.send(News::Changed(changes)).await.is_err() {
            return;
        }
    }
}

/// Reads the past of the role that is chosen, or the tasks while they are shown. Ends with the board.
async fn read(source: Arc<Source>, mut chosen: watch::Receiver<Focus>, tell: mpsc::Sender<News>) {
    loop {
        let focus = chosen.borrow_and_update().clone();
        let found = match focus {
            Focus::Tasks => source.tasks(None).await.ok().map(News::Tasks),
            Focus::Role(Some(role)) => source.history(Some(&role)).await.ok().map(|mut books| {
                let tenures = books.remove(&role).unwrap_or_default().tenures;
                News::Past(role, tenures)
            }),
            Focus::Role(None) => None,
        };
        if let Some(news) = found
            && tell.send(news).await.is_err()
        {
            return;
        }
        tokio::select! {
            changed = chosen.changed() => if changed.is_err() { return },
            () = sleep(2 * LOOK) => {}
        }
    }
}

fn why(exit: &Exit) -> String {
    match exit {
        Exit::No(why) | Exit::Usage(why) | Exit::Store(why) | Exit::Failed(why) => why.clone(),
        other => format!("{other:?}"),
    }
}

fn meaning(code: KeyCode, modifiers: KeyModifiers) -> Option<Wish> {
    match code {
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Esc => Some(Wish::Back),
        KeyCode::Tab => Some(Wish::View),
        KeyCode::Up => Some(Wish::Move(-1)),
        KeyCode::Down => Some(Wish::Move(1)),
        KeyCode::PageUp => Some(Wish::Move(-10)),
        KeyCode::PageDown => Some(Wish::Move(10)),
        KeyCode::Home => Some(Wish::Move(i64::MIN)),
        KeyCode::End => Some(Wish::Move(i64::MAX)),
        KeyCode::Backspace => Some(Wish::Erase),
        KeyCode::Enter => Some(Wish::Enter),
        KeyCode::Char(c) => Some(Wish::Typed(c)),
        _ => None,
    }
}
