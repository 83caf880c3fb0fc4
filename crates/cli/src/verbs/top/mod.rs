//! `tenure top`: the dashboard in a terminal.
//!
//! ```text
//!   store or agent ── looks, changes ──┐
//!   keys ──────────────────────────────┼─▶ board ─▶ screen, or one print
//!   history of the chosen role, tasks ─┤
//!   alerts, if an agent is asked ──────┘
//! ```

mod action;
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
use tenure::history::TenureRecord;
use tenure::operator::{ClusterChange, ClusterSnapshot, ClusterWatch};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::board::Board;
use super::source::{Source, Watching};
use crate::args::{Common, TopArgs};
use crate::exit::Exit;
use crate::output::paint::colour_wanted;
use crate::output::screen::Screen;
use crate::output::{self, width};
use tenure_agent::client::Changes;
use tenure_agent::model::AlertStatus;
use tenure_agent::model::TaskStatus;

/// How often the board is drawn: leases run out meanwhile.
const TICK: Duration = Duration::from_millis(200);
/// How often an agent is asked, and what is chosen is read.
const POLL: Duration = Duration::from_secs(1);

/// What comes from the cluster.
enum TopEvent {
    Seen(ClusterSnapshot),
    Changed(Vec<ClusterChange>),
    Past(Name, Vec<TenureRecord>),
    Tasks(Vec<TaskStatus>),
    Alerts(Vec<AlertStatus>),
    Done(String),
    Lost(String),
}

/// What has to be read for what is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TopFocus {
    /// The past of a role, if there is any role.
    Role(Option<Name>),
    /// The ledgers of tasks.
    Tasks,
}

/// What the viewer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyCommand {
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
        let why = "top has no JSON output; use `tenure status --format json` or `tenure watch --format json`";
        return Err(Exit::Usage(why.to_owned()));
    }
    let source = Arc::new(Source::of(common).await?);
    let mut board = Board::new(format!("{} of {}", source.namespace(), source.location()));
    board.update(source.snapshot().await?);
    if args.once || !std::io::stdout().is_terminal() {
        return once(&source, board).await;
    }
    board.colour = colour_wanted();
    live(source, board).await
}

/// One screen, as tall as it needs to be.
async fn once(source: &Source, mut board: Board) -> Result<Exit, Exit> {
    if let Some(role) = board.chosen() {
        let book = source.history(Some(&role)).await.unwrap_or_default().remove(&role).unwrap_or_default();
        board.past(&role, book.tenures);
    }
    board.apply(TopEvent::Tasks(source.tasks(None).await.unwrap_or_default()));
    if let Source::Agent(agent) = source {
        board.apply(TopEvent::Alerts(agent.alerts().await?.alerts));
    }
    board.whole = true;
    let width = u16::try_from(width().unwrap_or(110)).unwrap_or(110);
    let backend = TestBackend::new(width, board.tall());
    let no_board = |error| Exit::Failed(format!("cannot draw the screen: {error}"));
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
    let no_screen = |error| Exit::Failed(format!("cannot draw on this terminal: {error}; try --once"));
    let mut screen = Screen::take(meaning).map_err(no_screen)?;
    let (tell, mut news) = mpsc::channel(16);
    let (choose, chosen) = watch::channel(board.focus());
    if matches!(*source, Source::Agent(_)) {
        tokio::spawn(look(source.clone(), tell.clone()));
    }
    tokio::spawn(follow(source.clone(), tell.clone()));
    tokio::spawn(read(source.clone(), chosen, tell.clone()));
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            Some(news) = news.recv() => board.apply(news),
            key = screen.commands.recv() => if !board.handle_key(key.unwrap_or(KeyCommand::Quit)) {
                return Ok(Exit::Done);
            },
        }
        if let Some(question) = board.answered.take() {
            let (source, tell) = (source.clone(), tell.clone());
            tokio::spawn(async move {
                let _ = tell.send(TopEvent::Done(question.run(&source).await)).await;
            });
        }
        choose.send_if_modified(|focus| {
            let now = board.focus();
            std::mem::replace(focus, now.clone()) != now
        });
        board.age();
        screen.terminal.draw(|frame| board.draw(frame)).map_err(no_screen)?;
    }
}

/// Asks an agent for everything, again and again. Ends with the board.
async fn look(source: Arc<Source>, tell: mpsc::Sender<TopEvent>) {
    loop {
        let told = match source.snapshot().await {
            Ok(snapshot) => TopEvent::Seen(snapshot),
            Err(error) => TopEvent::Lost(why(&error)),
        };
        if tell.send(told).await.is_err() {
            return;
        }
        if let Source::Agent(agent) = &*source
            && let Ok(view) = agent.alerts().await
        {
            let _ = tell.send(TopEvent::Alerts(view.alerts)).await;
        }
        sleep(POLL).await;
    }
}

/// Tells what changes. Ends with the board.
async fn follow(source: Arc<Source>, tell: mpsc::Sender<TopEvent>) {
    while !tell.is_closed() {
        match source.watch().await {
            Ok(Watching::Store(watch)) => look_along(*watch, &tell).await,
            Ok(Watching::Agent(changes)) => listen(changes, &tell).await,
            Err(error) => _ = tell.send(TopEvent::Lost(why(&error))).await,
        }
        sleep(POLL).await;
    }
}

/// A watch of the store has everything each time it looks.
async fn look_along(mut watch: ClusterWatch, tell: &mpsc::Sender<TopEvent>) {
    loop {
        let told = match watch.poll().await {
            Ok(changes) => {
                let _ = tell.send(TopEvent::Seen(watch.snapshot().clone())).await;
                tell.send(TopEvent::Changed(changes)).await
            }
            Err(error) => {
                sleep(POLL).await;
                tell.send(TopEvent::Lost(error.to_string())).await
            }
        };
        if told.is_err() {
            return;
        }
    }
}

/// Until the stream breaks.
async fn listen(mut changes: Changes, tell: &mpsc::Sender<TopEvent>) {
    while let Ok(changes) = changes.next().await {
        if tell.send(TopEvent::Changed(changes)).await.is_err() {
            return;
        }
    }
}

/// Reads the past of the role that is chosen, or the tasks while they are shown. Ends with the board.
async fn read(source: Arc<Source>, mut chosen: watch::Receiver<TopFocus>, tell: mpsc::Sender<TopEvent>) {
    loop {
        let focus = chosen.borrow_and_update().clone();
        let found = match focus {
            TopFocus::Tasks => source.tasks(None).await.ok().map(TopEvent::Tasks),
            TopFocus::Role(Some(role)) => source.history(Some(&role)).await.ok().map(|mut books| {
                let tenures = books.remove(&role).unwrap_or_default().tenures;
                TopEvent::Past(role, tenures)
            }),
            TopFocus::Role(None) => None,
        };
        if let Some(news) = found
            && tell.send(news).await.is_err()
        {
            return;
        }
        tokio::select! {
            changed = chosen.changed() => if changed.is_err() { return },
            () = sleep(2 * POLL) => {}
        }
    }
}

fn why(exit: &Exit) -> String {
    match exit {
        Exit::No(why) | Exit::Usage(why) | Exit::Store(why) | Exit::Failed(why) => why.clone(),
        other => format!("{other:?}"),
    }
}

fn meaning(code: KeyCode, modifiers: KeyModifiers) -> Option<KeyCommand> {
    match code {
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Some(KeyCommand::Quit),
        KeyCode::Esc => Some(KeyCommand::Back),
        KeyCode::Tab => Some(KeyCommand::View),
        KeyCode::Up => Some(KeyCommand::Move(-1)),
        KeyCode::Down => Some(KeyCommand::Move(1)),
        KeyCode::PageUp => Some(KeyCommand::Move(-10)),
        KeyCode::PageDown => Some(KeyCommand::Move(10)),
        KeyCode::Home => Some(KeyCommand::Move(i64::MIN)),
        KeyCode::End => Some(KeyCommand::Move(i64::MAX)),
        KeyCode::Backspace => Some(KeyCommand::Erase),
        KeyCode::Enter => Some(KeyCommand::Enter),
        KeyCode::Char(c) => Some(KeyCommand::Typed(c)),
        _ => None,
    }
}
