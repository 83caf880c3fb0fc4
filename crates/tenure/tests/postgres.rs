//! PostgreSQL keeps the contract, on a real server that is really killed.

mod postgres_kit;

use postgres_kit::OneServer;

mod postgres {
    use super::*;

    tenure::conformance!(OneServer::new());
}
