//! `tenure watch`: a line whenever something changes.

use std::io::IsTerminal;

use serde::Serialize;
use tenure::operator::ClusterChange;
use tenure::{EndReason, Name, StartReason};
use tokio::signal::unix::{SignalKind, signal};

use super::source::Source;
use crate::args::{Common, WatchArgs};
use crate::exit::Exit;
use crate::output::table::Tone;
use crate::output::time::{self, Stamp};
use crate::output::{self, sanitize};

/// Prints changes until it is interrupted, has printed enough, or its output is closed.
///
/// # Errors
/// If the store cannot be used.
pub async fn main(common: &Common, args: &WatchArgs) -> Result<Exit, Exit> {
    let no_signals = |error| Exit::Failed(format!("cannot handle signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    tokio::select! {
        ended = follow(common, args) => ended,
        _ = interrupt.recv() => Ok(Exit::Done),
        _ = terminate.recv() => Ok(Exit::Done),
    }
}

async fn follow(common: &Common, args: &WatchArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let mut watch = source.watch().await?;
    if !common.is_json() && std::io::stdout().is_terminal() {
        let hello = format!(
            "Watching namespace {} of {}; press Ctrl-C to stop.",
            source.namespace(),
            source.location()
        );
        output::print(&Tone::Faint.paint(&hello))?;
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        for change in watch.next().await?.iter().filter(|change| wanted(change, &args.roles)) {
            let at = Stamp::now();
            let text = if common.is_json() { ndjson(at, change) } else { pretty(at, change) };
            left -= 1;
            if !output::line(&text)? || left == 0 {
                return Ok(Exit::Done);
            }
        }
    }
    Ok(Exit::Done)
}

/// With roles named, only what is about them.
fn wanted(change: &ClusterChange, roles: &[Name]) -> bool {
    roles.is_empty() || change.role().is_some_and(|role| roles.contains(role))
}

fn ndjson(at: Stamp, change: &ClusterChange) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        at: Stamp,
        #[serde(flatten)]
        change: &'a ClusterChange,
    }
    tenure_agent::text::json(&Line { at, change })
}

fn pretty(at: Stamp, change: &ClusterChange) -> String {
    let (subject, tone, what) = sentence(change);
    let subject = match change.role() {
        Some(_) => Tone::Strong.paint(&subject),
        None => subject,
    };
    format!("{}  {subject}  {}", Tone::Faint.paint(&time::clock_millis(at.0)), tone.paint(&sanitize(&what)))
}

/// What it is about, how it is to be taken, and what it says.
pub(super) fn sentence(change: &ClusterChange) -> (String, Tone, String) {
    // That a vacant role is claimed needs no explanation.
    let began = |reason: &Option<StartReason>| match reason {
        None | Some(StartReason::First | StartReason::Vacant) => String::new(),
        Some(reason) => format!(" ({reason})"),
    };
    let ended = |reason: &Option<EndReason>| reason.map_or(String::new(), |reason| format!(" ({reason})"));
    let former = |former: &Option<Name>| former.as_ref().map_or("its leader", Name::as_str).to_owned();
    match change {
        ClusterChange::LeaderChanged { role, leader, token, former: Some(was), reason } if was != leader => {
            let what = format!("{leader} leads after {was}, token {token}{}", began(reason));
            (role.to_string(), Tone::Good, what)
        }
        ClusterChange::LeaderChanged { role, leader, token, reason, .. } => {
            (role.to_string(), Tone::Good, format!("{leader} leads, token {token}{}", began(reason)))
        }
        ClusterChange::LeaderLost { role, former: was, token, reason } => {
            let what = format!("{} is gone, no leader, token was {token}{}", former(was), ended(reason));
            (role.to_string(), Tone::Bad, what)
        }
        ClusterChange::Vacant { role, former: was, token, reason } => {
            let what = format!("{} resigned, no leader, token was {token}{}", former(was), ended(reason));
            (role.to_string(), Tone::Warn, what)
        }
        ClusterChange::LeaderSilent { role, leader, token } => {
            (role.to_string(), Tone::Bad, format!("{leader} is silent: no renewal for a ttl, token {token}"))
        }
        ClusterChange::LeaderBack { role, leader, token } => {
            (role.to_string(), Tone::Good, format!("{leader} renews again, token {token}"))
        }
        ClusterChange::Paused { role, by, why } if why.is_empty() => {
            (role.to_string(), Tone::Warn, format!("paused by {by}"))
        }
        ClusterChange::Paused { role, by, why } => {
            (role.to_string(), Tone::Warn, format!("paused by {by}: {why}"))
        }
        ClusterChange::Resumed { role } => (role.to_string(), Tone::Good, "resumed".to_owned()),
        ClusterChange::NodeJoined { node, .. } => (format!("node {node}"), Tone::Plain, "joined".to_owned()),
        ClusterChange::NodeLeft { node, .. } => (format!("node {node}"), Tone::Plain, "left".to_owned()),
        ClusterChange::NodeExpelled { node, .. } => {
            (format!("node {node}"), Tone::Warn, "was expelled: another node ended its session".to_owned())
        }
        ClusterChange::StoreForgot { role: None, .. } => {
            ("the store".to_owned(), Tone::Bad, "lost every write that it had acknowledged".to_owned())
        }
        ClusterChange::StoreForgot { role: Some(role), token, now } => {
            let of = |token: &Option<tenure::Token>| token.map_or(0, tenure::Token::get);
            let what = format!(
                "the store lost acknowledged writes: the token fell from {} to {}",
                of(token),
                of(now)
            );
            (role.to_string(), Tone::Bad, what)
        }
        other => (String::new(), Tone::Plain, format!("{other:?}")),
    }
}
