//! `tenure alerts`: what fires, who was told, and what is done about it. Agents evaluate alerts, so that one is asked.

use serde_json::json;

use super::source::Source;
use crate::args::{AlertsArgs, AlertsVerb, Common};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{self, sanitize, width};
use tenure_agent::model::AlertStatus;

/// Lists alerts, or does something about one.
///
/// # Errors
/// If there is no agent to ask, or it refuses.
pub async fn main(common: &Common, args: &AlertsArgs) -> Result<Exit, Exit> {
    let Source::Agent(agent) = Source::of(common).await? else {
        let why = "cannot show alerts: they are evaluated by agents; name one with --agent or TENURE_AGENT";
        return Err(Exit::No(why.to_owned()));
    };
    let (action, alert, body) = match &args.verb {
        None => {
            let view = agent.alerts().await?;
            if common.is_json() {
                output::json(&view)?;
            } else {
                output::print(&pretty(view.alerts))?;
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
    let done = agent.alert(alert, action, body).await?;
    if common.is_json() {
        output::json(&done)?;
    } else {
        output::print(&sanitize(&done.message))?;
    }
    Ok(Exit::Done)
}

/// What fires comes first, then what may fire soon.
fn pretty(mut alerts: Vec<AlertStatus>) -> String {
    if alerts.is_empty() {
        return "No alerts are configured.".to_owned();
    }
    let mut table = Table::new([
        Column::new("ALERT").least(10),
        Column::new("STATE"),
        Column::new("SEVERITY"),
        Column::new("SINCE"),
        Column::new("FIRES").right(),
        Column::new("NOTIFIED").least(8),
        Column::new("SUMMARY").least(12),
    ]);
    alerts.sort_by_key(|alert| (alert.state != "firing", alert.state != "pending"));
    for alert in &alerts {
        let tone = if alert.state == "firing" { Tone::Strong } else { Tone::Plain };
        let notified = alert.deliveries.iter().filter(|delivery| delivery.error.is_none());
        let notified: Vec<&str> = notified.map(|delivery| delivery.target.as_str()).collect();
        let quiet = alert.instances.is_empty();
        table.row([
            alert.alert.clone().into(),
            Cell::new(&alert.state, tone),
            alert.severity.clone().into(),
            Cell::or_none(alert.since.clone(), Tone::Plain),
            alert.total.to_string().into(),
            sanitize(&notified.join(", ")).into(),
            sanitize(if quiet { &alert.condition } else { &alert.summary }).into(),
        ]);
    }
    table.render(width())
}
