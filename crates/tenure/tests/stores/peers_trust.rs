//! Who is let in: a client that knows the secret, or has a certificate of the authority; and no client keeps the others out.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use crate::peers_kit::*;
use tempfile::TempDir;
use tenure::store::{Peers, Retry, Store};

async fn settled_one() -> Town {
    let town = Town::with(1, "&timeout=60s");
    must_write(&*town.client(), put("x", None, 1)).await;
    town
}

#[tokio::test]
async fn strangers_are_refused_and_told_why() {
    let town = settled_one().await;
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    write_secret(&secret, &Peers::new_secret());
    let url = format!("peers://{}?secret-file={}", town.address(0), secret.display());
    let error = version(&Peers::open(&url).unwrap(), "x").await.unwrap_err();
    assert!(error.to_string().contains("the secret is another one there"), "{error}");
    assert_eq!(error.retry(), Retry::Never);
    let url = format!("{}&cluster=other", town.url());
    let error = version(&Peers::open(&url).unwrap(), "x").await.unwrap_err();
    assert!(error.to_string().contains("cluster \"tenure\", not of \"other\""), "{error}");
    // A client that speaks something else is cut off, and the member goes on.
    let mut stream = std::net::TcpStream::connect(town.address(0)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"", "not a word to strangers");
    // An old version is told which ones are understood, and no more.
    for greeting in [b"TENURE-P\0\0", b"TENURE-T\0\0"] {
        let mut stream = std::net::TcpStream::connect(town.address(0)).unwrap();
        stream.write_all(greeting).unwrap();
        let mut told = Vec::new();
        stream.read_to_end(&mut told).unwrap();
        assert_eq!(told, [1, 1, 1], "another version: from 1 to 1");
    }
    must_write(&*town.client(), put("y", None, 1)).await;
    // The same member twice.
    let error = Peers::open(&town.member_url(0)).unwrap_err();
    assert!(error.to_string().contains("member=false"), "{error}");
}

/// A client that connects and says nothing has to make room for those who do.
#[tokio::test]
async fn idle_strangers_keep_no_client_out() {
    let town = settled_one().await;
    let idle: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(town.address(0)).unwrap()).collect();
    for nth in 0..3 {
        must_write(&*town.client(), put(&format!("k{nth}"), None, 1)).await;
    }
    drop(idle);
}

/// An authority, and certificates of it: `member`, which names 127.0.0.1, and `client`, which names no host; and
/// `other`, which names 127.0.0.1 too, of another authority.
fn certificates() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let script = "set -e; cd \"$1\"
        new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        for authority in ca ca2; do
            openssl req -x509 $new -days 2 -keyout $authority.key -out $authority.pem -subj /CN=$authority \\
                -addext basicConstraints=critical,CA:TRUE
        done
        issue() {
            openssl req $new -keyout $1.key -out $1.csr -subj /CN=$1
            printf 'subjectAltName=%s\\n' $3 > ext
            openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2.key -CAcreateserial -days 2 -out $1.pem -extfile ext
        }
        issue member ca IP:127.0.0.1; issue client ca DNS:stranger.test; issue other ca2 IP:127.0.0.1";
    let made = std::process::Command::new("sh").args(["-c", script, "sh"]).arg(dir.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

/// The URL of a group at these addresses, for a client that has that certificate and trusts that authority.
fn url(addresses: &[String], files: &Path, ca: &str, who: &str) -> String {
    let file = |name: String| files.join(name).display().to_string();
    let (ca, cert, key) = (file(format!("{ca}.pem")), file(format!("{who}.pem")), file(format!("{who}.key")));
    format!("peers://{}?timeout=60s&ca={ca}&cert={cert}&key={key}", addresses.join(","))
}

#[tokio::test]
async fn certificates_of_the_authority_are_let_in_and_no_others() {
    let (files, places) = (certificates(), tempfile::tempdir().unwrap());
    let addresses: Vec<String> = (0..3).map(|_| free_address()).collect();
    let open = |nth: usize, who: &str, extra: &str| {
        let place = places.path().join(nth.to_string());
        let url = url(&addresses, files.path(), "ca", who);
        Arc::new(Peers::open(&format!("{url}&me={}&dir={}{extra}", addresses[nth], place.display())).unwrap())
    };
    let members = [open(0, "member", ""), open(1, "member", ""), open(2, "member", "")];
    let client = Peers::open(&url(&addresses, files.path(), "ca", "client")).unwrap();
    must_write(&client, put("x", None, 1)).await;
    for member in &members {
        must_write(&**member, put("x", Some(1), 1)).await;
    }
    // Another authority, whichever side looks; a secret instead; nothing at all.
    for (ca, who) in [("ca", "other"), ("ca2", "other")] {
        let stranger = Peers::open(&url(&addresses, files.path(), ca, who)).unwrap();
        let error = version(&stranger, "x").await.unwrap_err();
        assert_eq!(error.retry(), Retry::Never, "{error}");
        assert!(error.to_string().contains("ca, cert and key"), "{error}");
    }
    write_secret(&files.path().join("secret"), SECRET);
    let secret = files.path().join("secret");
    let url = format!("peers://{}?secret-file={}", addresses.join(","), secret.display());
    let error = version(&Peers::open(&url).unwrap(), "x").await.unwrap_err();
    assert!(error.to_string().contains("one side has a secret"), "{error}");
    // The certificate of a client changes no members, and that of a member does.
    let refused = client.remove(&addresses[1]).await.unwrap_err();
    assert!(refused.to_string().contains("clients do not change the members"), "{refused}");
    let operator = Peers::open(&self::url(&addresses, files.path(), "ca", "member")).unwrap();
    operator.add("127.0.0.1:1").await.unwrap();
    operator.remove("127.0.0.1:1").await.unwrap();
    // The certificate of a client does not make it a member.
    members[2].close().await;
    let impostor = open(2, "client", "&timeout=2s");
    complains(&impostor, "does not name").await;
    impostor.close().await;
    // Certificates that are renewed count from the next connection on: no member was started again.
    let renewed = certificates();
    for name in ["ca.pem", "member.pem", "member.key", "client.pem", "client.key"] {
        std::fs::copy(renewed.path().join(name), files.path().join(name)).unwrap();
    }
    let again = open(2, "member", "");
    must_write(&*again, put("x", Some(1), 2)).await;
    must_write(
        &Peers::open(&self::url(&addresses, files.path(), "ca", "client")).unwrap(),
        put("y", None, 1),
    )
    .await;
}

/// Who knows the secret of clients reads and writes, and that is all.
#[tokio::test]
async fn a_client_neither_changes_the_members_nor_becomes_one() {
    let town = settled_one().await;
    let dir = tempfile::tempdir().unwrap();
    let (group, clients) = (dir.path().join("group"), dir.path().join("clients"));
    write_secret(&group, SECRET);
    write_secret(&clients, &Peers::client_secret(&group).unwrap());
    let url = format!("peers://{}?client-secret-file={}&timeout=60s", town.address(0), clients.display());
    let client = Peers::open(&url).unwrap();
    must_write(&client, put("y", None, 1)).await;
    assert_eq!(client.group().await.unwrap().members.len(), 1);
    for refused in [client.add("127.0.0.1:1").await, client.remove(town.address(0)).await] {
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains("clients do not change the members"), "{refused}");
        assert_eq!(refused.retry(), Retry::Never);
    }
    assert_eq!(client.group().await.unwrap().members.len(), 1);
    let member = Peers::open(&format!("{url}&me={}", free_address())).unwrap_err();
    assert!(member.to_string().contains("secret-file=PATH"), "{member}");
    // What clients know is not the secret of the group.
    let url = format!("peers://{}?secret-file={}&timeout=5s", town.address(0), clients.display());
    let error = version(&Peers::open(&url).unwrap(), "x").await.unwrap_err();
    assert!(error.to_string().contains("the secret is another one there"), "{error}");
    // A client that knows that may do both.
    town.client().add("127.0.0.1:1").await.unwrap();
    town.client().remove("127.0.0.1:1").await.unwrap();
}
