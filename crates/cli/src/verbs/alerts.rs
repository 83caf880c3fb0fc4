//! `tenure alerts`: what fires, who was told, and what is done about it. Agents evaluate alerts, so that one is asked.

use serde_json::json;

use super::source::Source;
use crate::agent::http::alerts::AlertView;
use crate::args::{AlertsArgs, AlertsVerb, Common};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{self, tame, width};

/// Lists alerts, or does something about one.
///
/// # Errors
/// If there is no agent to ask, or it refuses.
pub async fn main(common: &Common, args: &AlertsArgs) -> Result<Exit, Exit> {
    let Source::Agent(agent) = Source::of(common).await? else {
        let why = "agents evaluate alerts: name one with --agent or TENURE_AGENT";
        return Err(Exit::No(why.to_owned()));
    };
    let (deed, alert, body) = match &args.verb {
        None => {
            let view = agent.alerts().await?;
            if common.is_json() {
                output::json(&view)?;
            } else {
                output::print(&pretty(&view.alerts))?;
            }
            return Ok(Exit::Done);
        }
        Some(AlertsVerb::Acknowledge(args)) => ("acknowledge", &args.alert, json!({ "why": args.why })),
        Some(AlertsVerb::Resolve(args)) => ("resolve", &args.alert, json!({ "why": args.why })),
        Some(AlertsVerb::Unsilence(args)) => ("unsilence", &args.alert, json!({ "why": args.why })),
        Some(AlertsVerb::Silence(args)) => {
            let span = humantime::format_duration(args.span).to_string();
            ("silence", &args.alert.alert, json!({ "why": args.alert.why, "for": span }))
        }
    };
    let done = agent.alert(alert, deed, body).await?;
    if common.is_json() {
        output::json(&done)?;
    } else {
        output::print(&tame(&done.done))?;
    }
    Ok(Exit::Done)
}

fn pretty(alerts: &[AlertView]) -> String {
    if alerts.is_empty() {
        return "No alert is configured.".to_owned();
    }
    let mut table = Table::new([
        Column::new("ALERT").least(10),
        Column::new("STATE"),
        Column::new("SEVERITY"),
        Column::new("SINCE"),
        Column::new("FIRES").right(),
        Column::new("TOLD").least(8),
        Column::new("SUMMARY").least(12),
    ]);
    for alert in alerts {
        let tone = if alert.state == "firing" { Tone::Strong } else { Tone::Plain };
        let told: Vec<&str> =
            alert.told.iter().filter(|told| told.error.is_none()).map(|told| told.target.as_str()).collect();
        let quiet = alert.instances.is_empty();
        table.row([
            alert.alert.clone().into(),
            Cell::new(&alert.state, tone),
            alert.severity.clone().into(),
            Cell::or_none(alert.since.clone(), Tone::Plain),
            alert.total.to_string().into(),
            tame(&told.join(", ")).into(),
            tame(if quiet { &alert.condition } else { &alert.summary }).into(),
        ]);
    }
    table.render(width())
}
