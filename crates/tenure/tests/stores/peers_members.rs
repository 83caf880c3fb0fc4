//! Who may be a member of a group of peers, and what becomes of one whose disk, secret or address is not as it was.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::peers_kit::*;
use futures_util::StreamExt;
use tenure::Node;
use tenure::store::{Peers, Retry, Signal, Store, Value};

/// Waits until a handle reads that version.
async fn reads(store: &Peers, name: &str, expected: u128) {
    let started = Instant::now();
    loop {
        let found = version(store, name).await;
        if matches!(found, Ok(Some(found)) if found == expected) {
            return;
        }
        assert!(started.elapsed() < EVENTUALLY, "{found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the group is these, all voting.
async fn votes(store: &Peers, addresses: &[&str]) {
    let started = Instant::now();
    let mut expected: Vec<&str> = addresses.to_vec();
    expected.sort_unstable();
    loop {
        let group = store.group().await;
        if let Ok(group) = &group
            && group.members.iter().all(|member| member.votes)
            && group.members.iter().map(|member| member.address.as_str()).eq(expected.iter().copied())
        {
            return;
        }
        assert!(started.elapsed() < EVENTUALLY, "{group:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn settled(count: usize) -> Town {
    let town = Town::with(count, "&timeout=60s");
    town.all_settled().await;
    must_write(&*town.client(), put("x", None, 1)).await;
    town
}

#[tokio::test]
async fn a_member_that_lost_its_disk_is_refused_until_it_is_added_as_new() {
    let town = settled(3).await;
    town.close(2).await;
    std::fs::remove_dir_all(town.dir(2)).unwrap();
    town.start(2);
    let error = complains(&town.member(2), "took part before with another disk").await;
    assert_eq!(error.retry(), Retry::Never);
    assert!(error.to_string().contains("tenure peers add"), "{error}");
    let client = town.client();
    must_write(&*client, put("x", Some(1), 2)).await;
    client.remove(town.address(2)).await.unwrap();
    client.add(town.address(2)).await.unwrap();
    reads(&town.member(2), "x", 2).await;
    votes(&client, &[town.address(0), town.address(1), town.address(2)]).await;
}

/// A member that no other has reached yet has none of the log, however short that is. With a vote it would cost a group of one
/// its majority, and the group could not even take it out again.
#[tokio::test]
async fn an_address_where_no_member_answers_gets_no_vote() {
    let town = settled(1).await;
    let client = town.client();
    // One change waits for the other.
    let (one, two) = tokio::join!(client.add("127.0.0.1:1"), client.add("127.0.0.1:2"));
    one.and(two).unwrap();
    // Many ticks: with each of them the group looks who may vote.
    for nth in 0..20 {
        must_write(&*client, put(&format!("k{nth}"), None, 1)).await;
        let group = client.group().await.unwrap();
        let new = group.members.iter().filter(|member| member.address != town.address(0));
        assert!(group.members.len() == 3 && new.clone().all(|member| !member.votes), "{group:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for address in ["127.0.0.1:1", "127.0.0.1:2"] {
        client.remove(address).await.unwrap();
    }
}

#[tokio::test]
async fn members_come_and_go_while_the_group_works() {
    let town = settled(3).await;
    let client = town.client();
    let (new, dir) = (free_address(), tempfile::tempdir().unwrap());
    let url = town.url().replace("peers://", &format!("peers://{new},"));
    let url = format!("{url}&me={new}&dir={}", dir.path().display());
    let fourth = Peers::open(&url).unwrap();
    let error = complains(&fourth, "is not a member of this group").await;
    assert!(error.to_string().contains(&format!("tenure peers add {new}")), "{error}");
    client.add(&new).await.unwrap();
    let twice = client.add(&new).await.unwrap_err();
    assert!(twice.to_string().contains("a member already"), "{twice}");
    votes(&client, &[town.address(0), town.address(1), town.address(2), &new]).await;
    reads(&fourth, "x", 1).await;
    let described = client.describe().await.unwrap();
    assert!(described.remarks.iter().any(|remark| remark.contains("4 members")), "{described:?}");
    // The member that leads the Raft group can be removed as well: it steps aside first.
    let leader = town.raft_leader().await;
    let other = town.client_of((leader + 1) % 3);
    other.remove(town.address(leader)).await.unwrap();
    let rest: Vec<&str> =
        (0..3).filter(|nth| *nth != leader).map(|nth| town.address(nth)).chain([&*new]).collect();
    votes(&other, &rest).await;
    must_write(&*other, put("x", Some(1), 2)).await;
    reads(&fourth, "x", 2).await;
    let error = other.remove("10.9.8.7:6").await.unwrap_err();
    assert!(error.to_string().contains("is not a member"), "{error}");
    fourth.close().await;
}

#[tokio::test]
async fn a_group_that_lost_a_member_for_good_replaces_it() {
    let town = settled(3).await;
    town.close(2).await;
    let client = town.client();
    must_write(&*client, put("x", Some(1), 2)).await;
    client.remove(town.address(2)).await.unwrap();
    votes(&town.client_of(0), &[town.address(0), town.address(1)]).await;
    let (new, dir) = (free_address(), tempfile::tempdir().unwrap());
    client.add(&new).await.unwrap();
    let url = town.url().replace(town.address(2), &new);
    let third = Peers::open(&format!("{url}&me={new}&dir={}", dir.path().display())).unwrap();
    reads(&third, "x", 2).await;
    votes(&third, &[town.address(0), town.address(1), &new]).await;
    town.close(0).await;
    must_write(&third, put("x", Some(2), 3)).await;
    third.close().await;
}

#[tokio::test]
async fn members_with_different_lists_do_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    write_secret(&secret, SECRET);
    let [a, b, c] = [free_address(), free_address(), free_address()];
    let open = |list: String, me: &str, nth: usize| {
        let place = dir.path().join(nth.to_string());
        let url = format!("peers://{list}?secret-file={}&me={me}&dir={}", secret.display(), place.display());
        Peers::open(&url).unwrap()
    };
    let one = open(format!("{a},{b}"), &a, 1);
    complains(&one, "starts for the first time when all the others are there").await;
    let two = open(format!("{a},{b},{c}"), &b, 2);
    complains(&one, "do not have the same list").await;
    futures_util::future::join(one.close(), two.close()).await;
}

#[tokio::test]
async fn a_damaged_log_is_refused_and_a_torn_one_is_mended() {
    let town = settled(3).await;
    let client = town.client();
    for nth in 0..20 {
        must_write(&*client, put(&format!("k{nth}"), None, 1)).await;
    }
    town.close(1).await;
    let log = town.dir(1).join("log");
    let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(&[1, 2, 3]).unwrap();
    drop(file);
    reads(&town.member(1), "k19", 1).await;
    town.close(0).await;
    let log = town.dir(0).join("log");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let error = complains(&town.member(0), "is damaged").await;
    assert!(error.to_string().contains("tenure peers remove"), "{error}");
    must_write(&*client, put("x", Some(1), 2)).await;
}

#[tokio::test]
async fn a_raft_leader_that_is_closed_steps_aside_and_a_slow_disk_is_borne() {
    let town = settled(3).await;
    let client = town.client();
    let mut last = 1;
    for _ in 0..3 {
        let leader = town.raft_leader().await;
        town.close(leader).await;
        let next = town.raft_leader().await;
        assert_ne!(next, leader);
        must_write(&*client, put("x", Some(last), last + 1)).await;
        last += 1;
        town.settled(leader).await;
    }
    let leader = town.raft_leader().await;
    town.member(leader).slow_disk(Duration::from_millis(50));
    for _ in 0..10 {
        must_write(&*client, put("x", Some(last), last + 1)).await;
        last += 1;
    }
    reads(&town.member((leader + 1) % 3), "x", last).await;
}

/// A voting-only member stores and votes. It is elected only where no other member has all of the log, and then hands it on.
#[tokio::test]
async fn a_voting_only_member_never_stays_the_raft_leader() {
    let town = Town::with_voting_only(3, "&timeout=60s");
    town.all_settled().await;
    let client = town.client();
    knows_voting_only(&client, town.address(2)).await;
    must_write(&*client, put("x", None, 1)).await;
    for (away, version) in [(0, 1), (1, 2), (0, 3)] {
        // One of the two others is away, and misses a write that the voting-only member has.
        let stays = 1 - away;
        town.close(away).await;
        leads(&town, stays).await;
        must_write(&*client, put("x", Some(version), version + 1)).await;
        // It comes back, and the one that knows all leaves: the voting-only member alone can tell, and lets the other lead.
        town.close(stays).await;
        town.start(away);
        leads(&town, away).await;
        reads(&town.member(away), "x", version + 1).await;
        town.start(stays);
        town.all_settled().await;
    }
}

/// Waits until the member that is asked has met the voting-only member, and knows it for one.
async fn knows_voting_only(client: &Peers, address: &str) {
    let started = Instant::now();
    loop {
        let shown = client.group().await.map(|group| group.members).unwrap_or_default();
        let voting_only: Vec<_> =
            shown.iter().filter(|member| member.voting_only).map(|member| &*member.address).collect();
        if voting_only == [address] {
            return;
        }
        assert!(started.elapsed() < EVENTUALLY, "{shown:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until that member leads the Raft group.
async fn leads(town: &Town, nth: usize) {
    let started = Instant::now();
    while town.raft_leader().await != nth {
        assert!(started.elapsed() < EVENTUALLY, "another one leads");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The log is shortened while a member is away; when it comes back, it is sent a snapshot, and goes on from there.
#[tokio::test]
async fn a_member_that_was_away_for_long_is_sent_a_snapshot() {
    let town = settled(3).await;
    town.close(2).await;
    let (client, log) = (town.client(), town.dir(0).join("log"));
    let (filler, mut longest, mut shortened) = ("x".repeat(200_000), 0, false);
    for nth in 1..=100_u128 {
        let mut write = put("big", (nth > 1).then_some(nth - 1), nth);
        write.put = write.put.map(|(version, _)| (version, Value::of(&filler, None)));
        must_write(&*client, write).await;
        let length = std::fs::metadata(&log).map_or(0, |found| found.len());
        shortened |= length < longest;
        longest = longest.max(length);
    }
    assert!(shortened, "20 MB were written, and the log was never shortened");
    assert!(longest < 15_000_000, "the log grew to {longest} bytes");
    reads(&town.member(2), "big", 100).await;
    // What it was sent is on its disk: it knows it again, also when it is needed for a majority.
    town.close(2).await;
    town.close(0).await;
    reads(&town.member(2), "big", 100).await;
}

/// Three members carry a hundred candidates that are clients: one leads, and when it gives up, another one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_stand_for_one_role() {
    let town = settled(3).await;
    let stand = async |nth: usize| {
        let node =
            Node::builder_with_store(town.client()).name(format!("c{nth}")).ttl(Duration::from_secs(30));
        let node = node.start().await.unwrap();
        let candidate = node.candidate("r").await.unwrap();
        (node, candidate)
    };
    let standing = futures_util::future::join_all((0..100).map(stand)).await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let next = standing.iter().map(|(_, candidate)| Box::pin(candidate.elected()));
        let next = tokio::time::timeout(EVENTUALLY, futures_util::future::select_all(next)).await;
        let (tenure, _, _) = next.expect("a node is elected");
        tokens.push(tenure.expect("an election").token());
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    futures_util::future::join_all(standing.iter().map(|(node, _)| node.stop())).await;
}

/// Hints reach the watches of members and of clients, also after the member that a client listened to is gone.
#[tokio::test]
async fn hints_come_from_whichever_member_is_left() {
    let town = settled(3).await;
    let (client, writer) = (town.client(), town.client());
    let mut watch = client.watch(&space());
    for round in 0..3 {
        let name = format!("hint{round}");
        must_write(&*writer, put(&name, None, 1)).await;
        let heard = async {
            loop {
                match watch.next().await.expect("the watch goes on") {
                    Signal::Changed(changed) if changed == key(&name) => return,
                    // It was away: a watch that is told to look again finds it.
                    Signal::Resync if version(&*client, &name).await.is_ok_and(|found| found.is_some()) => {
                        return;
                    }
                    _ => {}
                }
            }
        };
        tokio::time::timeout(EVENTUALLY, heard).await.expect("a change is told");
        town.close(round).await;
        town.start(round);
        town.settled(round).await;
    }
}
