//! `tenure task`: scheduled tasks, their runs, and asking for a run, a pause, an end of it.

use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::ledger::{Record, Run, RunState, Totals};
use tenure::{Error, Name, Operator, SessionId, Token};

use super::OrderView;
use crate::args::{Common, TaskArgs, TaskAskArgs, TaskHistoryArgs, TaskListArgs, TaskVerb};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time::{self, Stamp};
use crate::output::{self, tame, width};

/// Does what was asked.
///
/// # Errors
/// If the store cannot be used, there is no such task, or it did not come to what was asked.
pub async fn main(common: &Common, args: &TaskArgs) -> Result<Exit, Exit> {
    match &args.verb {
        TaskVerb::List(args) => list(common, args).await,
        TaskVerb::History(args) => history(common, args).await,
        TaskVerb::Trigger(args) => trigger(common, args).await,
        TaskVerb::Pause(args) => pause(common, args).await,
        TaskVerb::Resume(args) => resume(common, args).await,
    }
}

/// A task, for programs.
#[derive(Serialize)]
struct TaskView<'a> {
    task: &'a Name,
    role: Option<&'a Name>,
    node: Option<&'a Name>,
    when: &'a str,
    zone: &'a str,
    state: &'static str,
    next: Option<Stamp>,
    last: Option<RunView<'a>>,
    owed: usize,
    paused: Option<OrderView<'a>>,
    totals: Totals,
}

/// A run, for programs.
#[derive(Serialize)]
struct RunView<'a> {
    task: &'a Name,
    tick: Stamp,
    to: Option<Stamp>,
    count: u64,
    state: RunState,
    token: Token,
    node: &'a Name,
    started: Option<Stamp>,
    took_ms: Option<u64>,
    attempts: u32,
    exit: Option<i32>,
    why: &'a str,
    trigger: Option<SessionId>,
}

#[derive(Serialize)]
struct Tasks<'a> {
    tasks: Vec<TaskView<'a>>,
}

#[derive(Serialize)]
struct Runs<'a> {
    runs: Vec<RunView<'a>>,
}

/// What came of a request, for programs.
#[derive(Serialize)]
struct Asked<'a> {
    task: &'a Name,
    state: &'a str,
    changed: bool,
    run: Option<RunView<'a>>,
}

impl<'a> TaskView<'a> {
    fn of(record: &'a Record) -> Self {
        let running = record.runs.iter().any(|run| run.state == RunState::Running);
        let state = match (&record.paused, running) {
            (Some(_), _) => "paused",
            (None, true) => "running",
            (None, false) => "waiting",
        };
        Self {
            task: &record.task,
            role: record.role.as_ref(),
            node: record.node.as_ref(),
            when: &record.when,
            zone: &record.zone,
            state,
            next: record.next.map(Stamp),
            last: record.runs.last().map(|run| RunView::of(&record.task, run)),
            owed: record.owed.len(),
            paused: record.paused.as_ref().map(OrderView::from),
            totals: record.totals,
        }
    }
}

impl<'a> RunView<'a> {
    fn of(task: &'a Name, run: &'a Run) -> Self {
        Self {
            task,
            tick: Stamp(run.tick),
            to: run.to.map(Stamp),
            count: run.count,
            state: run.state,
            token: run.token,
            node: &run.node,
            started: run.started.map(Stamp),
            took_ms: run.took_ms,
            attempts: run.attempts,
            exit: run.exit,
            why: &run.why,
            trigger: run.trigger,
        }
    }
}

async fn list(common: &Common, args: &TaskListArgs) -> Result<Exit, Exit> {
    let operator = super::operator(common)?;
    let records = operator.tasks(None).await?;
    for task in &args.tasks {
        known(&operator, &records, task)?;
    }
    let wanted = |record: &&Record| args.tasks.is_empty() || args.tasks.contains(&record.task);
    let tasks: Vec<TaskView<'_>> = records.iter().filter(wanted).map(TaskView::of).collect();
    if common.is_json() {
        output::json(&Tasks { tasks })?;
    } else if tasks.is_empty() {
        output::print(&format!("No task has run in namespace {} yet.", operator.namespace()))?;
    } else {
        output::print(&task_table(&tasks))?;
    }
    Ok(Exit::Done)
}

fn task_table(tasks: &[TaskView<'_>]) -> String {
    let mut table = Table::new([
        Column::new("TASK").least(12),
        Column::new("RUNS ON").least(10),
        Column::new("WHEN").least(10),
        Column::new("STATE"),
        Column::new("NEXT"),
        Column::new("LAST"),
        Column::new("RUNS").right(),
        Column::new("FAILED").right(),
        Column::new("LATE").right(),
        Column::new("MISSED").right(),
        Column::new("NOTE").least(8).optional(),
    ]);
    for task in tasks {
        let place = task.node.or(task.role).map(ToString::to_string);
        let zone = if task.zone == "UTC" { String::new() } else { format!(" {}", task.zone) };
        let tone = match task.state {
            "paused" => Tone::Warn,
            "running" => Tone::Good,
            _ => Tone::Plain,
        };
        let last = task.last.as_ref();
        let note =
            task.paused.as_ref().map(|order| format!("paused by {}: {}", tame(order.by), tame(order.why)));
        table.row([
            Cell::new(task.task, Tone::Strong),
            Cell::or_none(place, Tone::Plain),
            format!("{}{zone}", task.when).into(),
            Cell::new(task.state, tone),
            Cell::or_none(task.next.map(|next| time::clock(next.0)), Tone::Plain),
            Cell::or_none(
                last.map(|run| run.state.as_str()),
                last.map_or(Tone::Plain, |run| tone_of(run.state)),
            ),
            task.totals.runs.to_string().into(),
            task.totals.failures.to_string().into(),
            task.totals.late.to_string().into(),
            task.totals.missed.to_string().into(),
            Cell::or_none(note, Tone::Plain),
        ]);
    }
    table.render(width())
}

async fn history(common: &Common, args: &TaskHistoryArgs) -> Result<Exit, Exit> {
    let operator = super::operator(common)?;
    let records = operator.tasks(None).await?;
    if let Some(task) = &args.task {
        known(&operator, &records, task)?;
    }
    let wanted = |record: &&Record| args.task.as_ref().is_none_or(|task| record.task == *task);
    let newest = |record| newest_of(record, args.limit.get());
    let mut runs: Vec<RunView<'_>> = records.iter().filter(wanted).flat_map(newest).collect();
    runs.sort_by(|a, b| (b.tick.0, b.task, b.node).cmp(&(a.tick.0, a.task, a.node)));
    if common.is_json() {
        output::json(&Runs { runs })?;
    } else if runs.is_empty() {
        output::print("Nothing has run yet; `tenure task list` shows what is to come.")?;
    } else {
        output::print(&run_table(&runs))?;
    }
    Ok(Exit::Done)
}

fn newest_of(record: &Record, limit: usize) -> Vec<RunView<'_>> {
    let skipped = record.runs.len().saturating_sub(limit);
    record.runs.iter().skip(skipped).map(|run| RunView::of(&record.task, run)).collect()
}

fn run_table(runs: &[RunView<'_>]) -> String {
    let mut table = Table::new([
        Column::new("TASK").least(12),
        Column::new("TICK"),
        Column::new("STATE"),
        Column::new("NODE").least(8),
        Column::new("TOKEN").right(),
        Column::new("TOOK").right(),
        Column::new("TRIES").right(),
        Column::new("EXIT").right().optional(),
        Column::new("WHY").least(10).optional(),
    ]);
    for run in runs {
        let tick = match (run.to, run.trigger) {
            (Some(to), _) => format!("{} … {} ({})", time::clock(run.tick.0), time::clock(to.0), run.count),
            (None, Some(_)) => format!("{} (asked for)", time::clock(run.tick.0)),
            (None, None) => time::clock(run.tick.0),
        };
        table.row([
            Cell::new(run.task, Tone::Strong),
            tick.into(),
            Cell::new(run.state.as_str(), tone_of(run.state)),
            Cell::from(run.node),
            run.token.to_string().into(),
            Cell::or_none(run.took_ms.map(|ms| time::span(Duration::from_millis(ms))), Tone::Plain),
            Cell::or_none((run.attempts > 0).then(|| run.attempts.to_string()), Tone::Plain),
            Cell::or_none(run.exit.map(|exit| exit.to_string()), Tone::Plain),
            Cell::or_none((!run.why.is_empty()).then_some(run.why), Tone::Plain),
        ]);
    }
    table.render(width())
}

fn tone_of(state: RunState) -> Tone {
    match state {
        RunState::Running | RunState::Succeeded => Tone::Good,
        RunState::Failed | RunState::TimedOut => Tone::Bad,
        RunState::Cancelled | RunState::Interrupted | RunState::Missed => Tone::Warn,
        RunState::Skipped => Tone::Faint,
    }
}

/// Asks for a run, and waits until it has ended.
async fn trigger(common: &Common, args: &TaskAskArgs) -> Result<Exit, Exit> {
    let operator = super::operator(common)?;
    let (task, begun) = (&args.task, Instant::now());
    known(&operator, &operator.tasks(None).await?, task)?;
    let id = operator.trigger_task(task, &args.why).await?;
    loop {
        let records = operator.tasks(Some(task)).await?;
        let run = records.iter().flat_map(|record| &record.runs).find(|run| run.trigger == Some(id));
        let over = run.is_some_and(|run| run.state != RunState::Running);
        if over || begun.elapsed() >= args.wait {
            return triggered(common, args, run);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn triggered(common: &Common, args: &TaskAskArgs, run: Option<&Run>) -> Result<Exit, Exit> {
    let (task, waited) = (&args.task, time::span(args.wait));
    let Some(run) = run else {
        return Err(Exit::No(format!(
            "{task} has not started within {waited}: nobody runs it now; it starts as soon as somebody does"
        )));
    };
    if common.is_json() {
        let state = run.state.as_str();
        output::json(&Asked { task, state, changed: true, run: Some(RunView::of(task, run)) })?;
    }
    let took = time::span(Duration::from_millis(run.took_ms.unwrap_or_default()));
    match run.state {
        RunState::Succeeded if common.is_json() => {}
        RunState::Succeeded => output::print(&format!("{task} succeeded on {} (took {took})", run.node))?,
        RunState::Running => {
            return Err(Exit::No(format!("{task} still runs on {} after {waited}", run.node)));
        }
        state => return Err(Exit::No(format!("{task}: {state} on {}: {}", run.node, tame(&run.why)))),
    }
    Ok(Exit::Done)
}

async fn pause(common: &Common, args: &TaskAskArgs) -> Result<Exit, Exit> {
    let operator = super::operator(common)?;
    let task = &args.task;
    known(&operator, &operator.tasks(None).await?, task)?;
    let changed = operator.pause_task(task, &args.why).await?;
    let resume = format!("`tenure task resume {task}` lets it run again");
    let text = match changed {
        true => format!("{task} is paused; {resume}"),
        false => format!("{task} is paused already; {resume}"),
    };
    told(common, task, "paused", changed, &text)
}

async fn resume(common: &Common, args: &TaskAskArgs) -> Result<Exit, Exit> {
    let operator = super::operator(common)?;
    let task = &args.task;
    known(&operator, &operator.tasks(None).await?, task)?;
    let changed = operator.resume_task(task).await?;
    let text = match changed {
        true => format!("{task} is resumed"),
        false => format!("{task} was not paused"),
    };
    told(common, task, "resumed", changed, &text)
}

fn told(common: &Common, task: &Name, state: &str, changed: bool, text: &str) -> Result<Exit, Exit> {
    match common.is_json() {
        true => output::json(&Asked { task, state, changed, run: None })?,
        false => output::print(text)?,
    }
    Ok(Exit::Done)
}

/// There is such a task; or which one may have been meant.
fn known(operator: &Operator, records: &[Record], task: &Name) -> Result<(), Exit> {
    if records.iter().any(|record| record.task == *task) {
        return Ok(());
    }
    let namespace = operator.namespace().clone();
    let names = records.iter().map(|record| record.task.as_str());
    Err(match super::nearest::nearest(task.as_str(), names) {
        Some(meant) => {
            Exit::No(format!("there is no task {task} in namespace {namespace}; did you mean {meant}?"))
        }
        None => Error::NoSuchTask { task: task.clone(), namespace }.into(),
    })
}
