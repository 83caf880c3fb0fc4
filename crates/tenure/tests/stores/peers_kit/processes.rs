//! Members as processes of their own: copies of the program that starts them, which can be killed and cut off.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tenure::Node;
use tenure::store::{Peers, Store};
use tenure_torture::judge::{NoteWriter, StallMeter};
use tenure_torture::workload;

use super::links::Links;
use super::{SECRET, eventually, free_address, write_secret};

/// What tells a copy of this very program that it is to be a member, and how.
const PART: &str = "TENURE_TEST_MEMBER";

/// The role that the nodes of members stand for.
pub const ROLE: &str = "r";

/// How to be a member.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    url: String,
    routes: Vec<(String, String)>,
    node: Option<Standing>,
}

/// A node in the process of a member, which stands for the [role](ROLE) and notes what it does.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Standing {
    name: String,
    notes: PathBuf,
    ttl: Duration,
    /// Which life of this node it is.
    life: u32,
}

/// What the copies do: nothing, unless they are told to be a member. They stop their node, close the member and end when the other end of their
/// input is closed, also because the process that holds it is dead.
pub fn be_a_member() {
    let Ok(part) = std::env::var(PART) else { return };
    let part: Part = serde_json::from_str(&part).unwrap();
    let member = Arc::new(eventually(|| Peers::open(&part.url).ok()));
    part.routes.iter().for_each(|(address, through)| member.route(address, through));
    println!("started");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let standing = Arc::new(OnceLock::new());
    if let Some(part) = part.node {
        runtime.spawn(stand(member.clone(), part, standing.clone()));
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    runtime.block_on(async {
        if let Some(node) = standing.get() {
            node.stop().await;
        }
        member.close().await;
    });
    std::process::exit(0);
}

async fn stand(member: Arc<Peers>, standing: Standing, started: Arc<OnceLock<Node>>) {
    let pen = NoteWriter::in_dir(&standing.notes, &standing.name, standing.life).unwrap();
    let _meter = StallMeter::start(&pen, None);
    let store = workload::recorded(member, &pen, None);
    let node = loop {
        let builder = Node::builder_with_store(store.clone()).name(&standing.name).ttl(standing.ttl);
        match workload::start(builder.drain(Duration::from_secs(1)), &pen).await {
            Ok(node) => break node,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let _ = started.set(node.clone());
    let clock = Arc::new(tenure_torture::clock::right());
    workload::campaign(node, ROLE.to_owned(), pen, workload::no_fence(), clock, false).await.unwrap();
}

/// A group whose members are processes.
pub struct Processes {
    pub dir: TempDir,
    pub addresses: Vec<String>,
    pub children: Vec<Option<Child>>,
    links: Option<Links>,
    ttl: Option<Duration>,
    /// How many members were ever started.
    lives: u32,
}

impl Processes {
    /// So many members, which have yet to be started.
    pub fn of(count: usize) -> Self {
        let dir = TempDir::new().unwrap();
        write_secret(&dir.path().join("secret"), SECRET);
        std::fs::create_dir(dir.path().join("notes")).unwrap();
        let addresses = (0..count).map(|_| free_address()).collect();
        let children = (0..count).map(|_| None).collect();
        Self { dir, addresses, children, links: None, ttl: None, lives: 0 }
    }

    /// So many members, with a proxy on each way between two of them.
    pub fn linked(count: usize) -> Self {
        let mut group = Self::of(count);
        group.links = Some(Links::between(&group.addresses));
        group
    }

    /// Lets each of them be a node too, which stands for the [role](ROLE).
    pub fn standing(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    pub fn links(&self) -> &Links {
        self.links.as_ref().expect("the group is linked")
    }

    pub fn notes(&self) -> PathBuf {
        self.dir.path().join("notes")
    }

    pub fn place(&self, nth: usize) -> PathBuf {
        self.dir.path().join(format!("member-{nth}"))
    }

    pub fn url(&self, list: &str) -> String {
        format!("peers://{list}?secret-file={}", self.dir.path().join("secret").display())
    }

    pub fn client(&self) -> Peers {
        Peers::open(&self.url(&self.addresses.join(","))).unwrap()
    }

    pub fn client_of(&self, nth: usize) -> Peers {
        Peers::open(&self.url(&self.addresses[nth])).unwrap()
    }

    fn part(&self, nth: usize) -> Part {
        let (list, me, dir) = (self.addresses.join(","), &self.addresses[nth], self.place(nth));
        let url = format!("{}&me={me}&dir={}", self.url(&list), dir.display());
        let routes = self.links.as_ref().map(|links| links.routes(nth)).unwrap_or_default();
        let (notes, life) = (self.notes(), self.lives);
        let node = self.ttl.map(|ttl| Standing { name: format!("n{nth}"), notes, ttl, life });
        Part { url, routes, node }
    }

    /// Starts a member. The program must call [`be_a_member`] when it is started with these arguments.
    pub fn start(&mut self, nth: usize, arguments: &[&str]) {
        self.start_after(nth, "", arguments);
    }

    /// Starts a member; `before` is what a shell does first.
    pub fn start_after(&mut self, nth: usize, before: &str, arguments: &[&str]) {
        self.lives += 1;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before} exec \"$@\""), "sh"]);
        command.arg(std::env::current_exe().unwrap()).args(arguments);
        command.env(PART, serde_json::to_string(&self.part(nth)).unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("started"))), "a member starts");
        self.children[nth] = Some(child);
    }

    /// Starts every member.
    pub fn start_all(&mut self, arguments: &[&str]) {
        (0..self.addresses.len()).for_each(|nth| self.start(nth, arguments));
    }

    /// Kills a member.
    pub fn kill(&mut self, nth: usize) {
        if let Some(mut child) = self.children[nth].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Lets a member end cleanly.
    pub fn stop(&mut self, nth: usize) {
        if let Some(mut child) = self.children[nth].take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }

    /// Kills every member at once.
    pub fn power_loss(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
        }
        self.children.iter_mut().filter_map(Option::take).for_each(|mut child| drop(child.wait()));
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.power_loss();
    }
}

/// How large a file is.
pub fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}
