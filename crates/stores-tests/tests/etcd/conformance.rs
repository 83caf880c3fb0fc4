//! The etcd store keeps the contract: on one member, on a group whose members are really killed, with users and passwords.

use std::sync::Mutex;

use tenure::store::MAX_VALUE;
use tenure_torture::servers::etcd::Etcd as Server;

use crate::groups::Own;

const PASSWORD: &str = "correct-horse-battery";

fn own(server: Server, login: &str) -> Own<Server> {
    let url = format!("etcd://{login}{}/tenure?timeout=30s", server.hosts());
    Own { server: Mutex::new(server), url, secret: PASSWORD, longest_value: MAX_VALUE }
}

/// For a user with the rights that `tenure schema` prints.
fn with_users() -> Own<Server> {
    let server = Server::start(1, &[]);
    for words in [
        "role add app",
        "role grant-permission app --prefix=true readwrite tenure/",
        &format!("user add app:{PASSWORD}"),
        "user grant-role app app",
        &format!("user add root:{PASSWORD}"),
        "user grant-role root root",
        "auth enable",
    ] {
        let _ = server.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    own(server, &format!("app:{PASSWORD}@"))
}

mod one_member {
    use super::*;

    tenure::conformance!(own(Server::start(1, &[]), ""));
}

mod three_members {
    use super::*;

    tenure::conformance!(own(Server::start(3, &[]), ""));
}

mod with_users {
    use super::*;

    tenure::conformance!(with_users());
}
