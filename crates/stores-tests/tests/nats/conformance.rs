//! The NATS store keeps the contract: on one server, on a group whose servers are really killed, with the least rights.

use std::sync::Mutex;

use tenure::store::MAX_VALUE;
use tenure_torture::servers::nats::Nats as Server;

use crate::groups::Own;
use crate::server_kit::name;

pub(crate) const PASSWORD: &str = "correct-horse-battery";

fn own(server: Server, login: &str) -> Own<Server> {
    let url = format!("nats://{login}{}/tenure?timeout=30s&sync=always", server.hosts());
    Own { server: Mutex::new(server), url, secret: PASSWORD, longest_value: MAX_VALUE }
}

/// For a user with the rights that `tenure schema` prints, which are set as it prints them.
fn with_users() -> Own<Server> {
    let server = Server::start_as(1, &rights(), "\"user\":\"root\",\"pass\":\"root\"");
    own(server, &format!("app:{PASSWORD}@"))
}

/// The block of configuration that `tenure schema` prints, and one user more who may do everything.
pub(crate) fn rights() -> String {
    let request = tenure::schema::SchemaRequest::new("nats", name("app"), name("default"));
    let text = request.text().expect("NATS has something to set up");
    let begin = text.find("authorization {").expect("it prints rights");
    let end = begin + text[begin..].find("\n}\n").expect("they end") + 3;
    let root = "users = [ { user: root, password: root },";
    text[begin..end].replace("users = [", root).replace("$TENURE_PASSWORD", PASSWORD)
}

mod one_server {
    use super::*;

    tenure::conformance!(own(Server::start(1, ""), ""));
}

mod three_servers {
    use super::*;

    tenure::conformance!(own(Server::start(3, ""), ""));
}

mod with_users {
    use super::*;

    tenure::conformance!(with_users());
}
