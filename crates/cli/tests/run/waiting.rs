//! A store that is not up yet is waited for; one that refuses us ends the run at once.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use tenure_torture::servers::mysql::Mysql;
use tenure_torture::servers::postgres::Postgres;
use tenure_torture::servers::{free_port, redis, scratch};

use crate::fleet::{Process, TestDir, wait_until};

/// `tenure run` whose command says who leads and stays; its log goes to `NODE.log`.
fn waiter(dir: &TestDir, node: &str, args: &[&str]) -> Process {
    let mut command = dir.run(node, args);
    command.args(["--", "sh", "-c", "echo $TENURE_NODE >> led; exec sleep 1000"]).current_dir(dir.path());
    let log = std::fs::File::create(dir.file(&format!("{node}.log"))).unwrap();
    Process::spawn(command.stderr(log).stdout(Stdio::null()))
}

/// The store of `place` is down: it is waited for, and the log says for what. Then `start` brings it up.
fn waits_until<T>(dir: &TestDir, named: &str, start: impl FnOnce() -> T) {
    let mut waiting = waiter(dir, "a", &["--ttl", "2s"]);
    let log = dir.wait_for("a.log", "waiting for the store");
    assert!(log.contains(named), "{log}");
    assert!(waiting.is_running(), "{log}");
    let _server = start();
    dir.wait_for("led", "a");
    assert!(waiting.is_running());
}

#[test]
fn a_redis_that_comes_up_later_is_waited_for() {
    let port = free_port();
    let dir = TestDir::on(format!("redis://127.0.0.1:{port}/0"));
    waits_until(&dir, &format!("127.0.0.1:{port}"), || redis::start_in(scratch(), port, redis::DURABLE));
}

/// Also if no operator ever runs `tenure check` or `tenure doctor`.
#[test]
fn a_node_that_sends_its_password_in_clear_says_so_when_it_starts() {
    for (scheme, told) in [("redis", true), ("rediss", false)] {
        let dir = TestDir::on(format!("{scheme}://:hunter2@db.invalid"));
        let _waiting = waiter(&dir, "a", &[]);
        let log = dir.wait_for("a.log", "waiting for the store");
        assert_eq!(log.contains("not encrypted"), told, "{log}");
        assert!(!log.contains("hunter2"), "{log}");
    }
}

#[test]
fn a_postgres_that_comes_up_later_is_waited_for() {
    let mut server = Postgres::start(&[]);
    let data = server.crash();
    let dir = TestDir::on(server.admin_url());
    waits_until(&dir, &format!("127.0.0.1:{}", server.port()), || {
        server.launch(data);
    });
}

#[test]
fn a_mariadb_that_comes_up_later_is_waited_for() {
    let mut server = Mysql::start(&[]);
    let data = server.crash();
    let dir = TestDir::on(server.admin_url());
    waits_until(&dir, &format!("127.0.0.1:{}", server.port()), || {
        server.launch(data);
    });
}

#[test]
fn a_node_that_waits_for_a_store_ends_when_told_to_or_when_its_time_is_up() {
    let port = free_port();
    let dir = TestDir::on(format!("redis://127.0.0.1:{port}/0"));
    let mut waiting = waiter(&dir, "a", &[]);
    dir.wait_for("a.log", "waiting for the store");
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.wait().code(), Some(128 + 15));
    for (args, code) in [(["--store-timeout", "300ms"], 122), (["--wait", "300ms"], 120)] {
        let mut limited = waiter(&dir, "b", &args);
        assert_eq!(limited.wait().code(), Some(code), "{args:?}");
        let log = std::fs::read_to_string(dir.file("b.log")).unwrap();
        // The second, if the time was up before the first attempt had failed.
        let reasons = ["cannot be reached", "has not answered yet"];
        let last = log.lines().last().unwrap();
        assert!(reasons.iter().any(|reason| last.contains(reason)), "{args:?}: {log}");
    }
}

/// A node does not wait for a store that says no: trying again would not help.
#[test]
fn wrong_passwords_and_refused_rights_are_errors_at_once() {
    let locked = redis::start(&["--requirepass", "correct"]);
    let open = redis::durable();
    redis::command(
        open.address(),
        &["ACL", "SETUSER", "poor", "on", ">secret", "~*", "+ping", "+hello", "+info"],
    );
    let (postgres, mysql) = (Postgres::start(&[]), Mysql::start(&[]));
    let nobody = postgres.admin_url().replace("postgres@", "nobody@");
    let poor = mysql.url("app").replace(tenure_torture::servers::mysql::DATABASE, "mysql");
    for url in [
        format!("redis://:wrong@127.0.0.1:{}/0", locked.port()),
        format!("redis://127.0.0.1:{}/0", locked.port()),
        format!("redis://poor:secret@127.0.0.1:{}/0", open.port()),
        nobody,
        mysql.url("app").replace(tenure_torture::servers::mysql::PASSWORD, "wrong"),
        poor,
    ] {
        let dir = TestDir::on(url.clone());
        let mut refused = waiter(&dir, "a", &[]);
        let log = || std::fs::read_to_string(dir.file("a.log")).unwrap();
        assert_eq!(refused.wait().code(), Some(122), "{url}: {}", log());
        assert!(!log().contains("waiting for the store"), "{url}: {}", log());
    }
}

/// Three members of a group of peers, none of which was ever started before.
struct Group {
    dir: TempDir,
    addresses: Vec<String>,
}

impl Group {
    fn new() -> Self {
        let dir = scratch();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, tenure::store::Peers::new_secret()).unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let addresses = (0..3).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        Self { dir, addresses }
    }

    fn url(&self, nth: usize) -> String {
        let (dir, me) = (self.dir.path().display(), &self.addresses[nth]);
        format!("peers://{}?secret-file={dir}/secret&me={me}&dir={dir}/{nth}", self.addresses.join(","))
    }

    /// `tenure run`, or an agent, as that member.
    fn member(&self, nth: usize, agent: bool) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        let (url, node) = (self.url(nth), format!("n{nth}"));
        command.env_remove("TENURE_STORE").args(["--store", &url]).current_dir(self.dir.path());
        if agent {
            let socket = self.dir.path().join(format!("{nth}.sock"));
            command.args(["agent", "--node", &node, "--role", "job", "--set", "timing.ttl=2s", "--socket"]);
            command.arg(socket);
        } else {
            command.args(["run", "--role", "job", "--node", &node, "--ttl", "2s"]);
            command.args(["--", "sh", "-c", "echo $TENURE_NODE >> led; exec sleep 1000"]);
        }
        let log = std::fs::File::create(self.dir.path().join(format!("{nth}.log"))).unwrap();
        Process::spawn(command.stderr(log).stdout(Stdio::null()))
    }

    fn log(&self, nth: usize) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{nth}.log"))).unwrap_or_default()
    }

    fn is_led(&self) -> bool {
        std::fs::read_to_string(self.dir.path().join("led")).is_ok_and(|led| led.contains('n'))
            || (0..3).any(|nth| self.log(nth).contains("elected"))
    }

    /// Starts the members in that order, each so long after the one before, and waits for a leader.
    fn elects(&self, order: [usize; 3], pauses: [u64; 2], agents: bool) {
        let mut members = vec![(order[0], self.member(order[0], agents))];
        for (nth, pause) in order[1..].iter().zip(pauses) {
            let due = Instant::now() + Duration::from_millis(pause);
            wait_until("the time to start the next", || (Instant::now() >= due).then_some(()));
            members.push((*nth, self.member(*nth, agents)));
        }
        wait_until("a leader", || {
            for (nth, member) in &mut members {
                assert!(member.is_running(), "member {nth} of {order:?} {pauses:?}: {}", self.log(*nth));
            }
            self.is_led().then_some(())
        });
    }
}

/// As the documentation says to start a group: each member by itself, in any order, at any time.
#[test]
fn members_of_a_group_wait_for_each_other_in_whatever_order_they_start() {
    let orders = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [2, 0, 1]];
    let pauses = [[0, 0], [3000, 0], [0, 3000], [1500, 1500], [700, 2300]];
    std::thread::scope(|scope| {
        for (round, (order, pauses)) in
            orders.iter().zip(pauses).chain(orders.iter().rev().zip(pauses)).enumerate()
        {
            scope.spawn(move || Group::new().elects(*order, pauses, round >= 5));
        }
    });
}

/// It says for whom it waits, and listens meanwhile: that is how the others find it.
#[test]
fn a_member_says_for_whom_it_waits() {
    let group = Group::new();
    let mut first = group.member(0, false);
    wait_until("it to say for whom it waits", || {
        assert!(first.is_running(), "{}", group.log(0));
        let log = group.log(0);
        let named = group.addresses[1..].iter().all(|address| log.contains(address.as_str()));
        (log.contains("waiting for the store") && named).then_some(())
    });
    assert!(std::net::TcpStream::connect(&group.addresses[0]).is_ok());
}
