//! Candidacies as streams, with the examples as clients: whatever is killed, frozen or cut, never two work at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;
use tenure_torture::judge::WitnessVerdict;
use tenure_torture::proxy::Proxy;
use tenure_torture::witness::Beat;

use crate::kit::{Agent, Process, Store, eventually};
use crate::link::Link;

const ROLE: &str = "[[role]]\nname = \"job\"\nmode = \"campaign\"";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// A client, and the file that it writes when it works.
struct Client {
    name: String,
    process: Process,
    file: PathBuf,
    link: Link,
}

impl Client {
    fn start(dir: &Path, name: &str, agent: &Agent) -> Self {
        let file = dir.join(name);
        let link = Link::new(&dir.join(format!("{name}.sock")), &agent.socket);
        let mut command = Command::new("python3");
        command.arg(example("campaign.py")).arg(link.path()).arg("job").stdin(Stdio::null());
        command.stdout(std::fs::File::create(&file).unwrap()).stderr(Stdio::null());
        Self { name: name.to_owned(), process: Process::spawn(&mut command), file, link }
    }

    /// When it worked, and under which token.
    fn beats(&self) -> Vec<Beat> {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let beat = |line: &str| {
            let (at, token) = line.split_once(' ').unwrap();
            let (seconds, nanos) = at.split_once('.').unwrap();
            let t = seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanos.parse::<u64>().unwrap();
            let (role, node) = ("job".to_owned(), self.name.clone());
            Beat { t, role, node, token: token.parse().unwrap(), pid: self.process.id() }
        };
        whole.lines().map(beat).collect()
    }

    fn last_token(&self) -> u64 {
        self.beats().last().map_or(0, |beat| beat.token)
    }
}

/// Another client than `former` works under a later token.
fn taken_over(clients: &[Client], former: usize) -> usize {
    let token = clients[former].last_token();
    let mut found = former;
    eventually("another client works", || {
        let later = |index: &usize| *index != former && clients[*index].last_token() > token;
        found = (0..clients.len()).find(later).unwrap_or(former);
        found != former
    });
    found
}

fn working(clients: &[Client]) -> usize {
    let mut found = 0;
    eventually("a client works", || {
        let latest = (0..clients.len()).max_by_key(|index| clients[*index].last_token());
        found = latest.unwrap_or(0);
        clients[found].last_token() > 0
    });
    found
}

fn never_two(store: &Store) {
    let dir = tempfile::tempdir().unwrap();
    // Each agent has a wire of its own to the store, where there is a wire.
    let (near, wires): (Vec<Store>, Vec<Proxy>) = [store.link(), store.link()].into_iter().flatten().unzip();
    let at = |index: usize| near.get(index).unwrap_or(store);
    let mut agents = [Agent::hasty(at(0), "a", ROLE), Agent::hasty(at(1), "b", ROLE)];
    // Clients 0 and 2 on the first agent, 1 and 3 on the second.
    let mut clients: Vec<Client> =
        (0..4).map(|index| Client::start(dir.path(), &format!("c{index}"), &agents[index % 2])).collect();

    // A client dies.
    let first = working(&clients);
    clients[first].process.kill();
    let second = taken_over(&clients, first);

    // A client freezes: it is cut off when it does not read, and does nothing when it goes on.
    clients[second].process.signal(Signal::STOP);
    let third = taken_over(&clients, second);
    clients[second].process.signal(Signal::CONT);

    // An operator asks for it: the client says that it is ready, and another gets it.
    let step_down =
        || agents[third % 2].post("/v1/roles/job/step-down", &json!({ "why": "a test" })).status == 200;
    eventually("the leader steps down", step_down);
    let fourth = working(&clients);

    // The link is cut: the agent sees it close, the client sees nothing and works until its deadline.
    clients[fourth].link.cut();
    let next = taken_over(&clients, fourth);
    clients[fourth].link.heal();
    let fourth = next;

    // An agent freezes, and goes on: its clients had to stop.
    agents[fourth % 2].process.signal(Signal::STOP);
    let fifth = taken_over(&clients, fourth);
    agents[fourth % 2].process.signal(Signal::CONT);

    // An agent is cut off from the store, and finds it again.
    let mut latest = fifth;
    if let Some(wire) = wires.get(fifth % 2) {
        wire.black_hole();
        latest = taken_over(&clients, fifth);
        wire.reset();
        wire.heal();
    }

    // The store freezes for longer than a lease; then it is cut off from every node.
    let stand_still = |token: u64, begin: &dyn Fn(), end: &dyn Fn()| {
        begin();
        eventually("no node leads", || agents.iter().all(|agent| !agent.leads("job")));
        end();
        eventually("a client works again", || clients.iter().any(|client| client.last_token() > token));
    };
    if !wires.is_empty() {
        stand_still(clients[latest].last_token(), &|| store.freeze(true), &|| store.freeze(false));
        let token = clients.iter().map(Client::last_token).max().unwrap_or(0);
        let cut = || wires.iter().for_each(Proxy::black_hole);
        stand_still(token, &cut, &|| wires.iter().for_each(|wire| (wire.reset(), wire.heal()).1));
    }

    // An agent dies: its clients hear nothing more, not even that.
    let sixth = working(&clients);
    agents[sixth % 2].process.kill();
    taken_over(&clients, sixth);
    clients.iter().for_each(|client| client.link.heal());

    clients.iter_mut().for_each(|client| client.process.kill());
    let beats: Vec<Beat> = clients.iter().flat_map(Client::beats).collect();
    WitnessVerdict::of_beats(&beats).assert_sound();
}

#[test]
fn never_two_clients_work_on_a_file() {
    never_two(&Store::file());
}

#[test]
fn never_two_clients_work_on_redis() {
    never_two(&Store::redis());
}

#[test]
fn never_two_clients_work_on_postgres() {
    never_two(&Store::postgres());
}

#[test]
fn never_two_clients_work_on_mariadb() {
    never_two(&Store::mysql());
}

#[test]
fn the_shell_example_works_while_it_leads() {
    let store = Store::file();
    let (agent, dir) = (Agent::start(&store, "a", ROLE), tempfile::tempdir().unwrap());
    let file = dir.path().join("out");
    let mut command = Command::new(example("campaign.sh"));
    command.arg(&agent.socket).arg("job").stdout(std::fs::File::create(&file).unwrap()).stdin(Stdio::null());
    let _client = Process::spawn(&mut command);
    let said = |words: &str| std::fs::read_to_string(&file).unwrap().contains(words);
    eventually("it works", || said("working under token 1"));
    let answer = agent.post("/v1/roles/job/step-down", &json!({ "why": "a test" }));
    assert_eq!(answer.status, 200, "{answer:?}");
    eventually("it works again, under the next token", || said("working under token 2"));
}

#[test]
fn the_go_example_works_while_it_leads() {
    let store = Store::file();
    let (agent, dir) = (Agent::start(&store, "a", ROLE), tempfile::tempdir().unwrap());
    let (file, program) = (dir.path().join("out"), dir.path().join("campaign"));
    let go = tenure_torture::servers::program("go", "golang", &["/usr/local/go/bin", "/usr/lib/go/bin"]);
    let built = Command::new(go)
        .args(["build", "-o"])
        .arg(&program)
        .arg(example("campaign.go"))
        // Kept, because Go builds its own library first.
        .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go"))
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "")
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let mut command = Command::new(program);
    command.arg(&agent.socket).arg("job").stdout(std::fs::File::create(&file).unwrap()).stdin(Stdio::null());
    let _client = Process::spawn(&mut command);
    let said = |words: &str| std::fs::read_to_string(&file).unwrap().contains(words);
    eventually("it works", || said("working under token 1"));
    let answer = agent.post("/v1/roles/job/step-down", &json!({ "why": "a test" }));
    assert_eq!(answer.status, 200, "{answer:?}");
    eventually("it works again, under the next token", || said("working under token 2"));
}

#[test]
fn a_client_is_told_what_becomes_of_it() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", ROLE);
    let mut stream = agent.stream("/v1/campaign/job", None);
    assert_eq!(stream.next()["event"], "standing");
    let elected = stream.until("elected");
    let (token, deadline) = (elected["token"].as_u64().unwrap(), elected["deadline"].clone());
    assert!(deadline["remaining_ms"].as_u64().unwrap() <= 4000, "{elected}");
    assert!(deadline["at"].as_str().unwrap().ends_with('Z'), "{elected}");
    let renewed = stream.until("renewed");
    assert!(renewed["deadline"]["uptime"].as_f64() > deadline["uptime"].as_f64(), "{renewed}");
    assert!(agent.leads("job"), "the agent leads for its client");

    // A second client of the same agent waits.
    let mut second = agent.stream("/v1/campaign/job", None);
    assert_eq!(second.next()["event"], "standing");

    let id = &elected["campaign"];
    let wrong = agent.post("/v1/campaign/job/ready", &json!({ "token": token + 7, "campaign": id }));
    assert_eq!((wrong.status, wrong.json()["field"].as_str()), (404, Some("token")), "{wrong:?}");
    assert_eq!(agent.post("/v1/roles/job/pause", &json!({ "why": "x", "wait": "1ms" })).status, 200);
    assert_eq!(stream.until("draining")["reason"], "paused");
    let ready = agent.post("/v1/campaign/job/ready", &json!({ "token": token, "campaign": id }));
    assert_eq!(ready.status, 200, "{ready:?}");
    assert_eq!(stream.until("lost")["token"], token);
    assert_eq!(agent.post("/v1/roles/job/resume", &json!({ "why": "x" })).status, 200);
    drop(stream);
    assert!(second.until("elected")["token"].as_u64().unwrap() > token);
}

#[test]
fn a_role_that_the_agent_holds_is_not_campaigned_for() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", "[[role]]\nname = \"job\"");
    let refused = agent.get("/v1/campaign/job");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("mode = \"campaign\""));
}

/// An agent that stops asks its client first, and gives the role up as soon as that is ready.
#[test]
fn a_client_is_told_to_stop_when_its_agent_stops() {
    let store = Store::file();
    let mut agent = Agent::start(&store, "a", ROLE);
    let mut stream = agent.stream("/v1/campaign/job", None);
    let token = stream.until("elected")["token"].as_u64().unwrap();
    agent.process.signal(Signal::TERM);
    let draining = stream.until("draining");
    assert_eq!(draining["token"], token, "{draining}");
    assert!(draining["deadline"]["remaining_ms"].is_u64(), "{draining}");
    let body = json!({ "token": token, "campaign": draining["campaign"] });
    let ready = agent.post("/v1/campaign/job/ready", &body);
    assert_eq!(ready.status, 200, "{ready:?}");
    let mut ended = None;
    eventually("it ends", || {
        ended = agent.process.ended();
        ended.is_some()
    });
    assert_eq!(ended, Some(0), "{}", agent.log());
    let other = Agent::start(&store, "b", ROLE);
    let next = other.stream("/v1/campaign/job", None).until("elected");
    assert!(next["token"].as_u64().unwrap() > token, "{next}");
}
