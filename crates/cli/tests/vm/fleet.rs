//! Servers as a fleet: any of them answers for the sandboxes of all.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandling_fleet::{Engine, EtcdLedger, Ledger as _, Transaction, Write as LedgerWrite};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::SANDLING;
use crate::etcd_server::{EtcdServer, free_ports};
use crate::harness::templates;

const TOKEN: &str = "the-same-on-all-nodes";
const OPERATOR: &str = "authorization: Bearer the-same-on-all-nodes\r\n";
/// Only what hangs takes as long, also where other tests keep the processors and the disk busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Node {
    pub(crate) home: TempDir,
    pub(crate) name: &'static str,
    /// Where other nodes connect.
    pub(crate) address: String,
    /// Where clients connect.
    api: String,
    /// More of its environment.
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// More options of `serve`.
    pub(crate) serve_options: &'static [&'static str],
    pub(crate) child: Option<Child>,
}

pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}\n{}", self.head, self.body))
    }
}

impl Node {
    pub(crate) fn new(name: &'static str) -> Self {
        let (home, address) = (TempDir::new().unwrap(), free_address());
        Self { home, name, address, api: String::new(), variables: &[], serve_options: &[], child: None }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SANDLING);
        command.args(arguments).env("SANDLING_HOME", self.home.path()).env("SANDLING_TEMPLATES", templates());
        command.env("SANDLING_API", format!("http://{}", self.api)).env("SANDLING_TOKEN", TOKEN);
        command.envs(self.variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.output(arguments);
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn serve(&mut self) {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut serve = self.command(&["serve", "--listen", "127.0.0.1:0", "--standbys", "0"]);
        let mut child = serve.args(self.serve_options).stderr(log).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = said.next().unwrap_or_else(|| panic!("{}", fs::read_to_string(self.log()).unwrap())).unwrap();
        self.api = first.strip_prefix("sandling listens on http://").unwrap().to_owned();
        assert!(said.any(|line| line.unwrap().starts_with("the token is in")));
        self.child = Some(child);
    }

    pub(crate) fn join(&self, through: &Self, token: &str) {
        let own = ["--name", self.name, "--address", &self.address, "--token", token];
        self.ok(&[&["fleet", "join", &through.address][..], &own].concat());
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.home.path().join("server.log")
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.api).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let token = if headers.contains("authorization:") { "" } else { OPERATOR };
        let head = format!("{method} {path} HTTP/1.1\r\n{token}{headers}");
        let rest = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        write!(stream, "{head}{rest}").unwrap();
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let headers = format!("connection: close\r\n{headers}");
        let mut text = String::new();
        self.send(method, path, &headers, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Answer { head, body }
    }

    pub(crate) fn states(&self) -> Vec<(String, bool)> {
        let nodes: Vec<Value> = serde_json::from_str(&self.ok(&["fleet", "status", "--json"])).unwrap();
        nodes.iter().map(|node| (node["name"].as_str().unwrap().to_owned(), node["draining"] == true)).collect()
    }

    pub(crate) fn create(&self, headers: &str) -> String {
        let answer = self.ask("POST", "/v1/sandboxes", &format!("host: x\r\n{headers}"), r#"{"template":"base"}"#);
        assert!(answer.head.starts_with("http/1.1 201"), "{}\n{}", answer.head, answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, "host: x\r\n", body)
    }

    pub(crate) fn listed(&self) -> (String, Vec<String>) {
        let answer = self.ask("GET", "/v1/sandboxes", "host: x\r\n", "");
        let ids =
            answer.json().as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect();
        (answer.head, ids)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} said:\n{}", self.name, fs::read_to_string(self.log()).unwrap_or_default());
        }
        if self.child.is_some() {
            // Sandboxes outlive their server, so remove them.
            let _ = self.output(&["rm", "--all"]);
        }
        self.kill();
    }
}

/// Makes servers the nodes of a new fleet.
pub(crate) fn start_fleet(etcd: &EtcdServer, nodes: &mut [&mut Node]) {
    start_fleet_with(etcd, nodes, &[]);
}

/// The same with more options of `fleet init`.
pub(crate) fn start_fleet_with(etcd: &EtcdServer, nodes: &mut [&mut Node], options: &[&str]) {
    let (first, others) = nodes.split_first_mut().unwrap();
    let engine = format!("etcd://{}", etcd.address());
    let init = ["fleet", "init", "--name", first.name, "--address", &first.address, "--engine", &engine];
    let init = first.ok(&[&init[..], options].concat());
    first.serve();
    wait_for("the first is a member", || first.states().len() == 1);
    let mut token = Some(init);
    for node in others {
        let token = token.take().unwrap_or_else(|| first.ok(&["fleet", "token"]));
        node.join(first, &token);
        node.serve();
    }
    let count = nodes.len();
    wait_for("all are members", || nodes[0].states().len() == count);
}

/// Waits until exactly these nodes are drained.
pub(crate) fn drain(through: &Node, drained: &[&str]) {
    for (name, _) in through.states() {
        match drained.contains(&&*name) {
            true => through.ok(&["fleet", "drain", "--keep-sandboxes", &name]),
            false => through.ok(&["fleet", "undrain", &name]),
        };
    }
    wait_for("the drained ones drain", || {
        through.states().iter().all(|(name, drains)| *drains == drained.contains(&&**name))
    });
}

/// The port after this one is free, too: etcd may need it.
fn free_address() -> String {
    format!("127.0.0.1:{}", free_ports(2))
}

#[track_caller]
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, chunk)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body += &chunk[..size];
        rest = &chunk[size + 2..];
    }
    body
}

/// Sends a request to the address for nodes, with the certificate of a home or without one.
pub(crate) fn ask_as_node(address: &str, certificate: Option<&Path>, request: &str) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-connect", address]).stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(home) = certificate {
        client.arg("-cert").arg(home.join("fleet/server.pem")).arg("-key").arg(home.join("fleet/server.key"));
    }
    let mut client = client.stderr(Stdio::null()).spawn().unwrap();
    let stdin = client.stdin.take();
    // A server that refuses the certificate closes the connection first.
    let _ = stdin.as_ref().unwrap().write_all(format!("{request}\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes());
    let mut text = String::new();
    client.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    client.wait().unwrap();
    text
}

/// An id that no sandbox has, with the tag of the node that made the given one.
pub(crate) fn unused_id(like: &str) -> String {
    format!("00000000-0000-4000-8000-0000{}", &like[28..])
}

#[track_caller]
pub(crate) fn refused(ran: &Output, why: &str) {
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && text.contains(why), "{text}");
}

/// The process ID of the etcd that a server runs.
pub(crate) fn etcd_of(server: u32) -> Option<Pid> {
    let children = fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten();
    let children = children.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children = children.flat_map(|all| all.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let is_etcd = |child: &String| fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name == "etcd\n");
    children.filter(is_etcd).find_map(|child| Pid::from_raw(child.parse().ok()?))
}

#[test]
fn the_first_node_runs_etcd_and_starts_it_again() {
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    let init = ["fleet", "init", "--name", a.name, "--address", &a.address];
    let without_etcd = a.command(&init).env("PATH", "/nonexistent").output().unwrap();
    refused(&without_etcd, "run `apt-get install etcd-server`");
    assert!(!a.home.path().join("fleet").exists());
    let token = a.ok(&init);
    a.serve();
    wait_for("the first is a member", || a.output(&["fleet", "status"]).status.success() && a.states().len() == 1);
    b.ok(&["fleet", "join", &a.address, "--name", b.name, "--address", &b.address, "--token", &token]);
    b.serve();
    wait_for("both are members", || b.states().len() == 2);

    // Only its user sees its files. The key of the authority is not among them.
    let engine = a.home.path().join("fleet/engine");
    assert_eq!(fs::metadata(&engine).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!engine.join("ca.key").exists());
    let (host, port) = a.address.rsplit_once(':').unwrap();
    let etcd_address = format!("{host}:{}", port.parse::<u16>().unwrap() + 1);
    let read = "POST /v3/kv/range HTTP/1.1\r\ncontent-length: 0";
    assert!(!ask_as_node(&etcd_address, None, read).contains("HTTP/1.1"), "a client without a certificate");
    assert!(ask_as_node(&etcd_address, Some(b.home.path()), read).starts_with("HTTP/1.1"));

    let server = a.child.as_ref().unwrap().id();
    let first = etcd_of(server).unwrap();
    kill_process(first, Signal::KILL).unwrap();
    let created = |key: &str| {
        let headers = format!("host: x\r\nidempotency-key: {key}\r\n");
        let answer = b.ask("POST", "/v1/sandboxes", &headers, r#"{"template":"base"}"#);
        answer.head.starts_with("http/1.1 201").then(|| answer.json()["id"].as_str().unwrap().to_owned())
    };
    let mut id = None;
    wait_for("creates work again", || {
        id = created("one");
        id.is_some()
    });
    let second = etcd_of(server).unwrap();
    assert_ne!(first, second);
    assert_eq!(a.ok(&["exec", &id.unwrap(), "echo", "hello"]), "hello");

    // etcd ends with its server, even if that is killed.
    a.ok(&["rm", "--all"]);
    a.kill();
    wait_for("etcd has ended", || !Path::new(&format!("/proc/{}", second.as_raw_nonzero())).exists());
    a.serve();
    wait_for("both are members again", || b.output(&["fleet", "status"]).status.success() && b.states().len() == 2);
}

/// Runs a shell in place of etcd.
#[test]
fn etcd_uses_only_its_directory() {
    let (own, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(own.path().join("readable"), "own").unwrap();
    fs::write(other.path().join("secret"), "secret").unwrap();
    let script = "cat readable; echo new > written; cat $0/secret; echo new > $0/written; kill -0 1; cat /etc/passwd";
    let mut etcd = Command::new(SANDLING);
    etcd.args(["__etcd", &std::process::id().to_string(), "2379", "/bin/sh", "-c", script]).arg(other.path());
    let ran = etcd.env_clear().current_dir(own.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "own", "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(own.path().join("written").exists() && !other.path().join("written").exists());
    let of_another = Command::new(SANDLING).args(["__etcd", "1", "2379", "/bin/true"]).output().unwrap();
    refused(&of_another, "the server has ended");
}

#[test]
fn a_removed_node_is_refused_and_its_name_is_free() {
    let (mut a, mut b, mut successor) = (Node::new("a"), Node::new("b"), Node::new("b"));
    let token = a.ok(&["fleet", "init", "--name", a.name, "--address", &a.address]);
    a.serve();
    let join = |node: &Node, token: &str| {
        node.output(&["fleet", "join", &a.address, "--name", "b", "--address", &node.address, "--token", token])
    };
    wait_for("b can join", || join(&b, &token).status.success());
    b.serve();
    let both = ["a", "b"].map(|name| (name.to_owned(), false));
    wait_for("both are members", || a.states() == both);
    let list = format!("GET /v1/sandboxes HTTP/1.1\r\nauthorization: Bearer {TOKEN}");
    let asks_a = |node: &Node| ask_as_node(&a.address, Some(node.home.path()), &list);
    assert!(asks_a(&b).starts_with("HTTP/1.1 200"));
    let diagnosis = a.output(&["doctor", "--json"]).stdout;
    let diagnosis: Value = serde_json::from_slice(&diagnosis).unwrap();
    let check =
        |name: &str| diagnosis["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned();
    for name in ["fleet certificate", "fleet space", "fleet node b"] {
        assert_eq!(check(name).unwrap()["verdict"], "ok", "{name}: {diagnosis}");
    }
    assert!(check("fleet etcd").unwrap()["detail"].as_str().unwrap().contains("version 3."), "{diagnosis}");

    b.kill();
    let token = a.ok(&["fleet", "token"]);
    refused(&join(&successor, &token), "sandling fleet remove b");
    b.serve();
    refused(&a.output(&["fleet", "remove", "nobody"]), "the fleet has no node nobody");
    refused(&a.output(&["fleet", "remove", "a"]), "runs the fleet's etcd");
    a.ok(&["fleet", "remove", "b"]);
    wait_for("a refuses b", || asks_a(&b).starts_with("HTTP/1.1 403"));
    assert!(asks_a(&b).contains("node_removed"));
    refused(&b.output(&["fleet", "status"]), "this machine was removed from the fleet");
    wait_for("b's log says it", || fs::read_to_string(b.log()).unwrap().contains("was removed from the fleet"));

    assert!(join(&successor, &token).status.success());
    successor.serve();
    wait_for("the name has another machine", || a.states() == both && asks_a(&successor).starts_with("HTTP/1.1 200"));
    assert!(asks_a(&b).starts_with("HTTP/1.1 403"), "the removed one stays out");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_for_the_sandboxes_of_all() {
    let etcd = EtcdServer::start().await.unwrap();
    let engine = format!("etcd://{}", etcd.address());
    let (mut a, mut b, mut c) = (Node::new("a"), Node::new("b"), Node::new("c"));
    let token = a.ok(&["fleet", "init", "--name", a.name, "--address", &a.address, "--engine", &engine]);
    a.serve();
    wait_for("the first is a member", || a.states() == [("a".to_owned(), false)]);
    let join = |node: &Node, name: &str, token: &str| {
        node.output(&["fleet", "join", &a.address, "--name", name, "--address", &node.address, "--token", token])
    };
    let forged = "sdlf_bm8";
    refused(&join(&b, "b", forged), "this is not a join token");
    assert!(join(&b, "b", &token).status.success());
    refused(&join(&c, "c", &token), "is used up");
    b.serve();
    wait_for("both are members", || a.states().len() == 2);
    let token = a.ok(&["fleet", "token", "--machines", "2"]);
    refused(&join(&c, "b", &token), "the fleet has a node b");
    let (other, late) = (Node::new("other"), Node::new("late"));
    for (node, name) in [(&c, "c"), (&other, "other")] {
        assert!(join(node, name, &token).status.success());
    }
    refused(&join(&late, "late", &token), "is used up");
    c.serve();
    let ready = ["a", "b", "c"].map(|name| (name.to_owned(), false));
    wait_for("all are members", || a.states() == ready);
    for node in [&a, &b, &c] {
        let directory = node.home.path().join("fleet");
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        for key in ["ca.key", "server.key"] {
            assert_eq!(fs::metadata(directory.join(key)).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    // While a and c are drained, creates through them land on b.
    for name in ["a", "c"] {
        a.ok(&["fleet", "drain", "--keep-sandboxes", name]);
    }
    wait_for("a and c drain", || a.states().iter().filter(|(_, draining)| *draining).count() == 2);
    let on_b = a.create("idempotency-key: one\r\n");
    assert!(b.ok(&["ls", "--json"]).contains(&on_b));
    assert_eq!(c.create("idempotency-key: one\r\n"), on_b, "a retry through another node");
    a.ok(&["fleet", "undrain", "a"]);
    a.ok(&["fleet", "drain", "--keep-sandboxes", "b"]);
    wait_for("only a takes sandboxes", || a.states().into_iter().map(|(_, drains)| drains).eq([false, true, true]));
    assert_eq!(a.create("idempotency-key: one\r\n"), on_b, "the key's node stays the same");
    let on_a = b.create("");

    // Commands, files, terminals and ports of each, through another.
    for (gateway, id) in [(&a, &on_b), (&c, &on_a)] {
        assert_eq!(gateway.ok(&["exec", id, "echo", "hello"]), "hello");
        let file = gateway.home.path().join("file");
        fs::write(&file, vec![7; 300_000]).unwrap();
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
    for node in [&a, &b, &c] {
        let (head, ids) = node.listed();
        assert_eq!(ids, [on_b.clone(), on_a.clone()], "the oldest first");
        assert!(!head.contains("sandling-partial"), "{head}");
    }

    // What is nobody's business to know, and requests that could go in circles.
    let unknown = a.ask("GET", &format!("/v1/sandboxes/{}", unused_id(&on_b)), "host: x\r\n", "");
    assert!(unknown.head.starts_with("http/1.1 404"), "{}", unknown.head);
    let ask_for_a = format!("GET /v1/sandboxes/{on_a} HTTP/1.1\r\nauthorization: Bearer {TOKEN}");
    let stranger = ask_as_node(&b.address, None, &ask_for_a);
    assert!(stranger.starts_with("HTTP/1.1 403"), "{stranger}");
    let node = ask_as_node(&b.address, Some(c.home.path()), &ask_for_a);
    assert!(node.starts_with("HTTP/1.1 404"), "a node answers nodes only for itself: {node}");
    let without_token = format!("GET /v1/sandboxes/{on_b} HTTP/1.1");
    let node = ask_as_node(&b.address, Some(c.home.path()), &without_token);
    assert!(node.starts_with("HTTP/1.1 401"), "a node's certificate is no token: {node}");
    let other_fleet = Node::new("other");
    let init = ["fleet", "init", "--name", "other", "--address", &other_fleet.address, "--engine"];
    refused(&other_fleet.output(&[&init[..], &[&engine]].concat()), "this etcd has a fleet already");
    let other_etcd = EtcdServer::start().await.unwrap();
    other_fleet.ok(&[&init[..], &[&format!("etcd://{}", other_etcd.address())]].concat());
    let foreign = ask_as_node(&b.address, Some(other_fleet.home.path()), &ask_for_a);
    assert!(!foreign.contains("HTTP/1.1"), "a certificate of another authority: {foreign}");

    // Without b, a shows what it knows, and says what is missing.
    b.kill();
    let (head, ids) = a.listed();
    assert!(head.contains("sandling-partial: b") && ids == [on_a.clone()], "{head} {ids:?}");
    let unreachable = |node: &Node| {
        let gone = node.ask("GET", &format!("/v1/sandboxes/{on_b}"), "host: x\r\n", "");
        assert!(gone.head.starts_with("http/1.1 503") && gone.head.contains("retry-after"), "{}", gone.head);
        assert!(gone.body.contains("node b does not answer"), "{}", gone.body);
    };
    unreachable(&a);
    wait_for("b is no member", || a.states().len() == 2);
    unreachable(&c);
    b.serve();
    wait_for("b is back", || a.listed().1.len() == 2 && a.states().len() == 3);

    // Without etcd, everything that runs goes on, and creates are refused.
    drop(etcd);
    let create = || a.ask("POST", "/v1/sandboxes", "host: x\r\nidempotency-key: two\r\n", r#"{"template":"base"}"#);
    let refusal = create();
    assert!(refusal.head.starts_with("http/1.1 503") && refusal.head.contains("retry-after"), "{}", refusal.head);
    let plain = || a.ask("POST", "/v1/sandboxes", "host: x\r\n", r#"{"template":"unknown"}"#);
    let unknown = plain();
    assert!(unknown.body.contains("template_unknown"), "{}\n{}", unknown.head, unknown.body);
    wait_for("the nodes have lost their leases", || plain().body.contains("has lost its lease"));
    assert_eq!(c.ok(&["exec", &on_b, "echo", "still here"]), "still here");
    assert_eq!(b.listed().1.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_has_is_found_by_its_name_through_all() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    drain(&a, &["a"]);
    let named = r#"{"template":"base","name":"web"}"#;
    let web = a.post("/v1/sandboxes", named).json()["id"].as_str().unwrap().to_owned();
    drain(&a, &[]);

    // A name is found on the other node, and is not given away twice.
    assert_eq!(a.ok(&["exec", "web", "cat", "/etc/hostname"]), a.ok(&["exec", &web, "cat", "/etc/hostname"]));
    let taken = a.post("/v1/sandboxes", named);
    assert!(taken.head.starts_with("http/1.1 409") && taken.body.contains(&web), "{}\n{}", taken.head, taken.body);
    let unknown = a.ask("GET", "/v1/sandboxes/db", "host: x\r\n", "");
    assert!(unknown.head.starts_with("http/1.1 404"), "{}\n{}", unknown.head, unknown.body);
    let local = format!("GET /v1/sandboxes/web HTTP/1.1\r\nauthorization: Bearer {TOKEN}");
    let node = ask_as_node(&a.address, Some(b.home.path()), &local);
    assert!(node.starts_with("HTTP/1.1 404"), "a node answers nodes only for itself: {node}");

    // What nodes ask each other is closed to a client whose request one of them passes on.
    let find = "/fleet/find?workspace=default&kind=sandbox&name=web";
    let as_node = ask_as_node(&b.address, Some(a.home.path()), &format!("GET {find} HTTP/1.1"));
    assert!(as_node.contains(&web), "{as_node}");
    for path in [find, "/fleet/offer?workspace=default&template=base&dialect=", "/fleet/health"] {
        let spied = a.ask("GET", path, &format!("host: 3000-{web}.localhost\r\n"), "");
        assert!(!spied.head.starts_with("http/1.1 200"), "{path}: {}\n{}", spied.head, spied.body);
    }

    // A template of b makes sandboxes on b, whichever node is asked for one.
    let snapshot = b.post(&format!("/v1/sandboxes/{web}/snapshots"), "{}").json()["id"].as_str().unwrap().to_owned();
    let made = b.post(&format!("/v1/snapshots/{snapshot}/template"), r#"{"name":"mine"}"#);
    assert!(made.head.starts_with("http/1.1 201"), "{}\n{}", made.head, made.body);
    let listed: Vec<Value> = serde_json::from_str(&a.ok(&["template", "ls", "--json"])).unwrap();
    let nodes = |name: &str| listed.iter().find(|template| template["name"] == name).unwrap()["nodes"].clone();
    assert_eq!((nodes("mine"), nodes("base")), (json!(["b"]), json!(["a", "b"])));
    assert!(a.ok(&["template", "inspect", "mine"]).contains(r#""name": "mine""#));
    let of_mine = |path: &str, body: &str| {
        let answer = a.post(path, body);
        assert!(answer.head.starts_with("http/1.1 201"), "{}\n{}", answer.head, answer.body);
        answer.json()
    };
    let id = of_mine("/v1/sandboxes", r#"{"template":"mine"}"#)["id"].as_str().unwrap().to_owned();
    assert_eq!(id[28..], web[28..], "on the same node");
    let e2b = of_mine("/sandboxes", r#"{"templateID":"mine"}"#);
    assert_eq!(e2b["sandboxID"].as_str().unwrap()[24..], web[28..], "in E2B's words, too");

    // So do its snapshots and volumes.
    let golden = b.post(&format!("/v1/sandboxes/{web}/snapshots"), r#"{"name":"golden"}"#).json()["id"].clone();
    let golden = golden.as_str().unwrap();
    for wanted in [golden, "golden"] {
        let found = a.ask("GET", &format!("/v1/snapshots/{wanted}"), "host: x\r\n", "");
        assert_eq!(found.json()["id"], golden);
        let id = of_mine("/v1/sandboxes", &format!(r#"{{"from_snapshot":"{wanted}"}}"#))["id"].clone();
        assert_eq!(id.as_str().unwrap()[28..], web[28..], "on the same node");
    }
    let volume = |name: &str| format!(r#"{{"name":"{name}","size_mb":16}}"#);
    assert!(b.post("/v1/volumes", &volume("data")).head.starts_with("http/1.1 201"));
    let taken = a.post("/v1/volumes", &volume("data"));
    assert!(taken.head.starts_with("http/1.1 409"), "{}\n{}", taken.head, taken.body);
    assert!(a.post("/v1/volumes", &volume("logs")).head.starts_with("http/1.1 201"));
    let id = of_mine("/v1/sandboxes", r#"{"template":"base","volumes":[{"name":"data"}]}"#)["id"].clone();
    assert_eq!(id.as_str().unwrap()[28..], web[28..], "on the node of the volume");
    let both = r#"{"template":"base","volumes":[{"name":"data"},{"name":"logs"}]}"#;
    let apart = b.post("/v1/sandboxes", both);
    let why = "volume `data` is on node b and volume `logs` on node a";
    assert!(apart.head.starts_with("http/1.1 409") && apart.body.contains(why), "{}\n{}", apart.head, apart.body);
    let listed = |node: &Node, path: &str| node.ask("GET", path, "host: x\r\n", "").json();
    for node in [&a, &b] {
        let names = ["data", "logs"].map(|name| {
            let volumes = listed(node, "/v1/volumes");
            volumes.as_array().unwrap().iter().find(|volume| volume["name"] == name).unwrap()["node"].clone()
        });
        assert_eq!(names, ["b", "a"]);
        let snapshots = listed(node, "/v1/snapshots")["snapshots"].take();
        assert_eq!((&snapshots[0]["name"], &snapshots[0]["node"]), (&json!("golden"), &json!("b")));
    }
    let deleted = a.ask("DELETE", "/v1/snapshots/golden", "host: x\r\n", "");
    assert!(deleted.head.starts_with("http/1.1 204"), "{}\n{}", deleted.head, deleted.body);
    let gone = a.post("/v1/sandboxes", r#"{"from_snapshot":"golden"}"#);
    assert!(gone.head.starts_with("http/1.1 404"), "{}\n{}", gone.head, gone.body);

    // A node that has the template and does not take the sandbox is named.
    drain(&a, &["b"]);
    let refusal = a.post("/v1/sandboxes", r#"{"template":"base","volumes":[{"name":"data"}]}"#);
    assert!(refusal.body.contains("volume `data` is on node b, which is draining"), "{}", refusal.body);
    let refusal = a.post("/v1/sandboxes", r#"{"template":"mine"}"#);
    assert!(refusal.head.starts_with("http/1.1 503"), "{}\n{}", refusal.head, refusal.body);
    assert!(refusal.body.contains("now: b is draining; try"), "{}", refusal.body);
    b.kill();
    let silent = a.ask("GET", "/v1/sandboxes/web", "host: x\r\n", "");
    assert!(silent.body.contains("node b does not answer"), "{}\n{}", silent.head, silent.body);
    b.serve();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_its_node_declines_goes_to_the_next_one() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b, mut c) = (Node::new("a"), Node::new("b"), Node::new("c"));
    a.variables = &[("SANDLING_LOG", "sandling_api=info")];
    // Refuses what it cannot audit, but only when it gets the request.
    b.variables = &[("SANDLING_AUDIT", "required"), ("SANDLING_AUDIT_FILE", "/dev/full")];
    start_fleet(&etcd, &mut [&mut a, &mut b, &mut c]);
    wait_for("b cannot audit", || {
        b.ask("DELETE", "/v1/sandboxes/none", "host: x\r\n", "").body.contains("audit_unavailable")
    });

    drain(&a, &["a", "c"]);
    let key = "idempotency-key: first\r\n";
    let refusal = a.ask("POST", "/v1/sandboxes", &format!("host: x\r\n{key}"), r#"{"template":"base"}"#);
    assert!(refusal.body.contains("audit_unavailable"), "the last refusal: {}\n{}", refusal.head, refusal.body);
    assert!(!refusal.head.contains("sandling-create-declined"), "only nodes say that: {}", refusal.head);
    drain(&a, &["a"]);
    let first = a.create(key);
    let declined = |node: &Node| fs::read_to_string(node.log()).unwrap().matches("declined a create").count();
    let before = declined(&a);
    assert!(before > 0, "b had the key");
    for number in 0.. {
        assert!(number < 30, "b was never the cheapest");
        let key = format!("idempotency-key: {number}\r\n");
        let id = a.create(&key);
        assert_eq!(id[28..], first[28..], "on c");
        assert_eq!((b.create(&key), c.create(&key)), (id.clone(), id.clone()), "a retry through another node");
        let without_key = a.create("");
        assert_eq!(without_key[28..], first[28..]);
        a.ok(&["rm", &id, &without_key]);
        if declined(&a) > before {
            break;
        }
    }
    assert_eq!(a.listed().1, [first]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_one_node_works_on_all_until_it_is_revoked_on_any() {
    let etcd = EtcdServer::start().await.unwrap();
    let (mut a, mut b) = (Node::new("a"), Node::new("b"));
    start_fleet(&etcd, &mut [&mut a, &mut b]);
    let post = |node: &Node, path: &str, body: &str| {
        let answer = node.post(path, body);
        assert!(answer.head.starts_with("http/1.1 201"), "{}\n{}", answer.head, answer.body);
        answer.json()
    };
    post(&a, "/v1/workspaces", r#"{"name":"team"}"#);
    let tokens = "/v1/workspaces/team/tokens";
    let [kept, revoked] =
        ["kept", "revoked"].map(|name| post(&a, tokens, &json!({"name": name, "scope": "run"}).to_string()));
    let secret = |token: &Value| token["token"].as_str().unwrap().to_owned();
    let status = |node: &Node, token: &str| {
        let answer = node.ask("GET", "/v1/sandboxes", &format!("host: x\r\nauthorization: Bearer {token}\r\n"), "");
        answer.head[9..12].to_owned()
    };
    let (kept, revoked) = (secret(&kept), secret(&revoked));
    wait_for("b knows the tokens", || status(&b, &kept) == "200" && status(&b, &revoked) == "200");
    let gone = b.ask("DELETE", &format!("{tokens}/{}", &revoked[..12]), "host: x\r\n", "");
    assert!(gone.head.starts_with("http/1.1 204"), "{}\n{}", gone.head, gone.body);
    assert_eq!(status(&b, &revoked), "401");
    wait_for("a has revoked it, too", || status(&a, &revoked) == "401");

    // Nobody gets a token by writing to etcd.
    let forged = format!("sdl_{}", "1".repeat(40));
    let info = json!({"prefix": &forged[..12], "name": "", "workspace": "default", "scope": "operator",
        "created_at": "2026-01-01T00:00:00Z", "expires_at": null, "last_used_at": null});
    let body = json!({"info": info, "hash": blake3::hash(forged.as_bytes()).to_hex().as_str(), "revoked_at": null});
    let record = json!({"body": body.to_string(), "proof": "0".repeat(64)}).to_string();
    let ledger = EtcdLedger::plain(Engine::first(vec![format!("http://{}", etcd.address())]), PATIENCE);
    let put = LedgerWrite::put(format!("shared/token/{}", &forged[..12]), record);
    ledger.commit(Transaction::default().then(put)).await.unwrap();
    wait_for("b has seen it", || fs::read_to_string(b.log()).unwrap().contains("a record that no node has written"));
    assert_eq!(status(&b, &forged), "401");

    // A workspace ends everywhere. Without etcd, what each node knows goes on working.
    post(&b, "/v1/workspaces", r#"{"name":"other"}"#);
    let other = secret(&post(&b, "/v1/workspaces/other/tokens", "{}"));
    wait_for("a knows it", || status(&a, &other) == "200");
    let gone = a.ask("DELETE", "/v1/workspaces/other", "host: x\r\n", "");
    assert!(gone.head.starts_with("http/1.1 204"), "{}\n{}", gone.head, gone.body);
    let workspaces = |node: &Node| node.ask("GET", "/v1/workspaces", "host: x\r\n", "").body;
    wait_for("b has deleted it, too", || status(&b, &other) == "401" && !workspaces(&b).contains("other"));
    drop(etcd);
    b.kill();
    b.serve();
    assert_eq!((status(&b, &kept).as_str(), status(&b, &revoked).as_str()), ("200", "401"));
}
