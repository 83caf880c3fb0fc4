//! Scheduled tasks: their ledgers, and what operators ask of them. Ledgers are read when somebody asks for them, and at
//! most once a second: while nobody looks and nothing is due, nothing is read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure::Operator;
use tenure::ledger::{Record, Run, RunState, Totals};
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::App;
use super::act::{Answer, Ask, plain};
use super::extract::{Asked, NameText, Params, Subject};
use super::look::{PAGE, page};
use super::problem::Problem;
use super::views::{Done, OrderView, stamp};

/// How long ledgers that were read are good enough for whoever looks at all of them.
const FRESH: Duration = Duration::from_secs(1);
/// So many runs of each task are told if not otherwise asked, and at most.
const RUNS: (usize, usize) = (20, 200);

/// Some tasks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TasksPage {
    /// The tasks, by id.
    pub tasks: Vec<TaskView>,
    /// Pass it as `after` for the next page; none on the last.
    pub next: Option<String>,
    /// How many match in all.
    pub total: usize,
}

/// A task; one for each node, if every node runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// The name of its ledger: the task's, or the task's and the node's.
    pub id: String,
    /// Its name.
    pub task: String,
    /// The role whose leader runs it; none: every node runs it.
    pub role: Option<String>,
    /// Whose ledger it is, if every node runs it.
    pub node: Option<String>,
    /// When it runs, as it was written.
    pub when: String,
    /// In which time zone.
    pub zone: String,
    /// waiting, running, paused; retired if it is in no schedule any more.
    pub state: String,
    /// The next tick.
    pub next: Option<String>,
    /// How many ticks are still to be run: caught up, queued, or interrupted and allowed another time.
    pub owed: usize,
    /// Who paused it, and why.
    pub paused: Option<OrderView>,
    /// Everything that ever happened, in numbers.
    pub totals: TotalsView,
    /// The last run, or what was passed over last.
    pub last: Option<RunView>,
    /// The last runs, and what was passed over, the newest last.
    pub runs: Vec<RunView>,
}

/// Everything that ever happened to a task, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TotalsView {
    /// Runs started.
    pub runs: u64,
    /// Runs that failed or timed out.
    pub failures: u64,
    /// Runs that were cancelled or interrupted.
    pub interrupted: u64,
    /// Runs started later than they should have been.
    pub late: u64,
    /// Ticks missed and not caught up.
    pub missed: u64,
    /// Ticks skipped.
    pub skipped: u64,
    /// How long all runs took together.
    pub took_ms: u64,
}

/// A run; or a row of ticks that were passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// Of which task.
    pub task: String,
    /// The tick that it is for; the first of them, if several were passed over.
    pub tick: String,
    /// The last of several ticks that were passed over.
    pub to: Option<String>,
    /// How many ticks.
    pub count: u64,
    /// running, succeeded, failed, timed-out, cancelled, interrupted, missed, skipped.
    pub state: String,
    /// Under which token.
    pub token: u64,
    /// On which node.
    pub node: String,
    /// When it was started.
    pub started: Option<String>,
    /// How long it took.
    pub took_ms: Option<u64>,
    /// How often it was tried.
    pub attempts: u32,
    /// The exit code, or the HTTP status.
    pub exit: Option<i32>,
    /// Why it did not succeed, or why it was passed over.
    pub why: String,
    /// The request of an operator that it answers.
    pub trigger: Option<String>,
}

/// A run was asked for.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Triggered {
    /// What was done.
    pub done: String,
    /// The request: the run that answers it carries it.
    pub trigger: String,
}

impl TaskView {
    /// With so many of its last runs.
    #[must_use]
    pub fn of(record: &Record, runs: usize) -> Self {
        let text = |name: &Option<tenure::Name>| name.as_ref().map(ToString::to_string);
        let view = |run| RunView::of(record.task.as_str(), run);
        let skipped = record.runs.len().saturating_sub(runs);
        Self {
            id: id_of(record),
            task: record.task.to_string(),
            role: text(&record.role),
            node: text(&record.node),
            when: record.when.clone(),
            zone: record.zone.clone(),
            state: state_of(record).to_owned(),
            next: record.next.map(stamp),
            owed: record.owed.len(),
            paused: record.paused.as_ref().map(OrderView::from),
            totals: TotalsView::from(record.totals),
            last: record.runs.last().map(view),
            runs: record.runs.iter().skip(skipped).map(view).collect(),
        }
    }
}

impl From<Totals> for TotalsView {
    fn from(totals: Totals) -> Self {
        let Totals { runs, failures, interrupted, late, missed, skipped, took_ms } = totals;
        Self { runs, failures, interrupted, late, missed, skipped, took_ms }
    }
}

impl RunView {
    fn of(task: &str, run: &Run) -> Self {
        Self {
            task: task.to_owned(),
            tick: stamp(run.tick),
            to: run.to.map(stamp),
            count: run.count,
            state: run.state.to_string(),
            token: run.token.0,
            node: run.node.to_string(),
            started: run.started.map(stamp),
            took_ms: run.took_ms,
            attempts: run.attempts,
            exit: run.exit,
            why: run.why.clone(),
            trigger: run.trigger.map(|id| id.to_string()),
        }
    }
}

fn id_of(record: &Record) -> String {
    match &record.node {
        Some(node) => format!("{}.{node}", record.task),
        None => record.task.to_string(),
    }
}

fn state_of(record: &Record) -> &'static str {
    let running = record.runs.iter().any(|run| run.state == RunState::Running);
    match (&record.paused, running, record.next) {
        (Some(_), ..) => "paused",
        (None, true, _) => "running",
        (None, false, None) => "retired",
        (None, false, Some(_)) => "waiting",
    }
}

/// The ledgers, as they were read last.
#[derive(Debug, Default)]
pub struct Ledgers {
    read: Mutex<Option<(Instant, Arc<Vec<TaskView>>)>>,
}

impl Ledgers {
    /// All of them. Whoever asks while they are read waits for that, and does not read them again.
    async fn all(&self, operator: &Operator) -> Result<Arc<Vec<TaskView>>, Problem> {
        let mut read = self.read.lock().await;
        if let Some((at, tasks)) = &*read
            && at.elapsed() < FRESH
        {
            return Ok(tasks.clone());
        }
        let mut tasks: Vec<TaskView> =
            operator.tasks(None).await?.iter().map(|record| TaskView::of(record, RUNS.1)).collect();
        tasks.sort_by(|a, b| a.id.cmp(&b.id));
        let tasks = Arc::new(tasks);
        *read = Some((Instant::now(), tasks.clone()));
        Ok(tasks)
    }

    /// Something was changed: whoever asks next is to see it.
    async fn forget(&self) {
        *self.read.lock().await = None;
    }
}

/// Scheduled tasks with their last runs, a page at a time.
#[utoipa::path(
    get, path = "/v1/tasks",
    params(
        ("after" = Option<String>, Query, description = "The last id of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "How many; 100 if not said"),
        ("search" = Option<String>, Query, description = "Only names, roles, nodes and states that contain this"),
        ("runs" = Option<usize>, Query, maximum = 200, description = "How many runs of each; 20 if not said"),
    ),
    responses((status = 200, body = TasksPage), (status = 503, body = Problem))
)]
pub async fn tasks(State(app): State<Arc<App>>, mut params: Params) -> Result<Json<TasksPage>, Problem> {
    let (after, limit) = (params.text("after"), params.number("limit", PAGE.0, PAGE.1)?);
    let (search, runs) =
        (params.text("search").unwrap_or_default(), params.within("runs", RUNS.0, 0..=RUNS.1)?);
    params.done()?;
    let all = app.ledgers.all(&app.operator).await?;
    let named = |name: &Option<String>| name.as_ref().is_some_and(|name| name.contains(&search));
    let matches = |task: &TaskView| {
        search.is_empty()
            || task.task.contains(&search)
            || named(&task.role)
            || named(&task.node)
            || task.state == search
    };
    let (page, next, total) = page(all.as_slice(), |task| task.id.as_str(), matches, after.as_deref(), limit);
    let short = |task: &TaskView| {
        let skipped = task.runs.len().saturating_sub(runs);
        TaskView { runs: task.runs[skipped..].to_vec(), ..task.clone() }
    };
    Ok(Json(TasksPage { tasks: page.into_iter().map(short).collect(), next, total }))
}

/// One task, with all its runs that are kept: several, if every node runs it. Always read anew.
#[utoipa::path(
    get, path = "/v1/tasks/{task}", params(("task" = NameText, Path, description = "The task")),
    responses((status = 200, body = TasksPage), (status = 503, body = Problem))
)]
pub async fn task(State(app): State<Arc<App>>, Subject(task): Subject) -> Result<Json<TasksPage>, Problem> {
    let found = app.operator.tasks(Some(&task)).await?;
    if found.is_empty() {
        let detail = format!("there is no task {task}; /v1/tasks lists those there are");
        return Err(Problem::missing("task", detail));
    }
    let tasks: Vec<TaskView> = found.iter().map(|record| TaskView::of(record, RUNS.1)).collect();
    Ok(Json(TasksPage { total: tasks.len(), tasks, next: None }))
}

/// Asks for a run at once, whatever the schedule says. Answers before it begins; `/v1/tasks/{task}` tells how it went.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/trigger", params(("task" = NameText, Path, description = "The task")),
    request_body = Ask, responses((status = 202, body = Triggered))
)]
pub async fn trigger(
    Asked { app, subject: task, ask, operator }: Asked<Ask>,
) -> Result<(StatusCode, Json<Triggered>), Problem> {
    let id = operator.trigger_task(&task, &ask.why).await?;
    app.ledgers.forget().await;
    let done = format!("{task} is to run at once");
    Ok((StatusCode::ACCEPTED, Json(Triggered { done, trigger: id.to_string() })))
}

/// Lets the ticks of a task pass until it is resumed.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/pause", params(("task" = NameText, Path, description = "The task")),
    operation_id = "pause_task", request_body = Ask, responses((status = 200, body = Done))
)]
pub async fn pause(Asked { app, subject: task, ask, operator }: Asked<Ask>) -> Answer {
    let new = operator.pause_task(&task, &ask.why).await?;
    app.ledgers.forget().await;
    Ok(Json(plain(if new { format!("{task} is paused") } else { format!("{task} is paused already") })))
}

/// Lets a paused task run again.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/resume", params(("task" = NameText, Path, description = "The task")),
    operation_id = "resume_task", request_body = Ask, responses((status = 200, body = Done))
)]
pub async fn resume(Asked { app, subject: task, ask, operator }: Asked<Ask>) -> Answer {
    let was = operator.resume_task(&task, &ask.why).await?;
    app.ledgers.forget().await;
    Ok(Json(plain(if was { format!("{task} is resumed") } else { format!("{task} was not paused") })))
}
