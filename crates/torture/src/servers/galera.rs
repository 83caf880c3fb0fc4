//! Members of a MariaDB Galera cluster, private to a test.

use rustix::process::getuid;

use super::free_port;
use super::mysql::Mysql;

/// As Debian installs it, with the server.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// The first member of all makes the cluster; whenever it is started again it joins, as the others do.
const NEW: &str = "--wsrep-new-cluster";

/// A member that says nothing for so long is left behind by the others; by default that takes five seconds.
const GROUP: &str = "evs.keepalive_period=PT0.3S;evs.inactive_check_period=PT0.3S;evs.suspect_timeout=PT2S;\
     evs.inactive_timeout=PT4S;gcache.size=32M";

/// Starts two members.
///
/// # Panics
/// If they do not come up.
#[must_use]
pub fn pair() -> [Mysql; 2] {
    let members: Vec<Mysql> = cluster(2, &[]);
    members.try_into().expect("there are two")
}

/// Starts so many members. Each copies the data of another before it answers.
///
/// # Panics
/// If they do not come up.
#[must_use]
pub fn cluster(members: usize, settings: &[&str]) -> Vec<Mysql> {
    let ports: Vec<u16> = (0..members).map(|_| free_port()).collect();
    let mut members: Vec<Mysql> = (0..members).map(|nth| member(&ports, nth, settings)).collect();
    members[0].drop_setting(NEW);
    members
}

fn member(ports: &[u16], nth: usize, others: &[&str]) -> Mysql {
    let (port, copy, changes) = (ports[nth], free_port(), free_port());
    let group: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut settings = vec![
        "--wsrep-on=ON".to_owned(),
        format!("--wsrep-provider={PROVIDER}"),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};ist.recv_addr=127.0.0.1:{changes};{GROUP}"
        ),
        format!("--wsrep-node-address=127.0.0.1:{port}"),
        format!("--wsrep-cluster-address=gcomm://{}", group.join(",")),
        format!("--wsrep-sst-receive-address=127.0.0.1:{copy}"),
        "--wsrep-sst-method=rsync".to_owned(),
        "--binlog-format=ROW".to_owned(),
        "--innodb-autoinc-lock-mode=2".to_owned(),
    ];
    settings.extend((nth == 0).then(|| NEW.to_owned()));
    // A copy that root receives is written by `nobody`, who may not.
    settings.extend(getuid().is_root().then(|| "--user=mysql".to_owned()));
    settings.extend(others.iter().map(|setting| (*setting).to_owned()));
    Mysql::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}
