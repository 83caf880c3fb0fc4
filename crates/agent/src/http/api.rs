//! The description of the API, for programs: what handlers say of themselves, and what holds for all of them.

use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::{ContentBuilder, OpenApi as Description, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::problem::Problem;
use super::{actions, alerts, is_stream, queries, streams, tasks};

/// Everything that can be asked, for programs.
#[derive(Debug, OpenApi)]
#[openapi(
    info(title = "tenure agent", description = "Exactly one leader per role, on the store you already run."),
    paths(
        queries::livez,
        queries::readyz,
        queries::leader,
        queries::cluster,
        queries::roles,
        queries::role,
        queries::nodes,
        queries::history,
        queries::audit,
        queries::metrics,
        queries::openapi,
        streams::events,
        streams::campaign,
        streams::ready,
        actions::transfer,
        actions::step_down,
        actions::pause,
        actions::resume,
        actions::forget,
        actions::pin,
        actions::unpin,
        actions::eligible,
        actions::drain,
        actions::undrain,
        actions::cancel,
        tasks::tasks,
        tasks::task,
        tasks::trigger,
        tasks::pause,
        tasks::resume,
        alerts::alerts,
        alerts::acknowledge,
        alerts::resolve,
        alerts::silence,
        alerts::unsilence,
    ),
    components(schemas(Problem)),
    modifiers(&Everywhere)
)]
pub struct Api;

/// Every problem that there is, and what it means.
const PROBLEMS: &[(u16, &str)] = &[
    (400, "The request is invalid; `field` names the part."),
    (401, "A token is required."),
    (403, "This client may read but not act, or the request comes from a page of another origin."),
    (404, "The role, node, task or alert does not exist."),
    (409, "The current state of the cluster does not allow it."),
    (413, "The body is larger than `http.max-body`."),
    (415, "The body is not `application/json`."),
    (421, "The Host header names another host; `http.hosts` lists the names of this agent."),
    (429, "Too many requests per second, or too many open streams."),
    (503, "The store cannot be used."),
    (504, "The request took longer than `http.request-timeout`."),
];

/// Adds to each operation the problems that follow from how it is asked, so that handlers name only what is their own.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, api: &mut Description) {
        let components = api.components.get_or_insert_default();
        for (status, meaning) in PROBLEMS {
            components.responses.insert(name_of(*status), problem(meaning).into());
        }
        for (path, item) in &mut api.paths.paths {
            for (asks, operation) in [
                (Asks::Look, &mut item.get),
                (Asks::Head, &mut item.head),
                (Asks::Act, &mut item.post),
                (Asks::Act, &mut item.delete),
            ] {
                if let Some(operation) = operation {
                    complete(path, asks, operation);
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Look,
    Head,
    Act,
}

fn name_of(status: u16) -> String {
    format!("Problem{status}")
}

fn problem(meaning: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(meaning).content("application/problem+json", content).build()
}

fn complete(path: &str, asks: Asks, operation: &mut Operation) {
    let own = &mut operation.responses.responses;
    // What handlers call a problem is the one that all share.
    for (status, response) in own.iter_mut() {
        let (RefOr::T(found), Ok(status)) = (&mut *response, status.parse()) else { continue };
        if is_problem(found) {
            *response = RefOr::Ref(Ref::from_response_name(name_of(status)));
        } else if found.description.is_empty() {
            found.description = meaning(status).to_owned();
        }
    }
    for status in implied(path, asks, operation) {
        let own = &mut operation.responses.responses;
        own.entry(status.to_string()).or_insert_with(|| Ref::from_response_name(name_of(status)).into());
    }
    operation.parameters.iter_mut().flatten().for_each(never_null);
    if asks == Asks::Head {
        operation.operation_id = operation.operation_id.take().map(|id| format!("{id}_head"));
    }
}

/// What comes in a URL or a header can be missing, but not null.
fn never_null(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(parameter) = parameter
        && let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &mut object.schema_type
    {
        types.retain(|one| *one != Type::Null);
    }
}

/// What an answer means that is none of the problems.
fn meaning(status: u16) -> &'static str {
    match status {
        202 => "Accepted; the transfer is scheduled.",
        503 => "This node does not lead the role, or the agent is not ready.",
        _ => "Success.",
    }
}

fn is_problem(response: &Response) -> bool {
    let problem = RefOr::Ref(Ref::from_schema_name("Problem"));
    let is = |content: &RefOr<utoipa::openapi::Content>| matches!(content, RefOr::T(content) if content.schema.as_ref() == Some(&problem));
    response.content.values().any(is)
}

/// What follows from the way something is asked.
fn implied(path: &str, asks: Asks, operation: &Operation) -> Vec<u16> {
    let mut all = vec![401, 403, 421, 429];
    let parameters: Vec<&ParameterIn> = operation
        .parameters
        .iter()
        .flatten()
        .filter_map(|parameter| match parameter {
            RefOr::T(parameter) => Some(&parameter.parameter_in),
            RefOr::Ref(_) => None,
        })
        .collect();
    let has = |place: ParameterIn| parameters.iter().any(|found| **found == place);
    if has(ParameterIn::Path) || has(ParameterIn::Query) || operation.request_body.is_some() {
        all.push(400);
    }
    if has(ParameterIn::Path) {
        all.push(404);
    }
    if operation.request_body.is_some() {
        all.extend([413, 415]);
    }
    if !is_stream(path) {
        all.push(504);
    }
    // A client that is ready tells the agent alone; all else that acts is written to the store.
    if asks == Asks::Act && !path.starts_with("/v1/campaign/") {
        all.extend([409, 503]);
    }
    all
}
