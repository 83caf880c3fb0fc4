//! `tenure peers`: the members of a group that keeps its registers itself.

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure::store::{Group, GroupMember, Peers, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{self, width};

/// `tenure peers`
#[derive(Debug, Clone, Subcommand)]
pub enum PeersVerb {
    /// Show the members of the group
    List,
    /// Make an address a member: it votes when it has caught up
    Add(PeerArgs),
    /// Remove a member, also one that cannot be reached
    Remove(PeerArgs),
    /// Run a member that only stores: the one that me=HOST:PORT in --store names
    Serve,
    /// Print a new secret for a group: (umask 077; tenure peers secret > FILE), the same file for all members
    Secret,
    /// Print the secret for clients of a group: who has it reads and writes, and cannot change the members
    ClientSecret(ClientSecretArgs),
}

/// `tenure peers client-secret`
#[derive(Debug, Clone, Args)]
pub struct ClientSecretArgs {
    /// The file with the secret of the group
    #[arg(value_name = "FILE")]
    pub file: std::path::PathBuf,
}

/// `tenure peers add`, `remove`
#[derive(Debug, Clone, Args)]
pub struct PeerArgs {
    /// The member, as the URLs name it
    #[arg(value_name = "HOST:PORT")]
    pub address: String,
}

/// Shows or changes the members, or is one.
///
/// # Errors
/// If the store is not a group of peers, or no majority of it agrees.
pub async fn main(common: &Common, verb: &PeersVerb) -> Result<Exit, Exit> {
    match verb {
        PeersVerb::Secret => return print(&Peers::new_secret()),
        PeersVerb::ClientSecret(args) => return print(&Peers::client_secret(&args.file)?),
        _ => {}
    }
    if !common.store_url().starts_with("peers:") {
        return Err(Exit::Usage(
            "cannot ask a group of peers: the store is none; use --store peers://HOST:PORT,…?secret-file=PATH"
                .to_owned(),
        ));
    }
    match verb {
        PeersVerb::List => list(common).await,
        PeersVerb::Add(args) => add(common, &args.address).await,
        PeersVerb::Remove(args) => remove(common, &args.address).await,
        PeersVerb::Serve => serve(common).await,
        PeersVerb::Secret | PeersVerb::ClientSecret(_) => unreachable!("these need no store"),
    }
}

fn print(secret: &str) -> Result<Exit, Exit> {
    output::print(secret)?;
    Ok(Exit::Done)
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
        let members = group.members.iter().map(View::of).collect();
        output::json(&Document { group: group.id.as_deref(), members })?;
        return Ok(Exit::Done);
    }
    output::print(&pretty(&group))?;
    Ok(Exit::Done)
}

async fn add(common: &Common, address: &str) -> Result<Exit, Exit> {
    let peers = client(common)?;
    peers.add(address).await?;
    let voters =
        peers.group().await.map_or(0, |group| group.members.iter().filter(|member| member.votes).count());
    let mut told = format!(
        "{address} is a member. Start it with me={address} and an empty directory; it votes once it has caught up."
    );
    if voters > 0 && (voters + 1) % 2 == 0 {
        told += &format!("\n{} members survive as many failures as {voters}: use an odd number.", voters + 1);
    }
    output::print(&told)?;
    Ok(Exit::Done)
}

async fn remove(common: &Common, address: &str) -> Result<Exit, Exit> {
    let peers = client(common)?;
    peers.remove(address).await?;
    output::print(&format!(
        "{address} is no longer a member. Stop it, and empty its directory before you add it again."
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
        return Err(Exit::Usage(
            "cannot serve: the URL does not name this member; add me=HOST:PORT".to_owned(),
        ));
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
    voting_only: bool,
    leads: bool,
    reached: bool,
}

impl<'a> View<'a> {
    fn of(member: &'a GroupMember) -> Self {
        Self {
            address: &member.address,
            votes: member.votes,
            voting_only: member.voting_only,
            leads: member.leads,
            reached: member.reached,
        }
    }
}

fn pretty(group: &Group) -> String {
    let mut table =
        Table::new([Column::new("MEMBER").least(12), Column::new("PART"), Column::new("REACHED")]);
    for member in &group.members {
        let (part, tone) = match (member.leads, member.votes) {
            (true, _) => ("leads the group", Tone::Good),
            (_, true) if member.voting_only => ("voting-only", Tone::Plain),
            (_, true) => ("votes", Tone::Plain),
            _ => ("is catching up", Tone::Warn),
        };
        let (reached, how) = if member.reached { ("yes", Tone::Good) } else { ("no", Tone::Bad) };
        table.row([Cell::new(&member.address, Tone::Strong), Cell::new(part, tone), Cell::new(reached, how)]);
    }
    table.render(width())
}
