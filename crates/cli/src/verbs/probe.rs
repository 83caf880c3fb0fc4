//! `tenure probe`: whether an agent is alive, is ready, or leads a role; for probes of containers, which have no curl.

use serde_json::Value;

use super::source::Source;
use crate::args::{Common, ProbeVerb};
use crate::exit::Exit;
use crate::output::{self, tame};

/// Exits with 0 if the answer is yes, with 1 if it is no.
///
/// # Errors
/// If the answer is no, or there is no agent to ask.
pub async fn main(common: &Common, probe: &ProbeVerb) -> Result<Exit, Exit> {
    let Source::Agent(agent) = Source::of(common).await? else {
        let why = "no agent answers here: name one with --agent or TENURE_AGENT";
        return Err(Exit::No(why.to_owned()));
    };
    let (path, yes) = match probe {
        ProbeVerb::Live => ("/livez".to_owned(), "alive".to_owned()),
        ProbeVerb::Ready => ("/readyz".to_owned(), "ready".to_owned()),
        ProbeVerb::Leader { role } => (format!("/leader/{role}"), format!("leads {role}")),
    };
    let (well, said) = agent.probe(&path).await?;
    if !well {
        return Err(Exit::No(tame(&why_not(&said, &yes))));
    }
    if common.is_json() {
        output::json(&said)?;
    } else {
        output::print(&yes)?;
    }
    Ok(Exit::Done)
}

/// A probe says why; whoever does not lead says who does; and a problem says what is wrong.
fn why_not(said: &Value, yes: &str) -> String {
    let text = |key: &str| said[key].as_str();
    match (text("why").or(text("detail")), text("leader")) {
        (Some(why), _) => why.to_owned(),
        (None, Some(leader)) => format!("not here: {leader} {yes}"),
        (None, None) => format!("not here: nobody {yes}"),
    }
}
