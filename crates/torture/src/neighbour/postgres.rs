//! The neighbour on PostgreSQL: a login of the same database with a schema of its own, and no grant.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::judge::NeighbourActivity;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::poll_fn;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Error as SqlError, NoTls, SimpleQueryMessage};

use super::forgeries::{ForgedHint, HintForger};
use super::{Attempt, NAME, Neighbour, NeighbourLog, pause};
use crate::Error;

/// So many locks of nodes it waits for at once.
const LOCKS: usize = 3;
/// The lock under which nodes make their tables: every login can know it.
const TABLES: i64 = 0x66b5_1047_2736_f6f3;

/// Made by the server's administrator.
const MOVE_IN: &str = "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE neighbour LOGIN CONNECTION LIMIT 20; \
    CREATE SCHEMA neighbour AUTHORIZATION neighbour";

/// What it makes in its own schema, in the hope that a node falls for it.
const DECOYS: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS neighbour.tenure_schema AS SELECT true AS one, 1 AS version, 'forged'::text AS id",
    "CREATE TABLE IF NOT EXISTS neighbour.tenure_registers (namespace text, epoch text, kind text, name text, \
        version text, token bigint, value text)",
    "CREATE OR REPLACE FUNCTION neighbour.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT'",
    "CREATE OR REPLACE FUNCTION neighbour.tenure_notify_v2(text, text, text, text) RETURNS void LANGUAGE sql AS 'SELECT'",
    "GRANT USAGE ON SCHEMA neighbour TO PUBLIC",
    "GRANT ALL ON ALL TABLES IN SCHEMA neighbour TO PUBLIC",
];

/// What it must be refused. A question that is answered with nothing was refused too.
const FORBIDDEN: &[&str] = &[
    "SELECT value FROM public.tenure_registers",
    "SELECT id FROM public.tenure_schema",
    "SELECT * FROM public.tenure_leaders",
    "INSERT INTO public.tenure_registers VALUES ('forged', '1', 'role', 'role-1', 'v', 1, '{}')",
    "UPDATE public.tenure_registers SET token = 9007199254740991",
    "DELETE FROM public.tenure_registers WHERE kind = 'session'",
    "TRUNCATE public.tenure_registers",
    "DO $$ BEGIN LOCK TABLE public.tenure_registers IN ACCESS SHARE MODE; END $$",
    "ALTER TABLE public.tenure_registers DISABLE TRIGGER ALL",
    "DROP TABLE public.tenure_registers",
    "CREATE INDEX ON public.tenure_registers (value)",
    "REINDEX TABLE public.tenure_registers",
    "CREATE RULE forged AS ON UPDATE TO public.tenure_registers DO INSTEAD NOTHING",
    "GRANT ALL ON public.tenure_registers TO neighbour",
    "SELECT * FROM public.tenure_write_v2('forged', '{1}', '{role}', '{role-1}', '{NULL}', '{v}', '{1}', '{x}', '{t}', \
        '{NULL}', 1000)",
    "SELECT public.tenure_notify_v2('forged', '1', 'role', 'role-1')",
    "CREATE OR REPLACE FUNCTION public.tenure_notify_v2(text, text, text, text) RETURNS void LANGUAGE sql AS 'SELECT'",
    "CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT'",
    "CREATE TABLE public.tenure_forged (x integer)",
    "CREATE SCHEMA tenure",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' AND datname = 'postgres'",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' AND datname = 'postgres'",
    "SELECT query FROM pg_stat_activity WHERE usename = 'postgres' AND query <> '<insufficient privilege>'",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "ALTER ROLE postgres NOLOGIN",
    "ALTER ROLE neighbour CONNECTION LIMIT -1",
    "ALTER DATABASE postgres CONNECTION LIMIT 0",
    "ALTER SYSTEM SET max_connections = 1",
    "SELECT pg_reload_conf()",
    "SELECT pg_switch_wal()",
    "SELECT pg_read_file('postgresql.conf')",
    "COPY (SELECT 1) TO PROGRAM 'true'",
];

struct NeighbourConnection {
    url: String,
    address: SocketAddr,
    /// Where nodes tell each other of changes. It is told: it could not know.
    channel: String,
    forger: HintForger,
    log: NeighbourLog,
}

pub(super) async fn start(
    neighbour: &mut Neighbour,
    url: &str,
    forger: HintForger,
    log: NeighbourLog,
) -> Result<(), Error> {
    let failed = |error: SqlError| Error::Failed(format!("cannot let the neighbour in: {error}"));
    let admin = connect(url).await.map_err(failed)?;
    admin.batch_execute(MOVE_IN).await.map_err(failed)?;
    let id = admin.query_one("SELECT id FROM tenure_schema", &[]).await.map_err(failed)?;
    let channel = format!("tenure_{}", id.get::<_, &str>(0));
    let (_, rest) = url.split_once('@').unwrap_or_default();
    let address = rest.trim_end_matches("/postgres").parse();
    let address = address.map_err(|error| Error::Failed(format!("{url}: {error}")))?;
    let place =
        NeighbourConnection { url: format!("postgres://{NAME}@{rest}"), address, channel, forger, log };
    let place = Arc::new(place);
    let of = || place.clone();
    let (one, two, three, four, five, six) = (of(), of(), of(), of(), of(), of());
    neighbour.keep(move || one.clone().forge());
    neighbour.keep(move || two.clone().listen());
    neighbour.keep(move || three.clone().trespass());
    neighbour.keep(move || four.clone().flood());
    neighbour.keep(move || five.clone().squat());
    neighbour.keep(move || six.clone().look_on());
    Ok(())
}

async fn connect(url: &str) -> Result<Client, SqlError> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl NeighbourConnection {
    /// Where it tells its lies, and listens: on channels that it guesses, and on the one that there is.
    fn channels(&self) -> [&str; 3] {
        ["tenure", "tenure_schema", &self.channel]
    }

    async fn forge(self: Arc<Self>) -> Result<(), SqlError> {
        let (client, mut random) = (connect(&self.url).await?, self.log.random());
        loop {
            let forgeries = self.forger.forgeries(&mut random).await;
            let text = |ForgedHint { namespace, epoch, kind, name }: &ForgedHint| {
                format!("{namespace}\n{epoch}\n{kind}\n{name}")
            };
            let texts: Vec<String> = forgeries.iter().map(text).collect();
            let ask = "SELECT pg_notify(c, t) FROM unnest($1::text[]) AS c, unnest($2::text[]) AS t";
            let told = client.query(ask, &[&&self.channels()[..], &texts]).await?;
            self.log.note(NeighbourActivity { forged: told.len() as u64, ..NeighbourActivity::default() });
            pause(&mut random, 100..500).await;
        }
    }

    async fn listen(self: Arc<Self>) -> Result<(), SqlError> {
        let (client, mut connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        let listen: String = self.channels().iter().map(|channel| format!("LISTEN \"{channel}\";")).collect();
        let mut messages = poll_fn(move |context| connection.poll_message(context));
        let hear = async {
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(told) = message {
                    self.log.received(told.payload());
                }
            }
        };
        let ask = async {
            client.batch_execute(&listen).await?;
            std::future::pending::<Result<(), SqlError>>().await
        };
        tokio::select! {
            () = hear => Ok(()),
            failed = ask => failed,
        }
    }

    async fn trespass(self: Arc<Self>) -> Result<(), SqlError> {
        let (client, mut random) = (connect(&self.url).await?, self.log.random());
        loop {
            for statement in DECOYS {
                let _ = client.batch_execute(statement).await;
            }
            for statement in FORBIDDEN {
                let came = match client.simple_query(statement).await {
                    Ok(answer) => answered(statement, &answer),
                    Err(error) => judge(error)?,
                };
                self.log.record(statement, came);
                pause(&mut random, 5..30).await;
            }
            pause(&mut random, 1_000..3_000).await;
        }
    }

    async fn flood(self: Arc<Self>) -> Result<(), SqlError> {
        let is_refusal = |error: &SqlError| error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS);
        self.log.flood(self.address, || connect(&self.url), is_refusal).await;
        Ok(())
    }

    /// Every login sees which advisory locks are held, and may wait for them. A login that gets one that proves a connection of a
    /// node to be there can let go of it and take it again.
    async fn squat(self: Arc<Self>) -> Result<(), SqlError> {
        let client = connect(&self.url).await?;
        let ask = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' \
            AND objsubid = 1 AND granted AND mode = 'ExclusiveLock' ORDER BY random() LIMIT $1";
        let found = client.query(ask, &[&i64::try_from(LOCKS).unwrap_or(1)]).await?;
        let keys = found.iter().map(|row| row.get(0)).chain([TABLES]);
        join_all(keys.map(|key| self.squat_on(key))).await;
        Ok(())
    }

    async fn squat_on(&self, key: i64) -> Result<(), SqlError> {
        const HELD: Duration = Duration::from_millis(150);
        const FREE: Duration = Duration::from_millis(60);
        let client = connect(&self.url).await?;
        client.batch_execute(&format!("SET lock_timeout = '5s'; SELECT pg_advisory_lock({key})")).await?;
        self.log.note(NeighbourActivity { locks: 1, ..NeighbourActivity::default() });
        for _ in 0..20 {
            tokio::time::sleep(HELD).await;
            client.batch_execute(&format!("SELECT pg_advisory_unlock({key})")).await?;
            tokio::time::sleep(FREE).await;
            client.batch_execute(&format!("SELECT pg_try_advisory_lock({key})")).await?;
        }
        Ok(())
    }

    /// A transaction that stays open: the server keeps old rows for it, and notifications that it does not read.
    async fn look_on(self: Arc<Self>) -> Result<(), SqlError> {
        let (client, mut random) = (connect(&self.url).await?, self.log.random());
        loop {
            let begin = "LISTEN tenure; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
            client.batch_execute(begin).await?;
            pause(&mut random, 1_000..20_000).await;
            client.batch_execute("COMMIT").await?;
        }
    }
}

/// What was answered counts only if there is something in it.
fn answered(statement: &str, answer: &[SimpleQueryMessage]) -> Attempt {
    // False: a process that was to be ended was gone by then.
    let something = |value: &str| value != "f";
    let holds = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0).is_some_and(something));
    let nothing = statement.starts_with("SELECT") && !answer.iter().any(holds);
    if nothing { Attempt::Refused } else { Attempt::Done }
}

/// What an error means; one of the connection is handed on.
fn judge(error: SqlError) -> Result<Attempt, SqlError> {
    /// Read-only, rolled back, out of something, in the wrong state, shutting down, failing.
    const BUSY: [&str; 7] = ["08", "25", "40", "53", "55", "57", "58"];
    match error.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Ok(Attempt::Refused),
        Some(code) if BUSY.contains(&&code.code()[..2]) => Ok(Attempt::Unknown),
        Some(_) => Ok(Attempt::Failed(error.to_string())),
        None => Err(error),
    }
}
