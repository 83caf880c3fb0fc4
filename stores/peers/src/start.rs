//! How a member starts for the first time, with an empty disk.
//!
//! A disk may be empty because there never was anything on it, or because it was lost; a member that lost its disk must
//! not start as if nothing had happened. So a member starts only when it has heard from **every** other member, and
//! none of them ever saw a disk under its id. Afterwards a majority is enough.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use raft::eraftpb::Snapshot;

use super::PeersSettings;
use super::STORE;
use super::client;
use super::frame::{Answer, Ask};
use super::identity::{Identity, MemberDirectory, lost_disk};
use super::log::Log;
use super::machine::Machine;
use super::settings::{hash, refuse};
use tenure_store::{Retry, StoreError};

/// Opens what is there, or tries to start for the first time. An error says what is missing; it may pass.
pub(super) async fn start(
    settings: &PeersSettings,
    me: &str,
    directory: &MemberDirectory,
) -> Result<(Identity, Log), StoreError> {
    if let Some(identity) = Identity::load(directory, settings)? {
        let log = Log::open(&directory.log()).map_err(|fault| refuse(&fault.to_string()))?;
        let lost = || refuse(&format!("{} is missing: {}", directory.log().display(), lost_disk(me)));
        return Ok((identity, log.ok_or_else(lost)?));
    }
    let list = settings.members.look_up().await?;
    let own = id_of(settings, &list, me);
    let (id, snapshot) = match find(settings, &list, me).await? {
        Found::NoGroup => (own, beginning(settings, &list)),
        // One of those that the group began with, only later: its log begins as theirs. Were it empty, no member could be
        // elected in a larger group before it is sent, nor could it be sent before.
        Found::Group(id) if id == own => (id, beginning(settings, &list)),
        Found::Group(id) => (id, Snapshot::default()),
    };
    let disk = |fault: super::file::Fault| StoreError::not_applied(STORE, fault.to_string());
    // The log first: a member that has an identity has promised something.
    let log = Log::create(&directory.log(), snapshot).map_err(disk)?;
    Ok((Identity::create(directory, settings, id, me)?, log))
}

enum Found {
    /// All others are as new as this one.
    NoGroup,
    /// There is a group, and it has this id for us.
    Group(u64),
}

/// Asks every other member.
async fn find(settings: &PeersSettings, list: &[String], me: &str) -> Result<Found, StoreError> {
    let mut asked = BTreeSet::from([me.to_owned()]);
    let mut ids = BTreeSet::new();
    let mut next: BTreeSet<String> = list.iter().cloned().collect();
    loop {
        next = next.difference(&asked).cloned().collect();
        if next.is_empty() {
            break;
        }
        let answers = join_all(next.iter().map(|address| ask(settings, list, me, address))).await;
        let answers = next.iter().cloned().zip(answers).collect();
        asked.append(&mut next);
        for answer in refusals_first(answers)? {
            match answer {
                Answer::Fresh(theirs) if theirs == list => {}
                Answer::Fresh(theirs) => return Err(lists_differ(list, &theirs)),
                Answer::Known(_, _, true) => return Err(refuse(&lost_disk(me))),
                Answer::Known(group_view, id, false) => {
                    next.extend(group_view.members.into_iter().map(|member| member.address));
                    ids.insert(id);
                }
                _ => {
                    return Err(StoreError::not_applied(
                        STORE,
                        "a member does not know yet who the members are",
                    ));
                }
            }
        }
    }
    decide(settings, list, me, &ids.into_iter().collect::<Vec<_>>())
}

/// What follows from the ids that those who belong to a group have for us.
fn decide(
    settings: &PeersSettings,
    list: &[String],
    me: &str,
    ids: &[Option<u64>],
) -> Result<Found, StoreError> {
    match ids {
        [] if list.iter().any(|member| member == me) => {
            settings.members.may_begin_with(list).map(|()| Found::NoGroup)
        }
        [] => Err(refuse(&format!("{me} is not among the members of {settings}: name it there too"))),
        [Some(id)] => Ok(Found::Group(*id)),
        _ => Err(StoreError::not_applied(
            STORE,
            format!(
                "{me} is not a member of this group: run `tenure peers add {me}`; it starts by itself then"
            ),
        )),
    }
}

/// What a person has to see to is told before what may pass; of that, who is missing.
fn refusals_first(answers: Vec<(String, Result<Answer, StoreError>)>) -> Result<Vec<Answer>, StoreError> {
    let (mut found, mut missing, mut said) = (Vec::new(), Vec::new(), String::new());
    for (address, answer) in answers {
        match answer {
            Ok(answer) => found.push(answer),
            Err(error) if error.retry() == Retry::Never => return Err(error),
            Err(error) => {
                missing.push(address);
                said = error.message().to_owned();
            }
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    let why = format!(
        "waiting for {} ({said}); a member starts for the first time when all the others are there",
        missing.join(" and ")
    );
    Err(StoreError::not_applied(STORE, why))
}

async fn ask(
    settings: &PeersSettings,
    list: &[String],
    me: &str,
    address: &str,
) -> Result<Answer, StoreError> {
    let question = Ask::Roll(me.to_owned(), list.to_vec());
    match client::ask_once(settings, address, question).await? {
        Answer::Failed(error) => Err(error),
        answer => Ok(answer),
    }
}

fn lists_differ(own: &[String], other: &[String]) -> StoreError {
    refuse(&format!(
        "the members do not have the same list: {} here, {} there",
        own.join(","),
        other.join(",")
    ))
}

/// The id that a member has in the list that a group begins with.
fn id_of(settings: &PeersSettings, list: &[String], address: &str) -> u64 {
    let list = list.join(",");
    let hash = hash(&[
        b"tenure peers 1 id",
        settings.cluster.as_str().as_bytes(),
        list.as_bytes(),
        address.as_bytes(),
    ]);
    u64::from_le_bytes(hash[..8].try_into().expect("eight bytes")).max(1)
}

/// What every member of a new group begins with: the list.
fn beginning(settings: &PeersSettings, list: &[String]) -> Snapshot {
    let members: BTreeMap<u64, String> =
        list.iter().map(|address| (id_of(settings, list, address), address.clone())).collect();
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (1, 1);
    meta.mut_conf_state().set_voters(members.keys().copied().collect());
    snapshot.data = Machine::of(members).to_bytes().into();
    snapshot
}
