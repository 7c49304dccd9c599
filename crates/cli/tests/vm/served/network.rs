//! Network commands, also across a killed and restarted server.

use std::fs::OpenOptions;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::harness::templates;
use crate::servers::Log;
use crate::{SANDLING, isolated, world};

const PATIENCE: Duration = Duration::from_secs(120);
pub const AUTHORITIES: &str = "authorities.pem";
const LOG: &str = "server.log";

pub fn command(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(SANDLING);
    command.args(arguments).env("SANDLING_HOME", home.path()).env("SANDLING_TEMPLATES", templates());
    command.env_remove("SANDLING_API").env_remove("SANDLING_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// The simulated internet, and a home whose server trusts its certificates.
pub async fn furnished() -> (Log, TempDir) {
    let (log, authority) = world::servers().await;
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join(AUTHORITIES), authority).unwrap();
    (log, home)
}

/// Starts a server that resolves the simulated names. Returns it with its stdout; its full log goes to a file.
async fn serve(home: &TempDir) -> (Child, Lines<BufReader<ChildStdout>>) {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--standbys", "0", "--name-server", "127.0.0.1:5300"];
    let log = OpenOptions::new().create(true).append(true).open(home.path().join(LOG)).unwrap();
    let mut serving = command(home, &arguments);
    serving.env("SANDLING_LOG", "debug").env("SSL_CERT_FILE", home.path().join(AUTHORITIES)).stderr(log);
    started(home, &mut serving).await
}

/// Starts a server and waits until commands find it.
pub async fn started(home: &TempDir, serving: &mut Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = serving.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = said.next_line().await.unwrap().unwrap();
    let address = first.strip_prefix("sandling listens on ").unwrap().trim().to_owned();
    let announced = async {
        while !std::fs::read_to_string(home.path().join("server")).is_ok_and(|text| text.trim() == address) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, announced).await.expect("the server did not announce its address");
    (child, said)
}

pub async fn sandling(home: &TempDir, arguments: &[&str]) -> Output {
    let running = command(home, arguments).output();
    tokio::time::timeout(PATIENCE, running).await.expect("it took too long").unwrap()
}

pub async fn ok(home: &TempDir, arguments: &[&str]) -> String {
    let ran = sandling(home, arguments).await;
    assert_eq!(ran.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

async fn refused(home: &TempDir, arguments: &[&str]) -> String {
    let ran = sandling(home, arguments).await;
    assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stdout));
    String::from_utf8(ran.stderr).unwrap()
}

async fn fetch(home: &TempDir, id: &str, host: &str) -> String {
    let line = format!("curl -s -m 30 -o /dev/null -w '%{{http_code}}' http://{host}/; true");
    ok(home, &["exec", "-c", &line, id]).await
}

/// Whether a simulated server received a request with this text.
fn reached(log: &Log, text: &str) -> bool {
    log.lock().unwrap().requests.iter().any(|head| head.contains(text))
}

/// The server's metrics.
async fn metrics(home: &TempDir) -> String {
    let mut answer = String::new();
    ask(home, "GET", "/metrics", "").await.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Sends a request to the server; the caller reads the response.
async fn ask(home: &TempDir, method: &str, path: &str, body: &str) -> TcpStream {
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap().trim().to_owned();
    let (address, token, length) = (read("server").replace("http://", ""), read("token"), body.len());
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

isolated! {
    async fn an_egress_allowlist_is_a_policy_and_its_decisions_can_be_followed() {
        let (log, home) = furnished().await;
        let (mut server, _said) = serve(&home).await;
        let mut made = String::new();
        let body = r#"{"template": "base", "ttl_seconds": 600, "network": {"allow": ["example.com", "*.example.com"]}}"#;
        ask(&home, "POST", "/v1/sandboxes", body).await.read_to_string(&mut made).await.unwrap();
        let made: Value = serde_json::from_str(made.split_once("\r\n\r\n").unwrap().1).unwrap();
        let id = made["id"].as_str().unwrap_or_else(|| panic!("{made}"));
        assert_eq!(made["network"]["mode"], "allow", "{made}");

        let path = format!("/v1/sandboxes/{id}/network/events?follow=1");
        let mut followed = BufReader::new(ask(&home, "GET", &path, "").await).lines();
        assert!(followed.next_line().await.unwrap().unwrap().starts_with("HTTP/1.1 200"));
        for (host, status) in [("example.com", "200"), ("www.example.com", "200"), ("evil.com", "000")] {
            assert_eq!(fetch(&home, id, host).await, status, "{host}");
        }
        let heard = async {
            let mut names = Vec::new();
            while !names.iter().any(|name| name == "evil.com") {
                let line = followed.next_line().await.unwrap().expect("the stream goes on");
                let Some(data) = line.strip_prefix("data: ") else { continue };
                let event: Value = serde_json::from_str(data).unwrap();
                names.extend(event["name"].as_str().map(str::to_owned));
                assert!(event["name"] != "evil.com" || event["verdict"] == "refused", "{event}");
            }
            names
        };
        let names = tokio::time::timeout(PATIENCE, heard).await.expect("the refusal was not streamed");
        assert!(names.iter().any(|name| name == "example.com"), "{names:?}");

        // The command shows the same events and exits with the sandbox.
        let mut following = command(&home, &["network", id, "-f"]).spawn().unwrap();
        let mut shown = BufReader::new(following.stdout.take().unwrap()).lines();
        assert_eq!(fetch(&home, id, "other.com").await, "000");
        let shown = async {
            loop {
                let line = shown.next_line().await.unwrap().expect("the stream goes on");
                if line.contains("other.com") {
                    break line;
                }
            }
        };
        let shown = tokio::time::timeout(PATIENCE, shown).await.expect("the command printed nothing");
        assert!(shown.contains("refused") && shown.contains("it is not on the allow list"), "{shown}");
        ok(&home, &["rm", "--all"]).await;
        assert!(tokio::time::timeout(PATIENCE, following.wait()).await.expect("the command did not exit").unwrap().success());
        assert!(reached(&log, "example.com"));
        server.kill().await.unwrap();
    }

    async fn policies_are_shown_changed_and_survive_a_killed_server() {
        let (log, home) = furnished().await;
        let (mut server, _said) = serve(&home).await;
        let id = ok(&home, &["create", "-t", "base", "--allow", "example.com", "--ttl", "10m"]).await;
        assert_eq!((fetch(&home, &id, "example.com").await, fetch(&home, &id, "evil.com").await), ("200".into(), "000".into()));

        server.kill().await.unwrap();
        let (mut server, _said) = serve(&home).await;
        // The next server also knows the resolved addresses.
        let pinned = format!("curl -s -m 30 -o /dev/null -w '%{{http_code}}' --resolve example.com:80:{} http://example.com/", world::SHARED);
        assert_eq!(ok(&home, &["exec", "-c", &pinned, &id]).await, "200");
        assert_eq!((fetch(&home, &id, "example.com").await, fetch(&home, &id, "evil.com").await), ("200".into(), "000".into()));
        let shown: Value = serde_json::from_str(&ok(&home, &["network", &id, "--json"]).await).unwrap();
        assert_eq!((&shown["mode"], &shown["allow"]), (&"allow".into(), &serde_json::json!(["example.com"])), "{shown}");
        let evil = |event: &Value| event["name"] == "evil.com" && event["verdict"] == "refused" && event["code"] == "not_listed";
        assert!(shown["events"].as_array().unwrap().iter().any(evil), "{shown}");
        ok(&home, &["network", &id, "--allow", "evil.com"]).await;
        assert_eq!((fetch(&home, &id, "example.com").await, fetch(&home, &id, "evil.com").await), ("200".into(), "200".into()));
        let table = ok(&home, &["network", &id, "--only", "evil.com"]).await;
        assert!(table.contains("evil.com") && table.contains("it is not on the allow list"), "{table}");
        assert_eq!((fetch(&home, &id, "example.com").await, fetch(&home, &id, "evil.com").await), ("000".into(), "200".into()));
        ok(&home, &["network", &id, "--set", "deny"]).await;
        assert_eq!(fetch(&home, &id, "evil.com").await, "000");
        let figures = metrics(&home).await;
        for line in [
            "sandling_network_decisions_total{kind=\"dns\",verdict=\"refused\",reason=\"not_listed\"} ",
            "sandling_network_decisions_total{kind=\"connect\",verdict=\"allowed\",reason=\"\"} ",
            "sandling_network_received_bytes_total ",
            "sandling_network_dns_queries_total ",
            "sandling_network_events_lost_total 0",
            "sandling_network_connections 0",
        ] {
            assert!(figures.contains(line), "{line}: {figures}");
        }
        assert!(!figures.contains("sandling_network_sent_bytes_total 0"), "{figures}");
        assert!(refused(&home, &["network", &id, "--allow", "*"]).await.contains("every name"));
        assert!(ok(&home, &["events", &id]).await.contains("network_changed"));

        let mut storing = command(&home, &["secret", "set", "API_KEY", "--host", "api.example.com", "--header", "Authorization: Bearer", "--query", "key", "--basic"]);
        let mut storing = storing.stdin(Stdio::piped()).spawn().unwrap();
        storing.stdin.take().unwrap().write_all(b"hunter2\n").await.unwrap();
        assert!(storing.wait().await.unwrap().success());
        let listed = ok(&home, &["secret", "ls"]).await;
        assert!(listed.contains("header Authorization: Bearer, query key, basic"), "{listed}");
        assert!(listed.contains("API_KEY") && listed.contains("api.example.com") && !listed.contains("hunter2"), "{listed}");
        assert!(refused(&home, &["create", "-t", "base", "--secret", "OTHER"]).await.contains("sandling secret set"));
        // A paused sandbox cannot receive a secret, but the policy change still applies.
        ok(&home, &["pause", &id]).await;
        let told = refused(&home, &["network", &id, "--allow", "www.example.com", "--secret", "API_KEY"]).await;
        assert!(told.contains("the change holds") && told.contains("it was not given API_KEY"), "{told}");
        let shown: Value = serde_json::from_str(&ok(&home, &["network", &id, "--json"]).await).unwrap();
        assert_eq!((&shown["allow"], &shown["secrets"]), (&serde_json::json!(["www.example.com"]), &serde_json::json!([])), "{shown}");
        ok(&home, &["resume", &id]).await;
        // After its use, the value is in no response, event or log.
        let with = ok(&home, &["create", "-t", "base", "--allow", "api.example.com", "--secret", "API_KEY", "--ttl", "10m"]).await;
        let line = "curl -s -m 60 -H \"Authorization: Bearer $API_KEY\" https://api.example.com/used";
        let mut said = vec![ok(&home, &["exec", "-c", line, &with]).await];
        assert!(reached(&log, "Authorization: Bearer hunter2"), "{said:?}");
        said.push(ok(&home, &["network", &with, "--json"]).await);
        said.push(ok(&home, &["events", &with]).await);
        let written = std::fs::read_to_string(home.path().join(LOG)).unwrap();
        assert!(written.contains("DEBUG"), "the debug log is missing");
        said.push(written);
        assert!(said.iter().all(|text| !text.contains("hunter2")), "{said:?}");
        ok(&home, &["secret", "rm", "API_KEY"]).await;
        let shown = ok(&home, &["network", &with]).await;
        assert!(shown.contains("secrets   -\n") && shown.contains("revoked   API_KEY (the secret was removed"), "{shown}");
        assert!(refused(&home, &["secret", "rm", "API_KEY"]).await.contains("not found"));

        // Sandboxes without a policy follow their template's default, then the workspace's.
        ok(&home, &["network", "--default", "--allow", "example.com"]).await;
        assert!(ok(&home, &["network", "--default", "--limit", "connections=7"]).await.contains("example.com"));
        let home = &home;
        let of = |arguments: &'static [&'static str]| async move {
            let id = ok(home, &[&["create", "-t", "base", "--ttl", "10m"], arguments].concat()).await;
            let shown: Value = serde_json::from_str(&ok(home, &["network", &id, "--json"]).await).unwrap();
            (id, shown)
        };
        let (id, shown) = of(&["--network-limit", "sent_bytes=1M"]).await;
        assert_eq!((&shown["allow"], &shown["limits"]["connections"]), (&serde_json::json!(["example.com"]), &7.into()), "{shown}");
        assert_eq!(shown["limits"]["sent_bytes"], 1 << 20, "{shown}");
        assert_eq!(fetch(home, &id, "example.com").await, "200");
        let limited = ok(home, &["network", &id, "--limit", "connections=3", "--json"]).await;
        assert!(limited.contains("\"connections\": 3"), "{limited}");
        assert!(refused(home, &["network", &id, "--limit", "connections=2000"]).await.contains("between 1 and 1024"));
        assert!(ok(home, &["network", &id, "--group", "crawl", "--hostname", "db"]).await.contains("crawl (as db.internal"));
        assert!(refused(home, &["network", &id, "--group", "a.b"]).await.contains("lower-case"));
        assert!(!ok(home, &["network", &id, "--group", ""]).await.contains("internal"));
        ok(home, &["network", "--template", "base", "--set", "open"]).await;
        assert_eq!(of(&[]).await.1["mode"], "open");
        assert_eq!(of(&["--network", "deny"]).await.1["mode"], "deny");
        ok(home, &["network", "--template", "base", "--clear"]).await;
        ok(home, &["network", "--default", "--clear"]).await;
        assert!(ok(home, &["network", "--default"]).await.contains("not set"));

        let learned = sandling(home, &["run", "-t", "base", "--network", "learn", "-l", "bash", "-c", "curl -s -o /dev/null http://www.example.com/"]).await;
        let said = String::from_utf8(learned.stderr).unwrap();
        assert!(said.contains("--allow www.example.com"), "{said}");
        let script = "curl -s -o /dev/null http://www.example.com/";
        let told = sandling(home, &["run", "-t", "base", "--allow", "pypi", "-l", "bash", "-c", script]).await;
        let said = String::from_utf8(told.stderr).unwrap();
        assert!(said.contains("the network refused www.example.com: ") && said.contains("--allow NAME"), "{said}");
        ok(home, &["rm", "--all"]).await;
        server.kill().await.unwrap();
    }

    async fn defaults_apply_and_bind_also_after_the_server_was_killed() {
        let (_log, home) = furnished().await;
        let (mut server, _said) = serve(&home).await;
        let follows = ok(&home, &["create", "-t", "base", "--ttl", "10m"]).await;
        let open = ok(&home, &["create", "-t", "base", "--network", "open", "--ttl", "10m"]).await;
        let home = &home;
        let reached = |id: String| async move { (fetch(home, &id, "example.com").await, fetch(home, &id, "other.com").await) };
        let both = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        ok(home, &["network", "--default", "--allow", "example.com"]).await;
        assert_eq!(reached(follows.clone()).await, both("200", "000"));
        assert_eq!(reached(open.clone()).await, both("200", "200"));
        assert!(ok(home, &["network", &follows]).await.contains("allow (TLS sealed), from the workspace's default"));

        assert!(ok(home, &["network", "--default", "--binding"]).await.contains("binding"));
        assert_eq!(reached(open.clone()).await, both("200", "000"));
        let shown = ok(home, &["network", &open]).await;
        assert!(shown.contains("at most   allow (TLS sealed): example.com"), "{shown}");
        assert!(shown.contains("the workspace's policy does not allow it"), "{shown}");

        server.kill().await.unwrap();
        let (mut server, _said) = serve(home).await;
        assert_eq!((reached(follows.clone()).await, reached(open.clone()).await), (both("200", "000"), both("200", "000")));
        ok(home, &["network", "--default", "--only", "other.com"]).await;
        assert_eq!((reached(follows.clone()).await, reached(open.clone()).await), (both("000", "200"), both("000", "200")));
        ok(home, &["network", "--default", "--binding=false"]).await;
        assert_eq!(reached(open.clone()).await, both("200", "200"));
        assert!(ok(home, &["network", &open, "--clear"]).await.contains("from the workspace's default"));
        assert_eq!(reached(open.clone()).await, both("000", "200"));

        ok(home, &["network", "--default", "--clear"]).await;
        assert_eq!(reached(follows.clone()).await, both("000", "000"));
        assert!(refused(home, &["network", "--default", "--binding"]).await.contains("there is no policy that could bind"));
        ok(home, &["rm", "--all"]).await;
        server.kill().await.unwrap();
    }
}
