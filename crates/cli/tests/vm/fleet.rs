//! Two servers as a fleet: either one answers for the sandboxes of both.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::SANDLING;
use crate::etcd_server::EtcdServer;
use crate::harness::templates;

const TOKEN: &str = "the-same-on-all-nodes";
const PATIENCE: Duration = Duration::from_secs(120);

struct Node {
    home: TempDir,
    name: &'static str,
    /// Where other nodes connect.
    address: String,
    /// Where clients connect.
    api: String,
    child: Option<Child>,
}

struct Answer {
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}\n{}", self.head, self.body))
    }
}

impl Node {
    fn new(name: &'static str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        Self { home: TempDir::new().unwrap(), name, address, api: String::new(), child: None }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SANDLING);
        command.args(arguments).env("SANDLING_HOME", self.home.path()).env("SANDLING_TEMPLATES", templates());
        command.env("SANDLING_API", format!("http://{}", self.api)).env("SANDLING_TOKEN", TOKEN);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.output(arguments);
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    fn serve(&mut self) {
        let mut child = self.command(&["serve", "--listen", "127.0.0.1:0", "--standbys", "0"]).spawn().unwrap();
        let first = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        self.api = first.strip_prefix("sandling listens on http://").unwrap().to_owned();
        self.child = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.api).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\n{headers}");
        let rest = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        write!(stream, "{head}{rest}").unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let headers = format!("connection: close\r\n{headers}");
        let mut text = String::new();
        self.send(method, path, &headers, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer { head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn states(&self) -> Vec<(String, bool)> {
        let nodes: Vec<Value> = serde_json::from_str(&self.ok(&["fleet", "status", "--json"])).unwrap();
        nodes.iter().map(|node| (node["name"].as_str().unwrap().to_owned(), node["draining"] == true)).collect()
    }

    fn create(&self, headers: &str) -> String {
        let answer = self.ask("POST", "/v1/sandboxes", &format!("host: x\r\n{headers}"), r#"{"template":"base"}"#);
        assert!(answer.head.starts_with("http/1.1 201"), "{}\n{}", answer.head, answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    fn listed(&self) -> (String, Vec<String>) {
        let answer = self.ask("GET", "/v1/sandboxes", "host: x\r\n", "");
        let ids =
            answer.json().as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect();
        (answer.head, ids)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.child.is_some() {
            // Sandboxes outlive their server, so remove them.
            let _ = self.output(&["rm", "--all"]);
        }
        self.kill();
    }
}

#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn either_node_answers_for_the_sandboxes_of_both() {
    let etcd = EtcdServer::start().await.unwrap();
    let engine = format!("etcd://{}", etcd.address());
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    let token = a.ok(&["fleet", "init", "--name", a.name, "--address", &a.address, "--engine", &engine]);
    a.serve();
    let join = ["fleet", "join", &a.address, "--name", b.name, "--address", &b.address, "--token"];
    let wrong = b.output(&[&join[..], &["sdlf_bm8"]].concat());
    assert!(!wrong.status.success());
    b.ok(&[&join[..], &[&token]].concat());
    b.serve();
    wait_for("both are members", || a.states() == [("a".to_owned(), false), ("b".to_owned(), false)]);

    // While a is drained, creates through it land on b.
    a.ok(&["fleet", "drain", "a"]);
    wait_for("a drains", || a.states()[0].1);
    let on_b = a.create("idempotency-key: one\r\n");
    assert!(b.ok(&["ls", "--json"]).contains(&on_b));
    assert_eq!(b.create("idempotency-key: one\r\n"), on_b, "a retry through another node");
    a.ok(&["fleet", "undrain", "a"]);
    wait_for("a is ready", || !a.states()[0].1);
    b.ok(&["fleet", "drain", "b"]);
    wait_for("b drains", || a.states()[1].1);
    assert_eq!(a.create("idempotency-key: one\r\n"), on_b, "the key's node stays the same");
    let on_a = b.create("");

    // Commands, files, terminals and ports of each, through the other.
    for (gateway, id) in [(&a, &on_b), (&b, &on_a)] {
        assert_eq!(gateway.ok(&["exec", id, "echo", "hello"]), "hello");
        let file = gateway.home.path().join("file");
        std::fs::write(&file, vec![7; 300_000]).unwrap();
        gateway.ok(&["cp", file.to_str().unwrap(), &format!("{id}:/tmp/file")]);
        assert_eq!(gateway.ok(&["exec", id, "stat", "-c", "%s", "/tmp/file"]), "300000");
        let port = gateway.ask("GET", "/", &format!("host: 3000-{id}.localhost\r\n"), "");
        assert!(port.body.contains("nothing_listens") || port.head.starts_with("http/1.1 502"), "{}", port.body);
        let upgrade = "host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let mut socket = gateway.send("GET", &format!("/v1/sandboxes/{id}/exec/pty"), upgrade, "");
        let mut status = [0; 12];
        socket.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 101", "a terminal");
    }
    for node in [&a, &b] {
        let (head, mut ids) = node.listed();
        ids.sort();
        let mut both = vec![on_a.clone(), on_b.clone()];
        both.sort();
        assert_eq!(ids, both);
        assert!(!head.contains("sandling-partial"), "{head}");
    }

    // Without b, a shows what it knows, and says what is missing.
    b.kill();
    let (head, ids) = a.listed();
    assert!(head.contains("sandling-partial: b") && ids == [on_a.clone()], "{head} {ids:?}");
    let gone = a.ask("GET", &format!("/v1/sandboxes/{on_b}"), "host: x\r\n", "");
    assert!(gone.head.starts_with("http/1.1 503") && gone.head.contains("retry-after"), "{}", gone.head);
    assert!(gone.body.contains("node b does not answer"), "{}", gone.body);
    b.serve();
    wait_for("b is back", || b.listed().1.len() == 2);
}
