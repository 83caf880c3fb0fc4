//! Asking Sentinels which server is the primary now.

use std::fmt;
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client};

use super::STORE;
use super::settings::refuse;
use tenure_store::StoreError;
use tenure_store::kit::plaintext;

const PORT: u16 = 26379;

/// The Sentinels of a URL, and what they call the primary.
#[derive(Clone)]
pub(super) struct Sentinels {
    places: Vec<(String, u16)>,
    name: String,
}

/// Takes a Sentinel URL apart: what is left names the credentials and the database of the server itself.
pub(super) fn split(base: &str) -> Result<(String, Option<Sentinels>), StoreError> {
    let Some((scheme, rest)) = base.split_once("+sentinel://") else { return Ok((base.to_owned(), None)) };
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (format!("{credentials}@"), rest),
        None => (String::new(), rest),
    };
    let mut parts = rest.split('/');
    let hosts = parts.next().unwrap_or_default();
    let name = parts.next().unwrap_or_default();
    let db = parts.next().unwrap_or("0");
    if name.is_empty() || parts.next().is_some() {
        return Err(refuse(
            "a Sentinel URL ends with the name of the primary as the Sentinels know it, and perhaps a database: \
             redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB",
        ));
    }
    let places = hosts.split(',').map(place).collect::<Result<Vec<_>, _>>()?;
    // The host is replaced by what the Sentinels answer.
    let server = format!("{scheme}://{credentials}sentinel:6379/{db}");
    Ok((server, Some(Sentinels { places, name: name.to_owned() })))
}

fn place(text: &str) -> Result<(String, u16), StoreError> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (text, Some(PORT)),
    };
    match port {
        Some(port) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err(refuse("a Sentinel is named as HOST:PORT, several with commas between them")),
    }
}

impl Sentinels {
    /// Whether all of them are on this machine.
    pub(super) fn are_local(&self) -> bool {
        self.places.iter().all(|(host, _)| plaintext::is_local(host))
    }

    /// Where the primary is, by the first Sentinel that answers.
    pub(super) async fn primary(
        &self,
        client: impl Fn((String, u16)) -> Result<Client, StoreError>,
        patience: Duration,
    ) -> Result<(String, u16), StoreError> {
        let mut last = String::from("none was asked");
        let each = patience / u32::try_from(self.places.len()).unwrap_or(1).max(1);
        for (host, port) in &self.places {
            match tokio::time::timeout(each, ask(client((host.clone(), *port))?, &self.name)).await {
                Ok(Ok(Some(found))) => return Ok(found),
                Ok(Ok(None)) => last = format!("{host}:{port} does not know {:?}", self.name),
                Ok(Err(error)) => last = format!("{host}:{port}: {}", error.category()),
                Err(_) => last = format!("{host}:{port} did not answer"),
            }
        }
        let message =
            format!("no Sentinel says where the primary is ({last}): see whether they run and know it");
        Err(StoreError::not_applied(STORE, message))
    }
}

async fn ask(client: Client, name: &str) -> redis::RedisResult<Option<(String, u16)>> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).query_async(&mut connection).await
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.places.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        write!(f, "{}/{}", places.join(","), self.name)
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
