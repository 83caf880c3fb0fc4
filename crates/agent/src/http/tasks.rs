//! Scheduled tasks: their ledgers, and the actions of operators. The agent reads ledgers on request, and at most once a
//! second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use tenure::Operator;
use tokio::sync::Mutex;

use super::App;
use super::actions::{ActionAnswer, OperatorRequest};
use super::extract::{NameText, OperatorCall, Params, Subject};
use super::json::Json;
use super::problem::Problem;
use super::queries::{PAGE, page};
use crate::model::{ActionOutcome, TaskStatus, TaskTriggered, TasksPage};

/// How long ledgers that were read are good enough for a client that reads all of them.
const FRESH: Duration = Duration::from_secs(1);
/// So many runs of each task are told if not otherwise asked, and at most.
const RUNS: (usize, usize) = (20, 200);

/// The ledgers, as they were read last.
#[derive(Debug, Default)]
pub struct Ledgers {
    read: Mutex<Option<(Instant, Arc<Vec<TaskStatus>>)>>,
}

impl Ledgers {
    /// All of them. A client that asks while they are read waits for that, and does not read them again.
    async fn all(&self, operator: &Operator) -> Result<Arc<Vec<TaskStatus>>, Problem> {
        let mut read = self.read.lock().await;
        if let Some((at, tasks)) = &*read
            && at.elapsed() < FRESH
        {
            return Ok(tasks.clone());
        }
        let mut tasks: Vec<TaskStatus> =
            operator.tasks(None).await?.iter().map(|record| TaskStatus::of(record, RUNS.1)).collect();
        tasks.sort_by(|a, b| a.id.cmp(&b.id));
        let tasks = Arc::new(tasks);
        *read = Some((Instant::now(), tasks.clone()));
        Ok(tasks)
    }

    /// Something was changed: the next answer must show it.
    async fn forget(&self) {
        *self.read.lock().await = None;
    }
}

/// Scheduled tasks with their last runs, a page at a time.
#[utoipa::path(
    get, path = "/v1/tasks",
    params(
        ("after" = Option<String>, Query, description = "Last id of the previous page"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "Page size; default 100"),
        ("search" = Option<String>, Query, description = "Only tasks whose name, role, node or state contains this text"),
        ("runs" = Option<usize>, Query, maximum = 200, description = "How many runs of each task; default 20"),
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
    let matches = |task: &TaskStatus| {
        search.is_empty()
            || task.task.contains(&search)
            || named(&task.role)
            || named(&task.node)
            || task.state == search
    };
    let (page, next, total) = page(all.as_slice(), |task| task.id.as_str(), matches, after.as_deref(), limit);
    let short = |task: &TaskStatus| {
        let skipped = task.runs.len().saturating_sub(runs);
        TaskStatus { runs: task.runs[skipped..].to_vec(), ..task.clone() }
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
        let detail = format!("task \"{task}\" not found (GET /v1/tasks lists tasks)");
        return Err(Problem::missing("task", detail));
    }
    let tasks: Vec<TaskStatus> = found.iter().map(|record| TaskStatus::of(record, RUNS.1)).collect();
    Ok(Json(TasksPage { total: tasks.len(), tasks, next: None }))
}

/// Asks for a run at once, whatever the schedule says. Answers before it begins; `/v1/tasks/{task}` tells how it went.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/trigger", params(("task" = NameText, Path, description = "The task")),
    request_body = OperatorRequest, responses((status = 202, body = TaskTriggered))
)]
pub async fn trigger(
    OperatorCall { app, subject: task, request, operator }: OperatorCall<OperatorRequest>,
) -> Result<(StatusCode, Json<TaskTriggered>), Problem> {
    let id = operator.trigger_task(&task, &request.why).await?;
    app.ledgers.forget().await;
    let (message, trigger) = (format!("{task} is triggered"), id.to_string());
    Ok((StatusCode::ACCEPTED, Json(TaskTriggered { task: task.to_string(), trigger, message })))
}

/// Lets the ticks of a task pass until it is resumed.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/pause", params(("task" = NameText, Path, description = "The task")),
    operation_id = "pause_task", request_body = OperatorRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn pause(
    OperatorCall { app, subject: task, request, operator }: OperatorCall<OperatorRequest>,
) -> ActionAnswer {
    let changed = operator.pause_task(&task, &request.why).await?;
    app.ledgers.forget().await;
    let message = if changed { format!("{task} is paused") } else { format!("{task} was already paused") };
    Ok(Json(ActionOutcome { changed, ..ActionOutcome::new("pause", &task, message) }))
}

/// Lets a paused task run again.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/resume", params(("task" = NameText, Path, description = "The task")),
    operation_id = "resume_task", request_body = OperatorRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn resume(
    OperatorCall { app, subject: task, request, operator }: OperatorCall<OperatorRequest>,
) -> ActionAnswer {
    let changed = operator.resume_task(&task, &request.why).await?;
    app.ledgers.forget().await;
    let message = if changed { format!("{task} is resumed") } else { format!("{task} was not paused") };
    Ok(Json(ActionOutcome { changed, ..ActionOutcome::new("resume", &task, message) }))
}
