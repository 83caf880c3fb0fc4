//! What the agent of this host has room for, if one answers.

use tenure_agent::client::Agent;
use tenure_agent::config::default_socket;
use tenure_agent::model::AgentLimits;

use crate::args::Common;

/// The limits of the agent that `TENURE_AGENT` names, or else of the one on the usual socket, whatever its store is.
pub(super) async fn limits(common: &Common) -> Option<AgentLimits> {
    let named = std::env::var("TENURE_AGENT").unwrap_or_else(|_| default_socket().display().to_string());
    Agent::connect(&named, common.allow_plaintext_token).await.ok()?.limits().await.ok()
}

/// In one line.
pub(super) fn pretty(limits: &AgentLimits) -> String {
    let AgentLimits { open_files, connections, connections_per_client, streams, streams_per_client } = limits;
    format!(
        "up to {connections} connections ({connections_per_client} of one client) and {streams} streams \
         ({streams_per_client}), with {open_files} open files allowed"
    )
}
