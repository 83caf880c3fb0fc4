//! Elections on MySQL, through the library: what a user of the crate sees when the server has a bad day.

mod mysql_kit;
mod server_kit;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_kit::{OneServer, kill_connections, row};
use server_kit::elections::Stage;
use tempfile::TempDir;
use tenure::store::SharedStore;

elections!(OneServer::new());

impl OneServer {
    async fn count(&self, ask: &str) -> usize {
        self.admin().await.query_first(ask).await.expect("an answer").expect("a count")
    }
}

#[async_trait]
impl Stage for OneServer {
    fn store(&self) -> SharedStore {
        Self::store(self)
    }

    fn freeze(&self) {
        self.server().freeze();
    }

    fn thaw(&self) {
        self.server().thaw();
    }

    fn crash(&self) -> TempDir {
        self.server().crash()
    }

    fn launch(&self, dir: TempDir) {
        self.server().launch(dir);
    }

    async fn kill_connections(&self) -> usize {
        kill_connections(&mut self.admin().await, "app").await
    }

    async fn delete_sessions(&self) {
        let delete = "DELETE FROM tenure_registers WHERE kind = 'session'";
        self.admin().await.query_drop(delete).await.expect("hands may delete sessions");
    }

    async fn leader(&self) -> (String, u64, String) {
        let ask = "SELECT node, token, session_state FROM tenure_leaders WHERE namespace = 'default' \
            AND since <= UTC_TIMESTAMP(6)";
        let row = row(&mut self.admin().await, ask).await;
        let text = |nth: usize| row[nth].clone().expect("a leader");
        (text(0), text(1).parse().expect("a token"), text(2))
    }

    /// Those that are ending are asleep until the server notices that nobody is there: they are not counted twice.
    async fn connections(&self) -> usize {
        self.count(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app' AND COMMAND <> 'Killed'",
        )
        .await
    }

    async fn memories(&self) -> usize {
        self.count("SELECT COUNT(DISTINCT id) FROM tenure_schema").await
    }
}
