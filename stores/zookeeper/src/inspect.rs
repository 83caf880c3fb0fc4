//! What the live servers are, and what they can promise.

use tokio::time::{Instant, timeout};

use super::connection::four_letters;
use super::error::code;
use super::operations::Operations;
use super::settings::ZooKeeperSettings;
use super::wire::{Answer, Question, op, rights};
use tenure_store::kit::listener::ListenerState;
use tenure_store::{Class, Description, StoreError};

/// Where the servers keep who they are.
const CONFIG: &str = "/zookeeper/config";

/// Asks the servers.
pub(super) async fn describe(
    operations: &Operations,
    state: &ListenerState,
) -> Result<Description, StoreError> {
    let settings = &operations.settings;
    let until = Instant::now() + settings.timeout;
    let connection = operations.connection(until).await?;
    let barrier = operations.barrier(&connection)?;
    let config = connection.ask(Question::about(op::GET_DATA, CONFIG).flag(false));
    let top = connection.ask(Question::about(op::GET_ACL, &operations.keys.root));
    operations.passed(&connection, barrier, until).await.map_err(StoreError::only_looked)?;
    let config = operations.answer(&connection, config, until).await.map_err(StoreError::only_looked)?;
    let top = operations.answer(&connection, top, until).await.map_err(StoreError::only_looked)?;
    let config = (config.code == code::OK).then(|| Answer::new(config.body).bytes().ok()).flatten();
    let voters = config.map(|config| voters(&String::from_utf8_lossy(&config)));
    let (class, mut remarks) = classify(voters);
    if voters.is_some_and(|voters| settings.servers.len() < voters) {
        let named = settings.servers.len();
        remarks.push(format!(
            "the URL names {named} of {} servers, and this node depends on those: name all of them",
            voters.unwrap_or_default()
        ));
    }
    let open =
        top.code == code::OK && Answer::new(top.body).acl().is_ok_and(|acl| acl == rights("world", "anyone"));
    if open {
        remarks.push(format!(
            "rights wider than needed: every client may write {} and what is in it; `tenure schema --for zookeeper --user \
             NAME` prints what a user of its own needs",
            operations.keys.root
        ));
    }
    if let ListenerState::Failed(why) = state {
        remarks.push(format!("changes are found at the next beat only, because listening failed: {why}"));
    }
    remarks.extend(settings.warning().map(str::to_owned));
    let server =
        settings.servers.iter().find(|(host, port)| connection.link.place == format!("{host}:{port}"));
    let said = match server {
        Some(server) => timeout(settings.suspicion(), four_letters(settings, server, "srvr")).await,
        None => Ok(None),
    };
    let said = said.ok().flatten().unwrap_or_default();
    let mut described =
        Description::new(class, format!("zookeeper:{settings}"), about(&said, voters, settings));
    described.notifies = *state == ListenerState::Works;
    described.remarks = remarks;
    Ok(described)
}

/// How many servers vote, as their configuration says.
fn voters(config: &str) -> usize {
    config.lines().filter(|line| line.starts_with("server.") && !line.contains(":observer")).count()
}

/// What an acknowledged write survives, and why not more.
fn classify(voters: Option<usize>) -> (Class, Vec<String>) {
    let (class, remark) = match voters {
        None => (
            Class::B,
            "class B, because this login may not read /zookeeper/config, which says how many servers vote: let it read that",
        ),
        Some(0 | 1) => (
            Class::B,
            "class B, because one server votes: acknowledged writes last as long as its disk; three survive the loss of one",
        ),
        Some(2) => (Class::A, "two servers vote: the loss of either stops every write; add a third"),
        Some(even) if even % 2 == 0 => {
            (Class::A, "an even number of servers votes: one less survives as many losses")
        }
        Some(_) => return (Class::A, Vec::new()),
    };
    (class, vec![remark.to_owned()])
}

/// Version and mode, if the server answers `srvr`.
fn about(said: &str, voters: Option<usize>, settings: &ZooKeeperSettings) -> String {
    let after = |what: &str| said.lines().find_map(|line| line.strip_prefix(what));
    let version = after("Zookeeper version: ").and_then(|line| line.split(['-', ',']).next());
    let version = version.map(|version| format!(" {version}")).unwrap_or_default();
    let servers = match voters {
        None => String::new(),
        Some(0 | 1) => ", 1 server".to_owned(),
        Some(several) => format!(", {several} servers"),
    };
    let mode = after("Mode: ").map(|mode| format!(" (asked: a {mode})")).unwrap_or_default();
    format!("ZooKeeper{version}{servers}{mode}, {settings}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_several_voters_are_class_a() {
        for (voters, class, part) in [
            (None, Class::B, "/zookeeper/config"),
            (Some(0), Class::B, "one server"),
            (Some(1), Class::B, "one server"),
            (Some(2), Class::A, "two servers"),
            (Some(4), Class::A, "even number"),
        ] {
            let (found, remarks) = classify(voters);
            assert_eq!(found, class, "{voters:?}");
            assert!(remarks.len() == 1 && remarks[0].contains(part), "{remarks:?}");
        }
        assert_eq!(classify(Some(3)), (Class::A, Vec::new()));
    }

    #[test]
    fn observers_do_not_vote() {
        let config = "server.1=a:2888:3888:participant;2181\nserver.2=b:2888:3888:observer;2181\nversion=0";
        assert_eq!(voters(config), 1);
        assert_eq!(voters(""), 0);
    }

    #[test]
    fn what_a_server_says_is_shown_and_not_needed() {
        let settings = ZooKeeperSettings::parse("zookeeper://h").unwrap();
        let said =
            "Zookeeper version: 3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on x\nMode: follower\n";
        let shown = about(said, Some(3), &settings);
        assert_eq!(shown, "ZooKeeper 3.9.3, 3 servers (asked: a follower), zookeeper://h:2181/tenure");
        assert_eq!(about("", None, &settings), "ZooKeeper, zookeeper://h:2181/tenure");
    }
}
