//! The ZooKeeper store keeps the contract: on one server with a login, on an ensemble whose servers are really killed.

use std::sync::Mutex;

use tenure_torture::servers::zookeeper::ZooKeeper as Server;

use crate::groups::Own;

pub(crate) const PASSWORD: &str = "correct-horse-battery";

fn own(server: Server, login: &str) -> Own<Server> {
    let url = format!("zookeeper://{login}{}/a/tenure?timeout=30s", server.hosts());
    // What fits in a question of 1 MiB.
    let longest_value = (1 << 20) - 4096;
    Own { server: Mutex::new(server), url, secret: PASSWORD, longest_value }
}

mod one_server {
    use super::*;

    tenure::conformance!(own(Server::start(1, ""), &format!("app:{PASSWORD}@")));
}

mod three_servers {
    use super::*;

    tenure::conformance!(own(Server::start(3, ""), ""));
}
