//! `tenure probe`: whether an agent is alive, is ready, or leads a role; for probes of containers, which have no curl.

use serde_json::Value;
use tenure_agent::client::Agent;

use super::source::Source;
use crate::args::{Common, ProbeVerb};
use crate::exit::Exit;
use crate::output::{self, sanitize};

/// Exits with 0 if the answer is yes, with 1 if it is no.
///
/// # Errors
/// If the answer is no, or there is no agent to ask.
pub async fn main(common: &Common, probe: &ProbeVerb) -> Result<Exit, Exit> {
    let agent = asked(common).await?;
    let (path, yes) = match probe {
        ProbeVerb::Live => ("/livez".to_owned(), "alive".to_owned()),
        ProbeVerb::Ready => ("/readyz".to_owned(), "ready".to_owned()),
        ProbeVerb::Leader { role } => (format!("/leader/{role}"), format!("leads {role}")),
    };
    let (well, said) = agent.probe(&path).await?;
    if !well {
        return Err(Exit::No(sanitize(&why_not(&said, &yes))));
    }
    if common.is_json() {
        output::json(&said)?;
    } else {
        output::print(&yes)?;
    }
    Ok(Exit::Done)
}

/// The agent that was named. Which namespace it is in is asked only if one was named too.
async fn asked(common: &Common) -> Result<Agent, Exit> {
    let named = common.agent.clone().or_else(|| std::env::var("TENURE_AGENT").ok());
    if let (Some(named), None) = (&named, &common.namespace) {
        return Ok(Agent::at(named, common.allow_plaintext_token)?);
    }
    match Source::of(common).await {
        Ok(Source::Agent(agent)) => Ok(agent),
        Err(error) if named.is_some() => Err(error),
        // Without an agent a store would be asked, which has no answer to this.
        Ok(Source::Store(_)) | Err(_) => Err(Exit::No(
            "cannot probe: no agent answers on the default socket; name one with --agent or TENURE_AGENT"
                .to_owned(),
        )),
    }
}

/// A probe says why; an agent that does not lead says which node does; and a problem says what is wrong.
fn why_not(said: &Value, yes: &str) -> String {
    let text = |key: &str| said[key].as_str();
    match (text("why").or(text("detail")), text("leader")) {
        (Some(why), _) => why.to_owned(),
        (None, Some(leader)) => format!("not here: {leader} {yes}"),
        (None, None) => format!("not here: no node {yes}"),
    }
}
