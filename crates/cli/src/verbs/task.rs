//! `tenure task`: scheduled tasks, their runs, and asking for a run, a pause, an end of it.

use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::{Error, Name};

use super::source::Source;
use crate::args::{Common, TaskArgs, TaskAskArgs, TaskHistoryArgs, TaskListArgs, TaskVerb};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time;
use crate::output::{self, sanitize, width};
use tenure_agent::model::{TaskRun, TaskStatus};

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

/// Tasks, for programs.
#[derive(Serialize)]
struct Tasks<'a> {
    tasks: Vec<&'a TaskStatus>,
}

/// Runs, for programs.
#[derive(Serialize)]
struct Runs<'a> {
    runs: Vec<&'a TaskRun>,
}

/// What came of a request, for programs.
#[derive(Serialize)]
struct TaskOutcome<'a> {
    task: &'a Name,
    state: &'a str,
    changed: bool,
    run: Option<&'a TaskRun>,
}

async fn list(common: &Common, args: &TaskListArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let found = source.tasks(None).await?;
    for task in &args.tasks {
        known(&source, &found, task)?;
    }
    let named = |view: &TaskStatus| args.tasks.iter().any(|task| task.as_str() == view.task);
    let tasks: Vec<&TaskStatus> = found.iter().filter(|view| args.tasks.is_empty() || named(view)).collect();
    if common.is_json() {
        output::json(&Tasks { tasks })?;
    } else if tasks.is_empty() {
        output::print(&format!("No task has run in namespace {} yet.", source.namespace()))?;
    } else {
        output::print(&task_table(&tasks))?;
    }
    Ok(Exit::Done)
}

fn task_table(tasks: &[&TaskStatus]) -> String {
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
        let place = task.node.as_ref().or(task.role.as_ref());
        let zone = if task.zone == "UTC" { String::new() } else { format!(" {}", task.zone) };
        let tone = match task.state.as_str() {
            "paused" => Tone::Warn,
            "running" => Tone::Good,
            _ => Tone::Plain,
        };
        let last = task.last.as_ref();
        let note = task
            .paused
            .as_ref()
            .map(|order| format!("paused by {}: {}", sanitize(&order.by), sanitize(&order.why)));
        table.row([
            Cell::new(&task.task, Tone::Strong),
            Cell::or_none(place, Tone::Plain),
            format!("{}{zone}", task.when).into(),
            Cell::new(&task.state, tone),
            Cell::or_none(task.next.as_deref().map(time::clock_of), Tone::Plain),
            Cell::or_none(last.map(|run| &run.state), last.map_or(Tone::Plain, |run| tone_of(&run.state))),
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
    let source = Source::of(common).await?;
    let found = source.tasks(None).await?;
    if let Some(task) = &args.task {
        known(&source, &found, task)?;
    }
    let wanted = |view: &&TaskStatus| args.task.as_ref().is_none_or(|task| view.task == task.as_str());
    let newest = |view| newest_of(view, args.limit.get());
    let mut runs: Vec<&TaskRun> = found.iter().filter(wanted).flat_map(newest).collect();
    runs.sort_by(|a, b| (&b.tick, &b.task, &b.node).cmp(&(&a.tick, &a.task, &a.node)));
    if common.is_json() {
        output::json(&Runs { runs })?;
    } else if runs.is_empty() {
        output::print("No runs yet; run `tenure task list` to see the schedule.")?;
    } else {
        output::print(&run_table(&runs))?;
    }
    Ok(Exit::Done)
}

fn newest_of(task: &TaskStatus, limit: usize) -> impl Iterator<Item = &TaskRun> {
    let skipped = task.runs.len().saturating_sub(limit);
    task.runs.iter().skip(skipped)
}

fn run_table(runs: &[&TaskRun]) -> String {
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
        let first = time::clock_of(&run.tick);
        let tick = match (&run.to, &run.trigger) {
            (Some(to), _) => format!("{first} … {} ({})", time::clock_of(to), run.count),
            (None, Some(_)) => format!("{first} (triggered)"),
            (None, None) => first,
        };
        table.row([
            Cell::new(&run.task, Tone::Strong),
            tick.into(),
            Cell::new(&run.state, tone_of(&run.state)),
            Cell::from(&run.node),
            run.token.to_string().into(),
            Cell::or_none(run.took_ms.map(|ms| time::span(Duration::from_millis(ms))), Tone::Plain),
            Cell::or_none((run.attempts > 0).then(|| run.attempts.to_string()), Tone::Plain),
            Cell::or_none(run.exit.map(|exit| exit.to_string()), Tone::Plain),
            Cell::or_none((!run.why.is_empty()).then_some(&run.why), Tone::Plain),
        ]);
    }
    table.render(width())
}

fn tone_of(state: &str) -> Tone {
    match state {
        "running" | "succeeded" => Tone::Good,
        "failed" | "timed-out" => Tone::Bad,
        "cancelled" | "interrupted" | "missed" => Tone::Warn,
        _ => Tone::Faint,
    }
}

/// Asks for a run, and waits until it has ended.
async fn trigger(common: &Common, args: &TaskAskArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let (task, begun) = (&args.task, Instant::now());
    known(&source, &source.tasks(None).await?, task)?;
    let id = source.trigger_task(task, &args.why).await?;
    loop {
        let found = source.tasks(Some(task)).await?;
        let run = found.iter().flat_map(|task| &task.runs).find(|run| run.trigger.as_ref() == Some(&id));
        let over = run.is_some_and(|run| run.state != "running");
        if over || begun.elapsed() >= args.wait {
            return triggered(common, args, run);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn triggered(common: &Common, args: &TaskAskArgs, run: Option<&TaskRun>) -> Result<Exit, Exit> {
    let (task, waited) = (&args.task, time::span(args.wait));
    let Some(run) = run else {
        return Err(Exit::No(format!(
            "{task} has not started within {waited}: no node runs it now; it starts as soon as one does"
        )));
    };
    if common.is_json() {
        output::json(&TaskOutcome { task, state: &run.state, changed: true, run: Some(run) })?;
    }
    let took = time::span(Duration::from_millis(run.took_ms.unwrap_or_default()));
    match run.state.as_str() {
        "succeeded" if common.is_json() => {}
        "succeeded" => output::print(&format!("{task} succeeded on {} (took {took})", run.node))?,
        "running" => {
            return Err(Exit::No(format!("{task} is still running on {} after {waited}", run.node)));
        }
        state => return Err(Exit::No(format!("{task}: {state} on {}: {}", run.node, sanitize(&run.why)))),
    }
    Ok(Exit::Done)
}

async fn pause(common: &Common, args: &TaskAskArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let task = &args.task;
    known(&source, &source.tasks(None).await?, task)?;
    let changed = source.pause_task(task, &args.why).await?;
    let resume = format!("run `tenure task resume {task}` to end the pause");
    let text = match changed {
        true => format!("{task} is paused; {resume}"),
        false => format!("{task} was already paused; {resume}"),
    };
    print_outcome(common, task, "paused", changed, &text)
}

async fn resume(common: &Common, args: &TaskAskArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let task = &args.task;
    known(&source, &source.tasks(None).await?, task)?;
    let changed = source.resume_task(task, &args.why).await?;
    let text = match changed {
        true => format!("{task} is resumed"),
        false => format!("{task} was not paused"),
    };
    print_outcome(common, task, "resumed", changed, &text)
}

fn print_outcome(common: &Common, task: &Name, state: &str, changed: bool, text: &str) -> Result<Exit, Exit> {
    match common.is_json() {
        true => output::json(&TaskOutcome { task, state, changed, run: None })?,
        false => output::print(text)?,
    }
    Ok(Exit::Done)
}

/// There is such a task; or which one may have been meant.
fn known(source: &Source, found: &[TaskStatus], task: &Name) -> Result<(), Exit> {
    if found.iter().any(|view| view.task == task.as_str()) {
        return Ok(());
    }
    let namespace = source.namespace().clone();
    let names = found.iter().map(|view| view.task.as_str());
    Err(match super::nearest::nearest(task.as_str(), names) {
        Some(meant) => {
            Exit::No(format!("task \"{task}\" not found in namespace \"{namespace}\"; did you mean {meant}?"))
        }
        None => Error::NoSuchTask { task: task.clone(), namespace }.into(),
    })
}
