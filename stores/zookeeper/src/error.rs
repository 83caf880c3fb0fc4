//! What ZooKeeper and the network complain about: what may be assumed, and what to do.

use tenure_store::StoreError;

use super::STORE;

/// The errors of ZooKeeper that are told apart.
pub(super) mod code {
    pub(in super::super) const OK: i32 = 0;
    pub(in super::super) const UNIMPLEMENTED: i32 = -6;
    pub(in super::super) const NO_NODE: i32 = -101;
    pub(in super::super) const NO_RIGHTS: i32 = -102;
    pub(in super::super) const BAD_VERSION: i32 = -103;
    pub(in super::super) const NODE_EXISTS: i32 = -110;
    pub(in super::super) const NOT_EMPTY: i32 = -111;
}

pub(super) fn refused_login(place: &str) -> StoreError {
    let message = format!("{place} refuses this login: see the name and the password in the URL");
    StoreError::not_applied(STORE, message).permanent()
}

pub(super) fn too_long() -> StoreError {
    let message = "the value is longer than ZooKeeper takes, which is 1 MiB with its name";
    StoreError::not_applied(STORE, message).permanent()
}

/// What a server refuses, and whether a person has to act.
const COMPLAINTS: &[(i32, bool, &str)] = &[
    (code::UNIMPLEMENTED, true, "this ZooKeeper is too old: version 3.6 or later is needed"),
    (
        code::NO_RIGHTS,
        true,
        "this login may not do that: give it the rights that `tenure schema --for zookeeper` prints",
    ),
    (code::NO_NODE, false, "a znode was deleted meanwhile"),
    (-112, false, "the session has expired"),
    (-114, true, "the rights of the znode at the top are none that this login may give: see `getAcl`"),
    (-118, false, "the session has moved to another server"),
    (-119, false, "this server only answers reads: it has lost the others"),
    (-125, true, "the quota of the znode is used up: raise it with `setquota`"),
    (-127, false, "this server has too much to do"),
];

/// What an error of a server means.
pub(super) fn of_code(place: &str, code: i32) -> StoreError {
    match COMPLAINTS.iter().find(|(known, ..)| *known == code) {
        Some((_, permanent, what)) => {
            StoreError::not_applied(STORE, format!("{place}: {what}")).permanent_if(*permanent)
        }
        None => StoreError::unknown(STORE, format!("{place} answers with error {code} of ZooKeeper")),
    }
}

#[cfg(test)]
mod tests {
    use tenure_store::{Fate, Retry};

    use super::super::PRODUCT;
    use super::*;

    #[test]
    fn only_what_the_server_refused_is_proven() {
        assert_eq!(of_code("h:1", code::NO_RIGHTS).fate(), Fate::NotApplied);
        assert_eq!(of_code("h:1", code::NO_RIGHTS).retry(), Retry::Never);
        assert_eq!(of_code("h:1", -112).retry(), Retry::Soon);
        for unknown in [-4, -7, -1, -100, 5] {
            assert_eq!(of_code("h:1", unknown).fate(), Fate::Unknown, "{unknown}");
        }
        assert_eq!(PRODUCT.lost("h:1").fate(), Fate::Unknown);
        assert_eq!(PRODUCT.lost("h:1").only_looked().fate(), Fate::NotApplied);
    }
}
