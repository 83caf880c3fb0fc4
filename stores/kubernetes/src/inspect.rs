//! What the live API servers are, and what they can promise.

use serde::{Deserialize, Serialize};

use super::connection::{Cluster, Effect, Question, Reply};
use tenure_store::kit::listener::ListenerState;
use tenure_store::{Class, Description, StoreError};

/// What elections need: `tenure schema` grants it.
const VERBS: &[&str] = &["get", "list", "watch", "create", "update", "delete"];

/// From this one on, consistent lists are served from memory.
const CHEAP_LISTS: u32 = 31;

/// What the API server is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Release {
    git_version: String,
    minor: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AskRules<'a> {
    api_version: &'static str,
    kind: &'static str,
    spec: AskedRules<'a>,
}

#[derive(Debug, Serialize)]
struct AskedRules<'a> {
    namespace: &'a str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rights {
    status: RightsFound,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RightsFound {
    resource_rules: Vec<Rule>,
    /// The server may have left some out.
    incomplete: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// Asks the API server.
pub(super) async fn describe(cluster: &Cluster, state: &ListenerState) -> Result<Description, StoreError> {
    let settings = &cluster.settings;
    let any = Question::get(format!("{}?limit=1", settings.leases()));
    cluster.read::<serde_json::Value>(&any).await?;
    let (release, rights) = tokio::join!(release(cluster), rights(cluster));
    let mut remarks = Vec::new();
    if settings.class == Class::B {
        remarks.push(
            "class B, because the API does not tell how many members its etcd has: write class=a in the URL if there are \
             three or more"
                .to_owned(),
        );
    }
    remarks.extend(release.as_ref().and_then(costly));
    remarks.extend(rights.iter().flat_map(doubts));
    if let ListenerState::Failed(why) = state {
        remarks.push(format!("changes are found at the next beat only, because watching failed: {why}"));
    }
    remarks.extend(settings.warning().map(str::to_owned));
    let version = release.map_or_else(|| "of an unknown version".to_owned(), |release| release.git_version);
    let mut described = Description::new(
        settings.class,
        format!("kubernetes:{}:{}", settings.namespace, settings.prefix),
        format!("Kubernetes {version}, {settings}"),
    );
    described.notifies = *state == ListenerState::Works;
    described.remarks = remarks;
    Ok(described)
}

/// None if this user may not know.
async fn release(cluster: &Cluster) -> Option<Release> {
    cluster.read(&Question::get(cluster.settings.path("/version"))).await.ok()
}

/// None if this user may not know. Asking writes nothing.
async fn rights(cluster: &Cluster) -> Option<RightsFound> {
    let spec = AskedRules { namespace: &cluster.settings.namespace };
    let ask = AskRules { api_version: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec };
    let path = cluster.settings.path("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews");
    match cluster.ask(Effect::Reads, &Question::with("POST", path, &ask)).await {
        Ok(Reply::Done(body)) => serde_json::from_slice::<Rights>(&body).ok().map(|rights| rights.status),
        _ => None,
    }
}

/// Lists that are read from etcd, all Leases of the namespace each time.
fn costly(release: &Release) -> Option<String> {
    let digits: String = release.minor.chars().take_while(char::is_ascii_digit).collect();
    let old = digits.parse::<u32>().is_ok_and(|minor| minor < CHEAP_LISTS);
    old.then(|| {
        format!(
            "{} reads every Lease of the namespace from etcd for each poll: keep the namespace to Tenure, or use Kubernetes \
             1.{CHEAP_LISTS} or later",
            release.git_version
        )
    })
}

/// Rights that are missing, and rights that elections do not need.
fn doubts(rights: &RightsFound) -> Vec<String> {
    let mut doubts = Vec::new();
    let leases = |rule: &&Rule| {
        rule.names(&rule.api_groups, "coordination.k8s.io") && rule.names(&rule.resources, "leases")
    };
    let granted = |verb: &&&str| {
        let mut rules =
            rights.resource_rules.iter().filter(leases).filter(|rule| rule.resource_names.is_empty());
        rules.any(|rule| rule.names(&rule.verbs, verb))
    };
    let missing: Vec<_> = VERBS.iter().filter(|verb| !granted(verb)).copied().collect();
    if !missing.is_empty() && !rights.incomplete {
        doubts.push(format!(
            "this user may not {} leases in this namespace: grant what `tenure schema --for kubernetes` prints",
            missing.join(", ")
        ));
    }
    if rights.resource_rules.iter().any(Rule::is_wide) {
        doubts.push(
            "rights wider than needed: this user may write more than leases; `tenure schema --for kubernetes` prints a \
             service account that may not"
                .to_owned(),
        );
    }
    doubts
}

impl Rule {
    fn names(&self, list: &[String], one: &str) -> bool {
        list.iter().any(|named| named == one || named == "*")
    }

    /// Whether it lets its user write anything but Leases. Every user may ask about itself.
    fn is_wide(&self) -> bool {
        let writes = self.verbs.iter().any(|verb| !["get", "list", "watch"].contains(&verb.as_str()));
        let own =
            |group: &String| ["authorization.k8s.io", "authentication.k8s.io"].contains(&group.as_str());
        let leases = self.resources.iter().all(|resource| resource == "leases");
        writes && !leases && !self.api_groups.iter().all(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], group: &str, resource: &str) -> Rule {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        Rule {
            verbs: owned(verbs),
            api_groups: owned(&[group]),
            resources: owned(&[resource]),
            resource_names: Vec::new(),
        }
    }

    fn found(rules: Vec<Rule>) -> Vec<String> {
        doubts(&RightsFound { resource_rules: rules, incomplete: false })
    }

    #[test]
    fn rights_that_are_missing_or_too_wide_are_told() {
        let least = || rule(VERBS, "coordination.k8s.io", "leases");
        let own = || rule(&["create"], "authorization.k8s.io", "selfsubjectrulesreviews");
        assert_eq!(found(vec![least(), own()]), Vec::<String>::new());
        let told = found(vec![rule(&VERBS[..5], "coordination.k8s.io", "leases"), own()]);
        assert!(told.len() == 1 && told[0].contains("may not delete leases"), "{told:?}");
        for wide in [rule(&["*"], "*", "*"), rule(&["update"], "", "secrets")] {
            let told = found(vec![least(), wide]);
            assert!(told.len() == 1 && told[0].contains("wider"), "{told:?}");
        }
        assert_eq!(found(vec![least(), rule(&["get"], "", "pods")]), Vec::<String>::new());
    }

    #[test]
    fn servers_that_read_every_lease_for_each_list_are_told() {
        for (minor, told) in [("27", true), ("30+", true), ("31", false), ("36", false), ("", false)] {
            let release = Release { git_version: "v".to_owned(), minor: minor.to_owned() };
            assert_eq!(costly(&release).is_some(), told, "{minor}");
        }
    }
}
