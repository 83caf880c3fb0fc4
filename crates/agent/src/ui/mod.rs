//! The dashboard: plain files that are part of the binary. They ask no server but the agent, and nothing is generated.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::http::problem::Problem;

/// Every file: its name, its kind, and what is in it.
pub const FILES: &[(&str, &str, &str)] = &[
    ("index.html", HTML, include_str!("index.html")),
    ("style.css", CSS, include_str!("style.css")),
    ("app.js", SCRIPT, include_str!("app.js")),
    ("api.js", SCRIPT, include_str!("api.js")),
    ("detail.js", SCRIPT, include_str!("detail.js")),
    ("dialog.js", SCRIPT, include_str!("dialog.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("list.js", SCRIPT, include_str!("list.js")),
    ("model.js", SCRIPT, include_str!("model.js")),
    ("tasks.js", SCRIPT, include_str!("tasks.js")),
    ("timeline.js", SCRIPT, include_str!("timeline.js")),
    ("views.js", SCRIPT, include_str!("views.js")),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Every item of the page, as its files mark it (`data-item`), and what it is. The browser tests touch each.
pub const ITEMS: &[(&str, &str)] = &[
    ("health", "how the cluster fares; pressed, it says why"),
    ("health-why", "why it is not healthy, the worst first"),
    ("alert-badge", "how many alerts fire; pressed, their view"),
    ("place", "namespace, store, the agent's node, ttl, version"),
    ("search", "narrows every view"),
    ("theme", "as the system, light, dark"),
    ("help", "shows the keys"),
    ("keys", "what the keys do"),
    ("lost-banner", "the agent does not answer, since when, and that what is shown is old"),
    ("retry", "asks the agent again at once"),
    ("store-banner", "the agent answers, but cannot see its store"),
    ("tab-roles", "the view of roles"),
    ("tab-nodes", "the view of nodes"),
    ("tab-timeline", "the view of tenures"),
    ("tab-events", "the view of events"),
    ("tab-audit", "the view of what operators did"),
    ("tab-tasks", "the view of scheduled tasks"),
    ("tab-alerts", "the view of alerts, with how many fire"),
    ("role-states", "roles by state; pressed, only those"),
    ("roles", "the list of roles"),
    (
        "sort",
        "a title of the list of roles: pressed, they are sorted by it; those in trouble come first otherwise",
    ),
    ("hour", "who led a role in the last hour, in its row"),
    ("act-why", "why a button cannot be pressed"),
    ("role", "a role: state, leader, token, for how long, next in line"),
    ("lease", "how much of the leader's lease is left"),
    ("nodes", "the list of nodes"),
    ("node", "a node: state, lease, how many roles it leads and is a candidate for, address"),
    ("labels", "what people say about a node"),
    ("timeline", "a lane of tenures for each role"),
    ("lane", "which nodes led a role, and for how long none did"),
    ("axis", "the times of all lanes"),
    ("zoom", "buttons that move the window of time"),
    ("zoom-in", "half as much time"),
    ("zoom-out", "twice as much time"),
    ("zoom-all", "all there is"),
    ("earlier", "the time before"),
    ("later", "the time after"),
    ("legend", "what the colours of gaps mean"),
    ("tip", "a tenure or a gap in words, with its reason"),
    ("event-filters", "events by kind; pressed, only those"),
    ("events", "the list of events, the newest first"),
    ("event", "an event"),
    ("audit", "the list of what operators did"),
    ("audit-entry", "an entry: who, action, subject, reason"),
    ("tasks", "the list of tasks"),
    ("task", "a task: state, where and when it runs, its next tick, how often it failed or was missed"),
    ("task-strip", "its last ticks as marks, the newest at the right; each says when, how and why"),
    ("task-state", "the state of the chosen task"),
    ("task-next", "its next tick"),
    ("task-when", "its schedule"),
    ("task-place", "whose leader runs it, or which node"),
    ("task-owed", "how many ticks are still to be run"),
    ("task-totals", "everything that ever happened to it, in numbers"),
    ("task-note", "by whom it is paused, and why"),
    ("task-runs", "its last runs in words"),
    ("trigger", "asks why, and runs it now"),
    ("task-pause", "asks why, and lets its ticks pass"),
    ("task-resume", "asks why, and lets it run again"),
    ("alerts", "the list of alerts"),
    ("alert", "an alert: state, severity, since when, condition"),
    ("detail", "everything about the role, node or task that was chosen"),
    ("detail-close", "closes it"),
    ("role-state", "the state of the chosen role"),
    ("role-leader", "its leader, and where that is reached"),
    ("role-token", "its token, and why the tenure began"),
    ("role-duration", "duration of the tenure, and since when"),
    ("role-lease", "how much of the lease is left"),
    ("role-note", "paused, pinned, being handed over: by whom and why"),
    ("candidates", "candidates in the order in which they claim"),
    ("role-timeline", "its own lane of tenures"),
    ("tenures", "its tenures in words"),
    ("role-audit", "its audit entries"),
    ("transfer", "asks where to, and why, and hands it over"),
    ("step-down", "asks why, and makes the leader give up"),
    ("pause", "asks why, and keeps the role without a leader"),
    ("resume", "asks why, and lets it be led again"),
    ("node-state", "the state of the chosen node"),
    ("node-labels", "its labels"),
    ("node-host", "the host it runs on"),
    ("node-version", "the version of Tenure in it"),
    ("node-roles", "the roles it leads"),
    ("drain", "asks why, and makes it give up its roles"),
    ("undrain", "asks why, and ends the drain"),
    ("alert-state", "the state of the chosen alert, and how bad it is"),
    ("alert-condition", "when it holds"),
    ("alert-note", "acknowledged, resolved, silenced: by whom and why; or why it cannot be evaluated"),
    ("alert-instances", "what fires, and since when"),
    ("alert-notified", "who was told what, or why not"),
    ("acknowledge", "asks why, and says that an operator looks after it"),
    ("resolve", "asks why, and ends it"),
    ("silence", "asks for how long and why, and notifies no target meanwhile"),
    ("unsilence", "asks why, and notifies targets again"),
    ("confirm", "the question before anything is done"),
    ("confirm-to", "the node that is to lead, or for how long"),
    ("confirm-why", "why; without it nothing is done"),
    ("confirm-by", "who, for the audit trail"),
    ("confirm-error", "why the agent refused"),
    ("confirm-no", "does nothing"),
    ("confirm-yes", "does it"),
    ("ask-token", "asks for a token, where the agent wants one"),
    ("toast", "what was done"),
];

pub async fn page() -> Result<Response, Problem> {
    file(Path("index.html".to_owned())).await
}

/// A file of the page.
///
/// # Errors
/// If there is none of that name.
pub async fn file(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) =
        found.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "the page has no such file"))?;
    Ok(([(header::CONTENT_TYPE, *kind)], *text).into_response())
}

/// Whether this path is the page, which is the same for every client.
#[must_use]
pub fn is_page(path: &str) -> bool {
    path == "/"
        || path.strip_prefix("/ui/").is_some_and(|name| FILES.iter().any(|(known, ..)| *known == name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What the files mark, in HTML and in scripts.
    fn marked() -> BTreeSet<&'static str> {
        let marks = ["data-item=\"", "\"data-item\": \"", "dataset.item = \""];
        let of = |mark: &'static str, text: &'static str| {
            text.split(mark).skip(1).filter_map(|rest| rest.split('"').next())
        };
        let made = ["fact(facts, title, item)", "[\""];
        let mut found: BTreeSet<_> =
            FILES.iter().flat_map(|(_, _, text)| marks.iter().flat_map(|mark| of(mark, text))).collect();
        // Made by small functions that take the name first or second.
        for (_, _, text) in FILES {
            found.extend(of("button(\"", text));
            found.extend(of("make(\"", text));
            found.extend(of("fact(facts, \"Lease left\", \"", text));
            for list in text.lines().filter(|line| line.contains(made[0])) {
                found.extend(list.split(made[1]).skip(1).filter_map(|pair| pair.split('"').nth(2)));
            }
        }
        found.retain(|name| !name.is_empty() && !name.contains('$'));
        found
    }

    #[test]
    fn every_item_of_the_page_is_listed_and_every_listed_one_is_on_it() {
        let listed: BTreeSet<&str> = ITEMS.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed.len(), ITEMS.len(), "each once");
        assert_eq!(marked(), listed);
    }

    #[test]
    fn nothing_on_the_page_is_inline_comes_from_elsewhere_or_is_parsed_as_markup() {
        for (name, _, text) in FILES {
            for never in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!text.contains(never), "{name}: {never}");
            }
            for elsewhere in ["https://", "//cdn", "@import", " style=\"", " onclick=", "<style"] {
                assert!(!text.contains(elsewhere), "{name}: {elsewhere}");
            }
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, text.matches("<script type=\"module\" src=\"/ui/").count(), "{name}");
        }
    }

    #[test]
    fn only_the_page_itself_is_for_every_client() {
        assert!(is_page("/") && is_page("/ui/app.js"));
        assert!(
            !is_page("/ui/") && !is_page("/ui/app.jsx") && !is_page("/v1/cluster") && !is_page("/metrics")
        );
    }
}
