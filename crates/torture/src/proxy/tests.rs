//! Each fault, against a server that says back what it is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough to believe that something does not happen; never the reason why a test passes or fails by chance.
const A_WHILE: Duration = Duration::from_millis(100);

/// Says back what it is told, until it is hung up on. Its threads end with the process.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 1024];
                let mut stream = stream;
                while let Ok(length) = stream.read(&mut buffer) {
                    if length == 0 || stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn connected(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn says(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
}

fn hears(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), text);
}

/// Nothing comes, for a while.
fn hears_nothing(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(A_WHILE)).unwrap();
    let error = stream.read(&mut [0]).expect_err("nothing comes");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn is_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0; 64]).expect_err("the connection is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

fn soon(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < PATIENCE, "it happens in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn bytes_pass_and_are_counted_and_a_goodbye_is_passed_on() {
    let proxy = Proxy::to(echo());
    let mut stream = connected(&proxy);
    says(&mut stream, "hello");
    hears(&mut stream, "hello");
    soon(|| (proxy.passed(Direction::Up), proxy.passed(Direction::Down), proxy.accepted()) == (5, 5, 1));
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server hung up too");
    soon(|| proxy.open() == 0);
}

#[test]
fn held_bytes_are_known_to_wait_and_arrive_when_let_go() {
    for way in BOTH_DIRECTIONS {
        let proxy = Proxy::to(echo());
        let mut stream = connected(&proxy);
        proxy.hold(way);
        says(&mut stream, "late");
        soon(|| proxy.held(way) == 4);
        hears_nothing(&mut stream);
        proxy.pass(way);
        hears(&mut stream, "late");
        soon(|| proxy.held(way) == 0);
    }
}

#[test]
fn what_was_sent_before_the_sender_hung_up_still_arrives_late() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let mut stream = connected(&proxy);
    let (mut there, _) = server.accept().unwrap();
    proxy.hold(Direction::Up);
    says(&mut stream, "last words");
    soon(|| proxy.held(Direction::Up) == 10);
    drop(stream);
    proxy.pass(Direction::Up);
    let mut heard = String::new();
    there.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "last words");
}

#[test]
fn lost_bytes_never_arrive_and_the_connection_is_reset_when_the_link_heals() {
    for way in BOTH_DIRECTIONS {
        let proxy = Proxy::to(echo());
        let mut stream = connected(&proxy);
        proxy.lose(way);
        says(&mut stream, "lost");
        soon(|| proxy.lost(way) == 4);
        hears_nothing(&mut stream);
        proxy.heal();
        is_reset(&mut stream);
        let mut again = connected(&proxy);
        says(&mut again, "found");
        hears(&mut again, "found");
    }
}

#[test]
fn in_a_black_hole_no_side_hears_that_the_other_hung_up() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let stream = connected(&proxy);
    let (mut there, _) = server.accept().unwrap();
    proxy.black_hole();
    drop(stream);
    hears_nothing(&mut there);
    proxy.heal();
    is_reset(&mut there);
}

#[test]
fn connections_are_refused_while_open_ones_go_on() {
    let proxy = Proxy::to(echo());
    let mut stream = connected(&proxy);
    says(&mut stream, "a");
    hears(&mut stream, "a");
    for _ in 0..3 {
        proxy.refuse(true);
        let error = TcpStream::connect(proxy.address()).expect_err("no process listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        says(&mut stream, "b");
        hears(&mut stream, "b");
        proxy.refuse(false);
        let mut another = connected(&proxy);
        says(&mut another, "c");
        hears(&mut another, "c");
    }
}

#[test]
fn a_reset_is_a_reset_for_both_sides() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let mut stream = connected(&proxy);
    let (mut there, _) = server.accept().unwrap();
    says(&mut stream, "x");
    hears(&mut there, "x");
    proxy.reset();
    is_reset(&mut stream);
    is_reset(&mut there);
}

#[test]
fn a_reply_is_cut_in_the_middle_once() {
    let proxy = Proxy::to(echo());
    let mut stream = connected(&proxy);
    proxy.cut_after(Direction::Down, 3);
    says(&mut stream, "hello");
    // The first bytes came, unless the reset overtook them.
    let mut heard = Vec::new();
    let error = stream.read_to_end(&mut heard).expect_err("the connection is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!("hel".as_bytes().starts_with(&heard), "{heard:?}");
    soon(|| proxy.passed(Direction::Down) == 3);
    let mut again = connected(&proxy);
    says(&mut again, "hello");
    hears(&mut again, "hello");
}

#[test]
fn delays_and_narrow_roads_take_at_least_so_long() {
    let proxy = Proxy::to(echo());
    let mut stream = connected(&proxy);
    proxy.delay(Direction::Up, A_WHILE, A_WHILE);
    let began = Instant::now();
    says(&mut stream, "slow");
    hears(&mut stream, "slow");
    assert!(began.elapsed() >= A_WHILE);
    proxy.heal();
    proxy.throttle(Direction::Down, 1000);
    let began = Instant::now();
    says(&mut stream, &"x".repeat(200));
    hears(&mut stream, &"x".repeat(200));
    // The last of its pieces of 50 bytes comes after the pauses behind the others.
    assert!(began.elapsed() >= Duration::from_millis(150));
}

#[test]
fn a_server_that_is_not_there_resets_its_clients() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::to(gone);
    is_reset(&mut connected(&proxy));
}

#[test]
fn the_answer_to_one_question_waits_and_those_before_it_do_not() {
    let proxy = Proxy::to(echo());
    let mut stream = connected(&proxy);
    proxy.hold_answer_to(b"who");
    says(&mut stream, "what");
    hears(&mut stream, "what");
    says(&mut stream, "and who");
    hears_nothing(&mut stream);
    proxy.pass(Direction::Down);
    hears(&mut stream, "and who");
    says(&mut stream, "who again");
    hears(&mut stream, "who again");
}

/// An answer to a client that did not wait for it used to take the cut, and no client ever saw one.
#[test]
fn what_a_server_says_to_a_client_that_has_left_takes_no_cut() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let gone = connected(&proxy);
    let (mut to_gone, _) = server.accept().unwrap();
    proxy.cut_after(Direction::Down, 2);
    gone.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(to_gone.read(&mut [0]).unwrap(), 0, "the proxy knows that the client has left");
    says(&mut to_gone, "late");
    soon(|| proxy.passed(Direction::Down) == 4);
    let mut stream = connected(&proxy);
    let (mut there, _) = server.accept().unwrap();
    says(&mut there, "half");
    is_reset(&mut stream);
}
