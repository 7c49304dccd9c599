use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use sandling_protocol::{Event, FailureKind, Request, Response, WINDOW};

use crate::harness::{Agent, Heard};

fn serve(address: &str, serve: impl FnOnce(TcpStream) + Send + 'static) -> (u16, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, thread::spawn(move || serve(listener.accept().unwrap().0)))
}

fn is_connected(heard: &Heard) -> bool {
    heard.events.iter().any(|event| matches!(event, Event::Connected))
}

#[test]
fn a_request_and_its_end_arrive_and_the_answer_comes_back() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let (port, server) = serve("127.0.0.1:0", |mut connection| {
        let mut request = Vec::new();
        connection.read_to_end(&mut request).unwrap();
        request.reverse();
        connection.write_all(&request).unwrap();
    });
    let stream = host.open(Request::Connect { port });
    host.data(stream, b"abc");
    host.finish(stream);
    let heard = host.end(stream);
    assert_eq!(heard.bytes, b"cba");
    assert!(is_connected(&heard));
    assert!(matches!(heard.response(), Response::Done));
    server.join().unwrap();
}

#[test]
fn large_transfers_go_both_ways_under_credit() {
    let agent = Agent::start();
    let mut host = agent.connect();
    const TOTAL: usize = 3 << 20;
    let (port, server) = serve("[::1]:0", |mut connection| {
        let mut buffer = vec![0; TOTAL];
        connection.read_exact(&mut buffer).unwrap();
        connection.write_all(&buffer).unwrap();
    });
    let stream = host.open(Request::Connect { port });
    let sent: Vec<u8> = (0..TOTAL).map(|i| (i / 7) as u8).collect();
    for (i, block) in sent.chunks(32 * 1024).enumerate() {
        host.until(stream, |heard| ((i + 1) * 32 * 1024) as u64 <= WINDOW as u64 + heard.credit);
        host.data(stream, block);
    }
    assert_eq!(host.end(stream).bytes, sent);
    server.join().unwrap();
}

#[test]
fn a_server_that_does_not_read_blocks_only_its_tunnel() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (port, server) = serve("127.0.0.1:0", move |connection| {
        let _ = stopped.recv();
        drop(connection);
    });
    let stream = host.open(Request::Connect { port });
    host.data(stream, &vec![0; WINDOW]);
    assert_eq!(host.shell("echo quick").out(), "quick\n");
    stop.send(()).unwrap();
    host.end(stream);
    server.join().unwrap();
}

#[test]
fn a_port_without_a_listener_is_refused() {
    let agent = Agent::start();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert_eq!(agent.connect().ask(Request::Connect { port: free }).failure().kind, FailureKind::Refused);
}

#[test]
fn listening_ports_are_listed() {
    let agent = Agent::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let Response::Ports { ports } = agent.connect().ask(Request::ListPorts).response() else { panic!() };
    assert!(ports.contains(&listener.local_addr().unwrap().port()));
}
