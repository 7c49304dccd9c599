//! Terminals over WebSocket: one with an id outlives its socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::server::{PATIENCE, Server};

/// A client's end of a WebSocket, with messages as they are on the wire.
struct Socket {
    stream: TcpStream,
    unread: Vec<u8>,
    shown: String,
}

impl Socket {
    fn open(server: &Server, query: &str) -> Self {
        let token = std::fs::read_to_string(server.home.path().join("token")).unwrap();
        let mut stream = TcpStream::connect(server.address().strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "GET /v1/sandboxes/{}/exec/pty?{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            server.sandbox(),
            token.trim()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut socket = Self { stream, unread: Vec::new(), shown: String::new() };
        let end = loop {
            if let Some(end) = socket.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            socket.receive();
        };
        let head: Vec<u8> = socket.unread.drain(..end).collect();
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        socket
    }

    fn receive(&mut self) {
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "the socket was closed; the terminal showed {:?}", self.shown);
        self.unread.extend_from_slice(&buffer[..read]);
    }

    /// A binary message. A mask of zeros leaves the bytes as they are.
    fn type_keys(&mut self, keys: &str) {
        let length = u8::try_from(keys.len()).ok().filter(|length| *length < 126).unwrap();
        let head = [0x82, 0x80 | length, 0, 0, 0, 0];
        self.stream.write_all(&[&head, keys.as_bytes()].concat()).unwrap();
    }

    /// The next message from the server, whose messages have no mask.
    fn message(&mut self) -> Vec<u8> {
        loop {
            let length = match *self.unread {
                [_, length @ ..126, ..] => Some((2, usize::from(length))),
                [_, 126, high, low, ..] => Some((4, usize::from(u16::from_be_bytes([high, low])))),
                _ => None,
            };
            match length {
                Some((start, length)) if self.unread.len() >= start + length => {
                    return self.unread.drain(..start + length).skip(start).collect();
                }
                _ => self.receive(),
            }
        }
    }

    /// Waits until a message shows `what`, and discards the output up to there.
    #[track_caller]
    fn wait_for(&mut self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.shown.contains(what) {
            assert!(Instant::now() < deadline, "{what:?} was not shown, but {:?}", self.shown);
            let message = self.message();
            self.shown.push_str(&String::from_utf8_lossy(&message));
        }
        let end = self.shown.find(what).unwrap() + what.len();
        self.shown.drain(..end);
    }
}

#[test]
fn a_terminal_with_an_id_continues_on_another_socket() {
    let server = Server::shared();
    let mut socket = Socket::open(&server, "id=kept-terminal&rows=20&cols=70");
    socket.type_keys("KEPT=$((40 + 2)); stty size; echo on''e\r");
    socket.wait_for("20 70");
    socket.wait_for("one");
    drop(socket);
    let mut socket = Socket::open(&server, "id=kept-terminal");
    socket.wait_for("20 70");
    socket.wait_for("one");
    socket.type_keys("echo kept-$KEPT\r");
    socket.wait_for("kept-42");
    socket.type_keys("exit 7\r");
    socket.wait_for(r#"{"exit":7}"#);
}

#[test]
fn a_terminal_without_an_id_ends_with_its_socket() {
    let server = Server::shared();
    // More than one, because a shell may miss a signal that comes just before it waits for a key.
    for _ in 0..10 {
        let mut socket = Socket::open(&server, "");
        socket.type_keys("echo $$ >> /tmp/terminal-shells; echo rea''dy\r");
        socket.wait_for("ready");
    }
    let wait =
        "alive() { for shell in $(cat /tmp/terminal-shells); do kill -0 $shell 2>/dev/null && return; done; return 1; }
        for i in $(seq 600); do alive || exit 0; sleep 0.1; done
        exit 1";
    server.ok(&["exec", server.sandbox(), "sh", "-c", wait]);
}
