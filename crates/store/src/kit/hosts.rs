//! Servers as URLs name them: `HOST:PORT,HOST,[::1]:PORT`.

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
    fn hosts_have_a_port_and_brackets_are_part_of_them() {
        let shown = |text| parse(text, 7).map(|hosts| show(&hosts));
        assert_eq!(shown("a:1,b,[::1]:3,[::1]").as_deref(), Some("a:1,b:7,[::1]:3,[::1]:7"));
        for text in ["", "a,,b", ":1", "a:x", "a:70000", "u@a", "a b"] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
