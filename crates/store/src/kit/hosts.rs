//! Servers as URLs name them: `SCHEME://LOGIN@HOST:PORT,HOST,[::1]:PORT/PATH?NAME=VALUE`.

/// The parts of such a URL, as they are written.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a URL may hold a password")]
pub struct UrlParts<'a> {
    /// What stands before `://`.
    pub scheme: &'a str,
    /// What stands before the last `@`.
    pub login: Option<&'a str>,
    /// The servers, for [`parse`].
    pub hosts: &'a str,
    /// What stands after the first slash behind the servers.
    pub path: &'a str,
    /// What stands after the question mark, for [`parameters`].
    pub query: &'a str,
}

impl<'a> UrlParts<'a> {
    /// None if there is no `://`.
    #[must_use]
    pub fn of(url: &'a str) -> Option<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, place) = place.split_once("://")?;
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        Some(Self { scheme, login, hosts, path, query })
    }
}

/// The names and values of a query, as they are written.
pub fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Host and port of each server; those without a port have that one. None if one of them cannot be read.
#[must_use]
pub fn parse(text: &str, port: u16) -> Option<Vec<(String, u16)>> {
    text.split(',').map(|host| parse_one(host, port)).collect()
}

/// Host and port of one server.
#[must_use]
pub fn parse_one(text: &str, port: u16) -> Option<(String, u16)> {
    let bare = !text.contains(':') || text.ends_with(']');
    let (host, port) = match text.rsplit_once(':').filter(|_| !bare) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, port),
    };
    let named = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
    named.then(|| (host.to_owned(), port))
}

/// As a URL has them, each with its port.
#[must_use]
pub fn show(hosts: &[(String, u16)]) -> String {
    hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(",")
}

/// Whether all of them are this machine.
#[must_use]
pub fn are_local(hosts: &[(String, u16)]) -> bool {
    hosts.iter().all(|(host, _)| super::plaintext::is_local(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_falls_into_its_parts() {
        let parts = |url| {
            UrlParts::of(url).map(|parts| (parts.scheme, parts.login, parts.hosts, parts.path, parts.query))
        };
        assert_eq!(parts("s://u:p@x@a:1,b/c/d?e=f"), Some(("s", Some("u:p@x"), "a:1,b", "c/d", "e=f")));
        assert_eq!(parts("s://a"), Some(("s", None, "a", "", "")));
        assert_eq!(parts("s:a?x=://"), None);
        assert_eq!(parameters("a=b=c&&d").collect::<Vec<_>>(), [("a", "b=c"), ("d", "")]);
    }

    #[test]
    fn hosts_have_a_port_and_brackets_are_part_of_them() {
        let shown = |text| parse(text, 7).map(|hosts| show(&hosts));
        assert_eq!(shown("a:1,b,[::1]:3,[::1]").as_deref(), Some("a:1,b:7,[::1]:3,[::1]:7"));
        for text in ["", "a,,b", ":1", "a:x", "a:70000", "u@a", "a b"] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
