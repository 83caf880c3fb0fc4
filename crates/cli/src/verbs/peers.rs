//! `tenure peers`: the members of a group that keeps its registers itself.

use serde::Serialize;
use tenure::store::{Group, Peers, Seat, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Common, PeersVerb};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{self, width};

/// Shows or changes the members, or is one.
///
/// # Errors
/// If the store is not a group of peers, or no majority of it agrees.
pub async fn main(common: &Common, verb: &PeersVerb) -> Result<Exit, Exit> {
    if !common.store_url().starts_with("peers:") {
        return Err(Exit::Usage(
            "only a group of peers has members: name one with --store peers://HOST:PORT,…?secret-file=PATH"
                .to_owned(),
        ));
    }
    match verb {
        PeersVerb::List => list(common).await,
        PeersVerb::Add(args) => add(common, &args.address).await,
        PeersVerb::Remove(args) => remove(common, &args.address).await,
        PeersVerb::Serve => serve(common).await,
    }
}

/// A handle that is not a member, whatever the URL says.
fn client(common: &Common) -> Result<Peers, Exit> {
    let url = common.store_url();
    let joint = if url.contains('?') { '&' } else { '?' };
    Ok(Peers::open(&format!("{url}{joint}member=false"))?)
}

async fn list(common: &Common) -> Result<Exit, Exit> {
    let peers = client(common)?;
    let group = peers.group().await?;
    if common.is_json() {
        let members = group.seats.iter().map(View::of).collect();
        output::json(&Document { group: group.id.as_deref(), members })?;
        return Ok(Exit::Done);
    }
    output::print(&pretty(&group))?;
    Ok(Exit::Done)
}

async fn add(common: &Common, address: &str) -> Result<Exit, Exit> {
    let peers = client(common)?;
    peers.add(address).await?;
    let voters = peers.group().await.map_or(0, |group| group.seats.iter().filter(|seat| seat.votes).count());
    let mut told = format!(
        "{address} is a member. Start it with me={address} and an empty dir; it votes when it has caught up."
    );
    if voters > 0 && (voters + 1) % 2 == 0 {
        told += &format!(
            "\n{} members bear the loss of no more than {voters} do: add one more, or remove one.",
            voters + 1
        );
    }
    output::print(&told)?;
    Ok(Exit::Done)
}

async fn remove(common: &Common, address: &str) -> Result<Exit, Exit> {
    let peers = client(common)?;
    peers.remove(address).await?;
    output::print(&format!(
        "{address} is no member any more. Stop it, and empty its directory before it is added again."
    ))?;
    Ok(Exit::Done)
}

/// Is a member until it is told to stop; then it steps aside first.
async fn serve(common: &Common) -> Result<Exit, Exit> {
    let failed = |error: std::io::Error| Exit::Failed(format!("signals: {error}"));
    let (mut term, mut int) =
        (signal(SignalKind::terminate()).map_err(failed)?, signal(SignalKind::interrupt()).map_err(failed)?);
    let url = common.store_url();
    if !url.contains("me=") || url.contains("member=false") {
        return Err(Exit::Usage("say which member this is, with me=HOST:PORT in the URL".to_owned()));
    }
    let peers = Peers::open(&url)?;
    anstream::eprintln!("tenure: a member of {peers}; stop it with SIGTERM");
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    peers.close().await;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Document<'a> {
    group: Option<&'a str>,
    members: Vec<View<'a>>,
}

/// A member, for programs.
#[derive(Serialize)]
struct View<'a> {
    address: &'a str,
    votes: bool,
    witness: bool,
    leads: bool,
    reached: bool,
}

impl<'a> View<'a> {
    fn of(seat: &'a Seat) -> Self {
        Self {
            address: &seat.address,
            votes: seat.votes,
            witness: seat.witness,
            leads: seat.leads,
            reached: seat.reached,
        }
    }
}

fn pretty(group: &Group) -> String {
    let mut table =
        Table::new([Column::new("MEMBER").least(12), Column::new("PART"), Column::new("REACHED")]);
    for seat in &group.seats {
        let (part, tone) = match (seat.leads, seat.votes) {
            (true, _) => ("leads the group", Tone::Good),
            (_, true) if seat.witness => ("votes, a witness", Tone::Plain),
            (_, true) => ("votes", Tone::Plain),
            _ => ("is catching up", Tone::Warn),
        };
        let (reached, how) = if seat.reached { ("yes", Tone::Good) } else { ("no", Tone::Bad) };
        table.row([Cell::new(&seat.address, Tone::Strong), Cell::new(part, tone), Cell::new(reached, how)]);
    }
    table.render(width())
}
