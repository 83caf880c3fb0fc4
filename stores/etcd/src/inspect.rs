//! What the live cluster is, and what it can promise.

use super::connection::{Effect, Members, path};
use super::keys::Keys;
use super::messages::{
    Alarms, AskAlarms, Header, Members as MemberList, Nothing, Range, RangeAnswer, Status,
};
use super::settings::EtcdSettings;
use tenure_store::kit::listener::ListenerState;
use tenure_store::{Class, Description, StoreError};

/// So many revisions, none of which was ever compacted, are no accident.
const UNCOMPACTED: u64 = 10_000;

/// What was found out.
#[derive(Debug, Default)]
struct Facts {
    header: Header,
    /// Members that vote, and those that only learn; none if this user may not know.
    members: Option<(usize, usize)>,
    /// Each member that the URL names, and how it is.
    named: Vec<(String, Option<Status>)>,
    /// None if this user may not know.
    alarms: Option<Vec<String>>,
    /// Whether the first revision can still be read.
    uncompacted: bool,
    has_users: bool,
}

/// Asks the cluster.
pub(super) async fn describe(
    members: &Members,
    keys: &Keys,
    state: &ListenerState,
) -> Result<Description, StoreError> {
    let facts = Facts::ask(members, keys).await?;
    let settings = &members.settings;
    let (class, mut remarks) = facts.classify();
    remarks.extend(facts.doubts(settings));
    if let ListenerState::Failed(why) = state {
        remarks.push(format!("changes are found at the next beat only, because watching failed: {why}"));
    }
    remarks.extend(settings.warning().map(str::to_owned));
    let mut described = Description::new(
        class,
        format!("etcd:{:016x}:{}", facts.header.cluster_id, settings.prefix),
        facts.about(settings),
    );
    described.notifies = *state == ListenerState::Works;
    described.remarks = remarks;
    Ok(described)
}

impl Facts {
    async fn ask(members: &Members, keys: &Keys) -> Result<Self, StoreError> {
        let header = |answer: &RangeAnswer| answer.header;
        let any = Range { limit: Some("1"), ..Range::below(&keys.all()) };
        let found = members.ask_latest(Effect::Reads, path::RANGE, &any, header).await?;
        let first = Range { revision: Some("1"), ..any };
        let (list, alarms, first, named) = tokio::join!(
            members.ask::<MemberList>(Effect::Reads, path::MEMBERS, &Nothing {}),
            members.ask::<Alarms>(Effect::Reads, path::ALARM, &AskAlarms { action: "GET" }),
            members.ask::<RangeAnswer>(Effect::Reads, path::RANGE, &first),
            members.ask_each(path::STATUS, &Nothing {}),
        );
        let counted = |list: MemberList| {
            let learners = list.members.iter().filter(|member| member.is_learner).count();
            (list.members.len() - learners, learners)
        };
        let alarms = alarms.ok().map(|found| found.alarms.into_iter().map(|alarm| alarm.alarm).collect());
        Ok(Self {
            header: found.header,
            members: list.ok().map(counted),
            named,
            alarms,
            uncompacted: first.is_ok(),
            has_users: members.has_users().await,
        })
    }

    /// What an acknowledged write survives, and why not more.
    fn classify(&self) -> (Class, Vec<String>) {
        let remark = match self.members {
            None => {
                "class B, because this user may not see how many members there are: allow it to list members"
            }
            Some((1, _)) => {
                "class B, because there is one member: acknowledged writes last as long as its disk; three members \
                 survive the loss of one"
            }
            Some((2, _)) => "two members: the loss of either stops every write; add a third",
            Some((voters, _)) if voters % 2 == 0 => {
                "an even number of members that vote: one more, or one less, survives as many losses"
            }
            Some(_) => return (Class::A, Vec::new()),
        };
        let class = if self.members.is_some_and(|(voters, _)| voters > 1) { Class::A } else { Class::B };
        (class, vec![remark.to_owned()])
    }

    /// What is wrong, or weaker than it could be.
    fn doubts(&self, settings: &EtcdSettings) -> Vec<String> {
        let mut doubts = Vec::new();
        for (place, status) in &self.named {
            match status {
                None => doubts.push(format!("{place} does not answer: see whether this member runs")),
                Some(status) if status.is_learner => {
                    doubts.push(format!("{place} is a learner, and answers nothing: name members that vote"));
                }
                Some(_) => {}
            }
        }
        let (named, voters) = (self.named.len(), self.members.map_or(0, |(voters, _)| voters));
        if named < voters {
            doubts.push(format!(
                "the URL names {named} of {voters} members, and this node depends on those: name all of them"
            ));
        }
        doubts.extend(self.alarms.iter().flatten().map(|alarm| raised(alarm)));
        if self.uncompacted && self.header.revision > UNCOMPACTED {
            doubts.push(format!(
                "none of {} revisions was ever compacted, and every beat adds one, until the database is full and takes \
                 no writes: start each member with --auto-compaction-mode=periodic --auto-compaction-retention=10m",
                self.header.revision
            ));
        }
        doubts.extend(self.excess(settings));
        doubts
    }

    /// Rights that elections do not need.
    fn excess(&self, settings: &EtcdSettings) -> Option<String> {
        let who = match &settings.login {
            _ if !self.has_users => "authentication is off, and every client may write every key",
            Some(login) if login.user == "root" => "this user is root, and may do everything",
            _ => return None,
        };
        Some(format!(
            "rights wider than needed: {who}; `tenure schema --for etcd --user NAME` prints what a user of its own needs"
        ))
    }

    fn about(&self, settings: &EtcdSettings) -> String {
        let version = self.named.iter().find_map(|(_, status)| Some(status.as_ref()?.version.as_str()));
        let members = match self.members {
            Some((1, 0)) => ", 1 member".to_owned(),
            Some((voters, 0)) => format!(", {voters} members"),
            Some((voters, learners)) => format!(", {voters} members and {learners} learners"),
            None => String::new(),
        };
        format!("etcd {}{members}, {settings}", version.unwrap_or("of an unknown version"))
    }
}

fn raised(alarm: &str) -> String {
    match alarm {
        "NOSPACE" => "alarm NOSPACE: the database is full, and takes no writes; compact it, defragment each member, then \
                      run `etcdctl alarm disarm`: docs/stores/etcd.md has the commands"
            .to_owned(),
        "CORRUPT" => {
            "alarm CORRUPT: members have different data; replace the member that differs".to_owned()
        }
        other => format!("alarm {other} is raised: see `etcdctl alarm list`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(voters: usize, learners: usize) -> Facts {
        let named = (0..voters).map(|nth| (format!("h{nth}:1"), Some(Status::default()))).collect();
        Facts { members: Some((voters, learners)), named, has_users: true, ..Facts::default() }
    }

    #[test]
    fn a_group_is_class_a_and_one_member_is_class_b_with_the_reason() {
        for (facts, class, part) in [
            (facts(1, 0), Class::B, "one member"),
            (facts(1, 1), Class::B, "one member"),
            (facts(2, 0), Class::A, "two members"),
            (facts(4, 0), Class::A, "even number"),
            (Facts { members: None, ..facts(3, 0) }, Class::B, "may not see"),
        ] {
            let (found, remarks) = facts.classify();
            assert_eq!(found, class, "{facts:?}");
            assert!(remarks.len() == 1 && remarks[0].contains(part), "{remarks:?}");
        }
        assert_eq!(facts(3, 1).classify(), (Class::A, Vec::new()));
    }

    #[test]
    fn each_doubt_says_what_to_do() {
        let login = EtcdSettings::parse("etcd://app:secret@h").unwrap();
        let root = EtcdSettings::parse("etcd://root:secret@h").unwrap();
        assert_eq!(facts(3, 0).doubts(&login), Vec::<String>::new());
        let down = Facts { named: vec![("h:1".into(), None)], ..facts(1, 0) };
        let learner = Status { is_learner: true, ..Status::default() };
        let header = Header { revision: UNCOMPACTED + 1, ..Header::default() };
        for (facts, settings, part) in [
            (down, &login, "h:1 does not answer"),
            (Facts { named: vec![("h:1".into(), Some(learner))], ..facts(1, 0) }, &login, "learner"),
            (Facts { named: vec![("h:1".into(), Some(Status::default()))], ..facts(3, 0) }, &login, "1 of 3"),
            (Facts { alarms: Some(vec!["NOSPACE".into()]), ..facts(3, 0) }, &login, "alarm disarm"),
            (Facts { alarms: Some(vec!["CORRUPT".into()]), ..facts(3, 0) }, &login, "replace"),
            (Facts { uncompacted: true, header, ..facts(3, 0) }, &login, "auto-compaction"),
            (Facts { has_users: false, ..facts(3, 0) }, &login, "authentication is off"),
            (facts(3, 0), &root, "root"),
        ] {
            let doubts = facts.doubts(settings);
            assert!(doubts.len() == 1 && doubts[0].contains(part), "{part}: {doubts:?}");
        }
    }
}
