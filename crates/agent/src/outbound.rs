//! Calls to others: HTTP tasks, health checks, webhooks of alerts, scrapes of other agents, and commands that ask an agent.
//!
//! One place builds their clients: a call goes to the host that was named and nowhere else. Redirects are not followed
//! (within one origin only if the configuration says so), proxies come from the configuration and never from the
//! environment, and link-local addresses, where clouds keep their secrets, are refused, whatever a name resolves to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name as HostName, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, ClientBuilder, NoProxy, Proxy, Url};

/// How calls are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outbound {
    /// Whether redirects within one origin are followed; those to another never are.
    pub same_origin: bool,
    /// The proxy for every host but this one. May hold a password.
    pub proxy: Option<String>,
    /// Whether link-local addresses, and others at which clouds keep their secrets, may be called.
    pub link_local: bool,
}

/// Which hosts may be called without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Any: the configuration names them one by one.
    Anywhere,
    /// Only this very host: what is sent is secret.
    ThisHost,
}

/// So many redirects are followed, one after the other.
const REDIRECTS: usize = 5;

/// What every error of an address that is refused says.
pub const REFUSED: &str = "is refused";

impl Outbound {
    /// What calls this URL.
    ///
    /// # Errors
    /// If that URL is refused.
    pub fn client(&self, url: &Url, plain: Plain, timeout: Duration) -> Result<Client, String> {
        self.check(url, plain)?;
        let guard = Guarded { here: here(url, plain), link_local: self.link_local, look_up };
        let tls = |url: &str| url.starts_with("https:");
        let needs_tls = tls(url.as_str()) || self.proxy.as_deref().is_some_and(tls);
        let mut builder = bare(needs_tls).timeout(timeout).dns_resolver(Arc::new(guard));
        if plain == Plain::ThisHost {
            builder = builder.https_only(url.scheme() == "https");
        }
        if self.same_origin {
            builder = builder.redirect(Policy::custom(|attempt| match within_origin(&attempt) {
                true => attempt.follow(),
                false => attempt.stop(),
            }));
        }
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(through(proxy)?);
        }
        builder.build().map_err(|error| error.without_url().to_string())
    }

    /// Whether this URL may be called.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, url: &Url, plain: Plain) -> Result<(), String> {
        let here = here(url, plain);
        match literal(url) {
            Some(address) => check_address(address, here, self.link_local),
            None if here && url.host_str() != Some("localhost") => Err(PLAIN.to_owned()),
            None => Ok(()),
        }
    }

    /// Whether calls can be made like that.
    ///
    /// # Errors
    /// If the proxy cannot be used.
    pub fn check_proxy(&self) -> Result<(), String> {
        self.proxy.as_deref().map_or(Ok(()), |proxy| through(proxy).map(drop))
    }
}

const PLAIN: &str = "http:// is allowed for this host only (localhost, 127.0.0.1); use https://";

/// A client that goes nowhere but where it is told to. Without TLS it needs no certificates of authorities: a small image
/// has none.
pub fn bare(tls: bool) -> ClientBuilder {
    // Only the first provider counts, and there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().redirect(Policy::none()).no_proxy();
    if tls { builder } else { builder.tls_certs_only([]) }
}

/// Reads a URL that can be called.
///
/// # Errors
/// If it is something else.
pub fn parse(text: &str) -> Result<Url, String> {
    let fits = |url: &Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
    match Url::parse(text) {
        Ok(url) if fits(&url) => Ok(url),
        _ => Err("not a URL such as https://host/path".to_owned()),
    }
}

/// Why a call failed, without the URL, which may hold a secret.
#[must_use]
pub fn why(error: reqwest::Error) -> String {
    deepest(&error.without_url())
}

/// The last cause says most.
#[must_use]
pub fn deepest(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), deepest)
}

/// Whether only this host is meant.
fn here(url: &Url, plain: Plain) -> bool {
    plain == Plain::ThisHost && url.scheme() == "http"
}

fn within_origin(attempt: &Attempt<'_>) -> bool {
    let origin = attempt.previous().first().map(Url::origin);
    attempt.previous().len() <= REDIRECTS && origin.as_ref() == Some(&attempt.url().origin())
}

fn through(proxy: &str) -> Result<Proxy, String> {
    let found = parse(proxy).and_then(|url| Proxy::all(url).map_err(why));
    let found = found.map_err(|why| format!("cannot use the proxy: {why}"))?;
    Ok(found.no_proxy(NoProxy::from_string("localhost, 127.0.0.0/8, ::1")))
}

/// Resolves names, and refuses those that lead where nothing is to be sent. What it returns is what is connected to.
#[derive(Debug)]
struct Guarded {
    /// Only this host is meant.
    here: bool,
    link_local: bool,
    look_up: LookUp,
}

/// Which addresses a name has.
type LookUp = fn(HostName) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

fn look_up(name: HostName) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    Box::pin(async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) })
}

impl Resolve for Guarded {
    fn resolve(&self, name: HostName) -> Resolving {
        let Self { here, link_local, look_up } = *self;
        Box::pin(async move {
            let found = look_up(name).await?;
            for address in &found {
                check_address(address.ip(), here, link_local)?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The address in a URL that has one instead of a name.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether a URL names this very host.
#[must_use]
pub fn is_this_host(url: &Url) -> bool {
    url.host_str() == Some("localhost")
        || literal(url).is_some_and(|address| address.to_canonical().is_loopback())
}

fn check_address(address: IpAddr, here: bool, link_local: bool) -> Result<(), String> {
    let address = address.to_canonical();
    let reached = translated(address);
    let why = match reached {
        _ if !link_local && keeps_secrets(reached) => "it is a cloud metadata address",
        IpAddr::V4(address) if !link_local && address.is_link_local() => "it is link-local",
        IpAddr::V6(address) if !link_local && address.is_unicast_link_local() => "it is link-local",
        _ if reached.is_unspecified() || reached.is_multicast() => "it is unspecified",
        IpAddr::V4(address) if address.is_broadcast() || address.octets()[0] == 0 => "it is unspecified",
        _ if here && !address.is_loopback() => PLAIN,
        _ => return Ok(()),
    };
    let hint = if why.contains("link") || why.contains("cloud") {
        "; set outbound.link-local to allow it"
    } else {
        ""
    };
    Err(format!("{address} {REFUSED}: {why}{hint}"))
}

/// Whether clouds answer there with the credentials of the machine, or give them out to its programs. Most do at link-local
/// addresses; these are the others.
fn keeps_secrets(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => METADATA.contains(&address.octets()),
        IpAddr::V6(address) => {
            let parts = address.segments();
            parts.starts_with(&METADATA_AWS) || METADATA_V6.contains(&parts)
        }
    }
}

/// Alibaba, Azure, Oracle.
const METADATA: [[u8; 4]; 3] = [[100, 100, 100, 200], [168, 63, 129, 16], [192, 0, 0, 192]];
/// Everything that Amazon serves its machines and pods with: `fd00:ec2::/32`.
const METADATA_AWS: [u16; 2] = [0xfd00, 0xec2];
/// Google, Oracle, Scaleway, Akamai, Alibaba.
const METADATA_V6: [[u16; 8]; 5] = [
    [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
    [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
    [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42],
    [0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1],
    [0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200],
];

/// The IPv4 address that a translator on the way makes of an IPv6 one: NAT64, 6to4, and forms that are not used any more.
fn translated(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let (high, low) = match six.segments() {
        [0x64, 0xff9b, .., high, low] | [0x2002, high, low, ..] => (high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => (high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => (high, low),
        _ => return address,
    };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_be_told_is_refused() {
        let check = |url: &str| parse(url).and_then(|url| Outbound::default().check(&url, Plain::ThisHost));
        for fine in [
            "https://hooks.example/x",
            "https://10.0.0.7/x",
            "http://127.0.0.1:9/x",
            "http://localhost:9/",
            "http://[::1]:9/",
        ] {
            assert!(check(fine).is_ok(), "{fine}");
        }
        for wrong in [
            "http://hooks.example/x",
            "http://10.0.0.7/x",
            "ftp://127.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://[fe80::1]/",
            "https://[fd00:ec2::254]/",
            "https://100.100.100.200/",
            "https://[::ffff:169.254.169.254]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://[64:ff9b:1::a9fe:a9fe]/",
            "https://[2002:a9fe:a9fe::1]/",
            "https://[::169.254.169.254]/",
            "https://[::ffff:0:169.254.169.254]/",
            "https://[fd00:ec2::23]/",
            "https://[fd20:ce::254]/",
            "https://[fd00:c1::a9fe:a9fe]/",
            "https://[fd00:42::42]/",
            "https://[fd00:a9fe:a9fe::1]/",
            "https://[fd00:100::100:200]/",
            "https://168.63.129.16/",
            "https://192.0.0.192/",
            "https://0251.0376.0251.0376/",
            "https://169.16689662/",
            "http://[64:ff9b::7f00:1]/x",
            "https://0.0.0.0/",
            "https://[::]/",
            "https://0xa9fea9fe/",
            "https://2852039166/",
            "nonsense",
        ] {
            let why = check(wrong).expect_err(wrong);
            let allowed = Outbound { link_local: true, ..Outbound::default() };
            let told = why.contains("outbound.link-local");
            let fits = parse(wrong).is_ok_and(|url| allowed.check(&url, Plain::ThisHost).is_ok());
            assert_eq!(told, fits, "{wrong}: {why}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_is_refused_when_it_is_resolved() {
        let resolve = |here: bool, name: &str| {
            Guarded { here, link_local: false, look_up }.resolve(name.parse().unwrap())
        };
        assert!(resolve(true, "localhost").await.is_ok());
        // Numbers are names to a resolver.
        for (here, name) in [(false, "169.254.169.254"), (false, "0.0.0.0"), (true, "10.0.0.7")] {
            let Err(error) = resolve(here, name).await else { panic!("{name}") };
            assert!(error.to_string().contains(REFUSED), "{error}");
        }
    }

    /// Of several addresses, one is enough.
    #[tokio::test]
    async fn nothing_is_sent_to_a_name_that_leads_to_where_clouds_keep_their_secrets() {
        const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        const SECRETS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 0);
        let listener = tokio::net::TcpListener::bind(HERE).await.unwrap();
        let url = format!("http://service.example:{}/", listener.local_addr().unwrap().port());
        let call = async |look_up: LookUp| {
            let guard = Guarded { here: false, link_local: false, look_up };
            let client = bare(false).dns_resolver(Arc::new(guard)).build().unwrap();
            tokio::select! {
                answer = client.get(&url).send() => Err(why(answer.expect_err("no server answers"))),
                called = listener.accept() => Ok(called.is_ok()),
            }
        };
        assert_eq!(call(|_| Box::pin(async { Ok(vec![HERE]) })).await, Ok(true), "the name is called");
        let refused = call(|_| Box::pin(async { Ok(vec![HERE, SECRETS]) })).await.unwrap_err();
        assert!(refused.contains(REFUSED), "{refused}");
    }
}
