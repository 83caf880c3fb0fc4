//! What a child inherits of this process's environment: everything that is not ours. A store's URL, a token or the key of
//! a receiver of alerts is none of its business; what it is to know of its tenure it is given by name.

use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::sync::RwLock;

/// What begins so is ours.
const PREFIX: &str = "TENURE_";

/// What was said about the environment of children. It is one for the whole process, as the environment is.
static RULES: RwLock<InheritRules> = RwLock::new(InheritRules { pass: Vec::new(), secret: Vec::new() });

struct InheritRules {
    pass: Vec<String>,
    secret: Vec<String>,
}

/// From now on children inherit the variables `pass` even though they are ours, and not those in `secret` even though
/// they are not, unless they are passed too.
pub fn set(pass: Vec<String>, secret: Vec<String>) {
    *RULES.write().unwrap_or_else(std::sync::PoisonError::into_inner) = InheritRules { pass, secret };
}

/// Takes out of a command's environment what it is not to inherit; what is set for it afterwards stays.
pub fn scrub(command: &mut Command) {
    let rules = RULES.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    for name in withheld(&rules, std::env::vars_os().map(|(name, _)| name)) {
        command.env_remove(name);
    }
}

fn withheld(rules: &InheritRules, names: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let listed = |list: &[String], name: &OsStr| list.iter().any(|listed| name == listed.as_str());
    let has_prefix = |name: &OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    names
        .filter(|name| (has_prefix(name) || listed(&rules.secret, name)) && !listed(&rules.pass, name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_or_a_secret_is_withheld_unless_it_is_passed() {
        let rules = InheritRules { pass: vec!["TENURE_STORE".into()], secret: vec!["PAGER_KEY".into()] };
        let names = ["TENURE_STORE", "TENURE_AGENT_TOKEN", "PAGER_KEY", "PATH", "XTENURE_"];
        let withheld = withheld(&rules, names.into_iter().map(OsString::from));
        assert_eq!(withheld, ["TENURE_AGENT_TOKEN", "PAGER_KEY"]);
    }
}
