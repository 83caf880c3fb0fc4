//! One connection: how it is opened, what is found out about the server first, and how statements are sent on it.

use std::fmt;

use futures_util::stream::{BoxStream, StreamExt, poll_fn};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Connection, Error, NoTls, Row, Statement};
use tokio_util::sync::CancellationToken;

use super::inspect::INSPECT;
use super::rows::Param;
use super::schema::Tables;
use super::settings::PostgresSettings;
use super::{STORE, batch, error, rows, schema};
use tenure_store::StoreError;
use tenure_store::kit::connection::{self, DataIdentity};

/// What the connection itself has to say; polling it is what moves bytes.
pub(super) type Wire = BoxStream<'static, Result<AsyncMessage, Error>>;

/// The oldest server whose statements we speak.
const OLDEST: i32 = 140_000;

/// An open connection.
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    /// Read and write, prepared once; none behind a pooler, where the next statement may meet another server process.
    prepared: Option<Prepared>,
    /// Whether the server took our session settings: nothing stands between us and one process of it.
    pub(super) direct: bool,
    pub(super) data: DataIdentity,
    /// The statement with which a connection subscribes to changes of this data.
    pub(super) listen: String,
    statements: Statements,
    pub(super) broken: CancellationToken,
}

/// What is asked over and over.
struct Prepared {
    read: Statement,
    write: Statement,
    exchange: Statement,
    free: Statement,
}

/// The statements on the tables of one schema.
struct Statements {
    read: String,
    write: String,
    exchange: String,
    inspect: String,
}

impl Statements {
    fn on(schema: &str) -> Self {
        let on = |statement: &str| statement.replace("tenure_", &format!("{schema}.tenure_"));
        // There the names of tables are texts.
        let inspect = INSPECT
            .replace("'tenure_registers'", &format!("'{}.tenure_registers'", schema.replace('\'', "''")));
        Self { read: on(rows::READ), write: on(batch::WRITE), exchange: on(&batch::exchange()), inspect }
    }
}

impl connection::Connection for PostgresConnection {
    fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    fn data_identity(&self) -> &DataIdentity {
        &self.data
    }

    fn is_up(&self) -> bool {
        !self.client.is_closed() && !self.broken.is_cancelled()
    }
}

impl PostgresConnection {
    /// Opens a connection for operations: makes the tables if they are missing, and prepares the statements. The wire
    /// has to be polled meanwhile, which [`while_polled`] does.
    pub(super) async fn open(settings: &PostgresSettings) -> Result<(Self, Wire), StoreError> {
        let (client, mut wire, with_options) = connect(settings).await?;
        let opened = while_polled(&mut wire, Self::prepare(settings, client, with_options)).await?;
        Ok((opened, wire))
    }

    async fn prepare(
        settings: &PostgresSettings,
        client: Client,
        with_options: bool,
    ) -> Result<Self, StoreError> {
        let failed = |error| error::connecting(&settings.place, &error);
        let greeting = client.query_typed_one(GREETING, &[]).await.map_err(failed)?;
        check(&greeting, &settings.place)?;
        let direct = with_options && greeting.get::<_, i64>("patience") == i64::from(settings.patience_ms());
        let Tables { schema, id } = schema::ensure(&client, settings).await?;
        let statements = Statements::on(&schema);
        // A server may keep this from ordinary users; the rest of the identity has to do then.
        let system =
            client.query_typed_one("SELECT system_identifier::text FROM pg_control_system()", &[]).await;
        let system = system.map_or_else(|_| "hidden".to_owned(), |row| row.get(0));
        let (database, timeline): (String, String) = (greeting.get("database"), greeting.get("timeline"));
        let identity = format!("postgres:{system}:{timeline}:{database}:{id}");
        let flushed = u64::try_from(greeting.get::<_, i64>("flushed")).ok();
        let data = DataIdentity { identity, marks: [flushed, None] };
        let prepared = if direct {
            let read = client.prepare(&statements.read).await.map_err(failed)?;
            let write = client.prepare(&statements.write).await.map_err(failed)?;
            let exchange = client.prepare(&statements.exchange).await.map_err(failed)?;
            Some(Prepared { read, write, exchange, free: client.prepare(rows::FREE).await.map_err(failed)? })
        } else {
            None
        };
        let listen = format!("LISTEN \"tenure_{}\"", id.replace('"', "\"\""));
        Ok(Self { client, prepared, direct, data, listen, statements, broken: CancellationToken::new() })
    }

    pub(super) async fn read(&self, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        match &self.prepared {
            Some(Prepared { read, .. }) => self.client.query(read, &values(params)).await,
            None => self.client.query_typed(&self.statements.read, params).await,
        }
    }

    pub(super) async fn write(&self, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        match &self.prepared {
            Some(Prepared { write, .. }) => self.client.query(write, &values(params)).await,
            None => self.client.query_typed(&self.statements.write, params).await,
        }
    }

    pub(super) async fn exchange(&self, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        match &self.prepared {
            Some(Prepared { exchange, .. }) => self.client.query(exchange, &values(params)).await,
            None => self.client.query_typed(&self.statements.exchange, params).await,
        }
    }

    /// What the server is.
    pub(super) async fn inspect(&self) -> Result<Row, Error> {
        self.client.query_typed_one(&self.statements.inspect, &[]).await
    }

    /// Which of these advisory locks are free.
    pub(super) async fn free(&self, keys: &Vec<i64>) -> Result<Vec<i64>, Error> {
        let rows = match &self.prepared {
            Some(Prepared { free, .. }) => self.client.query(free, &[keys]).await?,
            None => self.client.query_typed(rows::FREE, &[(keys, Type::INT8_ARRAY)]).await?,
        };
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

impl fmt::Debug for PostgresConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConnection").field("direct", &self.direct).finish_non_exhaustive()
    }
}

fn values<'a>(params: &[Param<'a>]) -> Vec<&'a (dyn tokio_postgres::types::ToSql + Sync)> {
    params.iter().map(|(value, _)| *value).collect()
}

/// The timeline is the first third of the name of the log file; a promoted standby has another one.
const GREETING: &str = "
SELECT current_setting('server_version_num')::integer AS version, pg_is_in_recovery() AS in_recovery,
    current_setting('transaction_read_only') = 'on' AS read_only,
    (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout') AS patience,
    (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database,
    CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8) END
        AS timeline,
    CASE WHEN pg_is_in_recovery() THEN 0 ELSE (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint END AS flushed";

fn check(greeting: &Row, place: &str) -> Result<(), StoreError> {
    let refuse = |why: &str| Err(StoreError::not_applied(STORE, format!("{place}: {why}")).permanent());
    if greeting.get::<_, i32>("version") < OLDEST {
        return refuse("this server is older than PostgreSQL 14: upgrade it");
    }
    if greeting.get("in_recovery") {
        return refuse("the server is a standby: name the primary, or all hosts of the cluster");
    }
    if greeting.get("read_only") {
        return refuse("default_transaction_read_only is on for this user or database: switch it off");
    }
    Ok(())
}

/// Opens a connection: with settings of our own if the server takes them, without if something between us refuses
/// them. Tells which.
pub(super) async fn connect(settings: &PostgresSettings) -> Result<(Client, Wire, bool), StoreError> {
    match connect_once(settings, true).await {
        Ok((client, wire)) => Ok((client, wire, true)),
        Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
            let plain = connect_once(settings, false).await;
            plain
                .map(|(client, wire)| (client, wire, false))
                .map_err(|error| error::connecting(&settings.place, &error))
        }
        Err(error) => Err(error::connecting(&settings.place, &error)),
    }
}

async fn connect_once(settings: &PostgresSettings, with_options: bool) -> Result<(Client, Wire), Error> {
    let config = settings.config(with_options);
    match &settings.tls {
        Some(tls) => config.connect(tls.clone()).await.map(|(client, wire)| (client, stream(wire))),
        None => config.connect(NoTls).await.map(|(client, wire)| (client, stream(wire))),
    }
}

fn stream<S, T>(mut connection: Connection<S, T>) -> Wire
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    poll_fn(move |context| connection.poll_message(context)).boxed()
}

/// Does something on a connection that no task polls yet.
pub(super) async fn while_polled<T>(
    wire: &mut Wire,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            said = wire.next() => if !matches!(said, Some(Ok(_))) {
                // With the wire goes what would still be waited for: the work fails by itself.
                *wire = futures_util::stream::empty().boxed();
                return work.await;
            },
        }
    }
}
