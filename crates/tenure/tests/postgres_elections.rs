//! Elections on PostgreSQL, through the library: what a user of the crate sees when the server has a bad day.

mod postgres_kit;
mod server_kit;

use async_trait::async_trait;
use postgres_kit::OneServer;
use server_kit::elections::Stage;
use tempfile::TempDir;
use tenure::store::SharedStore;

elections!(OneServer::new());

impl OneServer {
    async fn count(&self, ask: &str) -> usize {
        let count: i64 = self.admin().await.query_one(ask, &[]).await.expect("an answer").get(0);
        usize::try_from(count).expect("a count")
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
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'";
        self.admin().await.query(kill, &[]).await.expect("an answer").len()
    }

    async fn delete_sessions(&self) {
        let delete = "DELETE FROM tenure_registers WHERE kind = 'session'";
        self.admin().await.batch_execute(delete).await.expect("hands may delete sessions");
    }

    async fn leader(&self) -> (String, u64, String) {
        let ask = "SELECT node, token, session_state FROM tenure_leaders WHERE namespace = 'default' AND since <= now()";
        let row = self.admin().await.query_one(ask, &[]).await.expect("one leader");
        (row.get(0), row.get::<_, i64>(1).cast_unsigned(), row.get(2))
    }

    async fn connections(&self) -> usize {
        self.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'").await
    }

    async fn memories(&self) -> usize {
        self.count("SELECT count(DISTINCT id) FROM tenure_schema").await
    }
}
