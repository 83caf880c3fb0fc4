//! Two members of a MariaDB Galera cluster, private to a test.

use rustix::process::getuid;

use super::free_port;
use super::mysql::Mysql;

/// As Debian installs it, with the server.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// Starts two members. The second copies the data of the first before it answers.
///
/// # Panics
/// If they do not come up.
#[must_use]
pub fn pair() -> [Mysql; 2] {
    let first = free_port();
    [member(first, None), member(free_port(), Some(first))]
}

fn member(port: u16, joins: Option<u16>) -> Mysql {
    let (copy, changes) = (free_port(), free_port());
    let mut settings = vec![
        "--wsrep-on=ON".to_owned(),
        format!("--wsrep-provider={PROVIDER}"),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};ist.recv_addr=127.0.0.1:{changes}"
        ),
        format!("--wsrep-node-address=127.0.0.1:{port}"),
        format!("--wsrep-sst-receive-address=127.0.0.1:{copy}"),
        "--wsrep-sst-method=rsync".to_owned(),
        "--binlog-format=ROW".to_owned(),
        "--innodb-autoinc-lock-mode=2".to_owned(),
    ];
    match joins {
        Some(other) => settings.push(format!("--wsrep-cluster-address=gcomm://127.0.0.1:{other}")),
        None => {
            settings.extend(["--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster"].map(String::from))
        }
    }
    // A copy that root receives is written by `nobody`, who may not.
    if getuid().is_root() {
        settings.push("--user=mysql".to_owned());
    }
    Mysql::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}
