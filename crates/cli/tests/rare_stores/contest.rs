//! Old programs and `tenure run --guard` contest one duty, while copies are replaced one by one, and back, with kills among them.
//!
//! The work of each copy locks one file, and never waits for it. Work that finds the file locked writes OVERLAP: two are at work.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tenure_torture::servers::etcd::Etcd;
use tenure_torture::servers::kubernetes::{ADMIN, Kubernetes};

/// The work of a copy: it lasts until the process is killed.
const WORK: &str = "exec 9>>\"$1\"; flock -n 9 || echo \"OVERLAP $3\" >>\"$2\"; echo \"began $3\" >>\"$2\"; exec sleep 100000";

/// How long one renewal of the lock counts, but for `etcdctl elect`, which cannot be told.
const TTL: Duration = Duration::from_secs(6);
const ETCDCTL_TTL: Duration = Duration::from_secs(60);

/// What a busy machine may take for what takes no time.
const SLACK: Duration = Duration::from_secs(60);

/// The system whose lock is contested.
trait Elsewhere {
    /// The guard lock.
    fn guard(&self) -> String;
    /// Starts a program of old.
    fn start(&self, contest: &Contest, name: &str) -> Replica;
    /// How long a killed program of old keeps its lock.
    fn ttl(&self) -> Duration;
}

struct Contest {
    dir: TempDir,
}

/// One contender.
struct Replica {
    name: String,
    elector: Child,
    /// The work, if it is not the elector's to start and end.
    work: Option<Work>,
    ttl: Duration,
}

type Work = Arc<Mutex<OwnWork>>;

#[derive(Default)]
struct OwnWork {
    child: Option<Child>,
    over: bool,
}

impl Contest {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// The work of a copy of that name.
    fn work(&self, name: &str) -> Vec<String> {
        let file = |name: &str| self.file(name).display().to_string();
        ["sh", "-c", WORK, "sh", &file("witness"), &file("log"), name].map(str::to_owned).to_vec()
    }

    /// A copy of ours.
    fn run(&self, name: &str, guard: &str) -> Replica {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(["--store", &format!("sqlite:{}", self.file("t.db").display())]);
        command.args(["run", "--role", "job", "--node", name, "--guard", guard, "--"]).args(self.work(name));
        Replica { name: name.to_owned(), elector: self.spawn(&mut command, name), work: None, ttl: TTL }
    }

    fn spawn(&self, command: &mut Command, name: &str) -> Child {
        let told = fs::OpenOptions::new().create(true).append(true).open(self.file(&format!("{name}.err")));
        command.stdin(Stdio::null()).stderr(told.unwrap());
        command.spawn().expect("it starts")
    }

    /// Waits until one of these copies has begun to work that had not `before` of them, and gives its place in the list.
    fn leader(&self, copies: &[Replica], before: usize, bound: Duration) -> usize {
        let began = Instant::now();
        loop {
            let log = self.log();
            assert!(!log.contains("OVERLAP"), "two at work:\n{log}");
            let begun: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("began ")).collect();
            let last = begun.last().filter(|_| begun.len() > before);
            if let Some(nth) = last.and_then(|last| copies.iter().position(|copy| copy.name == **last)) {
                println!("{} leads after {:?}", copies[nth].name, began.elapsed());
                return nth;
            }
            assert!(
                began.elapsed() < bound,
                "no copy leads within {bound:?}: {log}{}",
                self.complaints(copies)
            );
            sleep(Duration::from_millis(20));
        }
    }

    fn begun(&self) -> usize {
        self.log().lines().filter(|line| line.starts_with("began ")).count()
    }

    fn complaints(&self, copies: &[Replica]) -> String {
        let told = |copy: &Replica| {
            let text = fs::read_to_string(self.file(&format!("{}.err", copy.name))).unwrap_or_default();
            format!("\n--- {}\n{text}", copy.name)
        };
        copies.iter().map(told).collect()
    }

    /// Three old copies become three of ours, and these three old ones again; every second one that is replaced is killed. The leader
    /// is replaced if it is one of those to be replaced, and a copy that waits otherwise. After each replacement the leader is started
    /// anew, so that another copy has to lead.
    fn play(elsewhere: &impl Elsewhere) {
        let contest = Self { dir: TempDir::new().unwrap() };
        let guard = elsewhere.guard();
        let start = |name: &str| match name.starts_with("new") {
            true => contest.run(name, &guard),
            false => elsewhere.start(&contest, name),
        };
        let mut copies: Vec<Replica> = (1..=3).map(|nth| start(&format!("old-{nth}"))).collect();
        let mut leader = contest.leader(&copies, 0, elsewhere.ttl() + SLACK);
        for step in 0..6 {
            let (ours, killed) = (step < 3, step % 2 == 1);
            let name = format!("{}-{}", if ours { "new" } else { "again" }, step % 3 + 1);
            let wanted = if ours { "old" } else { "new" };
            let leads = copies[leader].name.starts_with(wanted);
            let gone = if leads { leader } else { position(&copies, wanted) };
            let (gone, before) = (copies.remove(gone), contest.begun());
            let keeps = if killed { gone.ttl } else { Duration::ZERO };
            println!(
                "{} of {} is {}",
                gone.name,
                copies.len() + 1,
                if killed { "killed" } else { "stopped" }
            );
            gone.end(killed);
            copies.push(start(&name));
            leader = match leads {
                true => contest.leader(&copies, before, keeps + TTL + SLACK),
                false => contest.leader(&copies, before - 1, SLACK),
            };
            let (former, before) = (copies.remove(leader), contest.begun());
            let name = former.name.clone();
            println!("{name} is started anew");
            former.end(false);
            copies.push(start(&name));
            // A killed copy may stand in line until its lock runs out.
            leader = contest.leader(&copies, before, elsewhere.ttl() + TTL + SLACK);
        }
        copies.into_iter().for_each(|copy| copy.end(false));
        assert!(!contest.log().contains("OVERLAP"), "two at work:\n{}", contest.log());
    }
}

fn position(copies: &[Replica], wanted: &str) -> usize {
    copies.iter().position(|copy| copy.name.starts_with(wanted)).expect("one is left to be replaced")
}

impl Replica {
    /// Ends it, work first as a program does that is asked to; or kills it.
    fn end(mut self, killed: bool) {
        let signal = |child: &Child, signal| {
            let _ = kill_process(Pid::from_child(child), signal);
        };
        if killed {
            signal(&self.elector, Signal::KILL);
        }
        if let Some(work) = &self.work {
            let mut work = work.lock().unwrap();
            work.over = true;
            if let Some(mut child) = work.child.take() {
                signal(&child, Signal::KILL);
                child.wait().unwrap();
            }
        }
        signal(&self.elector, Signal::TERM);
        self.elector.wait().unwrap();
    }
}

/// Copies that a failed test leaves.
impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.elector.kill();
        let _ = self.elector.wait();
        if let Some(mut child) = self.work.take().and_then(|work| work.lock().ok()?.child.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `etcdctl elect`, on a cluster of three.
struct EtcdctlElect(Etcd);

impl Elsewhere for EtcdctlElect {
    fn guard(&self) -> String {
        format!("etcd://{}/jobs?ttl={}s", self.0.hosts(), TTL.as_secs())
    }

    fn start(&self, contest: &Contest, name: &str) -> Replica {
        let mut command = self.0.etcdctl(&self.0.hosts());
        command.args(["elect", "jobs", name]).stdout(Stdio::piped());
        let mut elector = contest.spawn(&mut command, name);
        let told = BufReader::new(elector.stdout.take().unwrap());
        let (work, words) = (Work::default(), contest.work(name));
        let ours = work.clone();
        // It prints its key when it is elected.
        spawn(move || {
            let elected =
                told.lines().next().is_some_and(|line| line.is_ok_and(|line| line.starts_with("jobs/")));
            let mut work = ours.lock().unwrap();
            if elected && !work.over {
                work.child = Some(Command::new(&words[0]).args(&words[1..]).spawn().unwrap());
            }
        });
        Replica { name: name.to_owned(), elector, work: Some(work), ttl: ETCDCTL_TTL }
    }

    fn ttl(&self) -> Duration {
        ETCDCTL_TTL
    }
}

#[test]
fn etcdctl_elect_and_nodes_with_its_key_as_guard_lock_never_work_at_once() {
    Contest::play(&EtcdctlElect(Etcd::start(3, &[])));
}

/// A program of client-go.
struct ClientGo(Kubernetes);

impl Elsewhere for ClientGo {
    fn guard(&self) -> String {
        let kubeconfig = self.0.kubeconfig(ADMIN, true);
        format!("kubernetes:team/jobs?ttl={}s&kubeconfig={}", TTL.as_secs(), kubeconfig.display())
    }

    fn start(&self, contest: &Contest, name: &str) -> Replica {
        let elector = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/lease-elector");
        assert!(
            PathBuf::from(elector).exists(),
            "there is no {elector}: run ./setup --stores, which builds it"
        );
        let mut command = Command::new(elector);
        command.arg("--kubeconfig").arg(self.0.kubeconfig(ADMIN, true));
        command.args(["--namespace", "team", "--lease", "jobs", "--name", name]);
        command.args(["--ttl", &format!("{}s", TTL.as_secs())]);
        command.arg("--witness").arg(contest.file("witness")).arg("--log").arg(contest.file("log"));
        let elector = contest.spawn(&mut command, name);
        Replica { name: name.to_owned(), elector, work: None, ttl: TTL }
    }

    fn ttl(&self) -> Duration {
        TTL
    }
}

#[test]
fn client_go_and_nodes_with_its_lease_as_guard_lock_never_work_at_once() {
    let server = Kubernetes::start(1);
    server.make_namespace("team");
    Contest::play(&ClientGo(server));
}
