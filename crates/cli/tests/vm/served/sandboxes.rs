//! Creating, listing, pausing, watching and removing sandboxes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::Value;

use super::server::{PATIENCE, Server, text};

#[test]
fn a_sandbox_is_created_listed_paused_and_removed() {
    let server = Server::shared();
    let made = server
        .json(&["create", "-t", "base", "--json", "--label", "task=42", "--ttl", "10m", "--idle", "5m", "-e", "A=b"]);
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["ttl_seconds"], &made["idle_seconds"]), (&600.into(), &300.into()));
    assert_eq!(server.ok(&["exec", "-c", "echo $A", id]), "b\n");
    let table = server.ok(&["ls", "--label", "task=42"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("STATUS"), "{table}");
    for word in [&id[..8], "running", "512 MiB", "task=42"] {
        assert!(lines[1].contains(word), "{word}: {table}");
    }
    assert!(!table.contains('\x1b'), "colours are for terminals");
    assert_eq!(server.ok(&["ls", "-q", "--label", "task=42"]).trim(), id);

    server.ok(&["pause", &id[..8]]);
    assert_eq!(server.json(&["ls", "--json", "--label", "task=42"])[0]["status"], "paused");
    assert!(server.refused(&["exec", id, "true"]).contains("sandling resume"));
    assert_eq!(server.ok(&["resume", id]).trim(), id);
    assert_eq!(server.ok(&["exec", id, "echo", "on"]), "on\n");

    let mut following = server.command(&["events", "-f", "-n", "1", id]).spawn().unwrap();
    let mut events = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(events.next().unwrap().unwrap().contains("resumed"));
    let ran = server.sandling(&["rm", "zzzz", id]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout).trim()),
        (Some(2), id),
        "a missing sandbox must not stop the others"
    );
    assert!(text(&ran.stderr).contains("zzzz"), "{}", text(&ran.stderr));
    assert!(events.next().unwrap().unwrap().contains("ended"));
    assert_eq!(following.wait().unwrap().code(), Some(0), "following stops after the end event");

    assert!(server.refused(&["rm", id]).contains("has ended"));
    assert_eq!(server.ok(&["ls", "--label", "task=42"]), "");
    let told = server.ok(&["events", "--json", id]);
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "sandbox.ended");
    assert!(server.ok(&["events"]).contains(&id[..8]));
}

#[test]
fn a_console_can_be_read_and_followed() {
    let server = Server::shared();
    let id = server.sandbox();
    let mut following = server.command(&["logs", "-f", "-n", "0", id]).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    server.ok(&["exec", "-c", "for n in 1 2 3; do echo line-$n > /dev/console; done", id]);
    let deadline = Instant::now() + PATIENCE;
    while server.ok(&["logs", "-n", "2", id]) != "line-2\nline-3\n" {
        assert!(Instant::now() < deadline, "{}", server.ok(&["logs", id]));
    }
    // The stream may have started after the first lines; it must contain the last one.
    server.ok(&["exec", "-c", "echo line-4 > /dev/console", id]);
    assert!(lines.any(|line| line.unwrap() == "line-4"));
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn a_port_is_listed_and_a_link_opens_it() {
    let server = Server::shared();
    let id = server.sandbox();
    assert!(server.json(&["ports", "--json", id]).as_array().unwrap().iter().all(|port| port["port"] != 8123));
    let serving = "mkdir -p /www && echo hello > /www/page && cd /www && exec python3 -m http.server 8123";
    server.ok(&["exec", "--detach", "-c", serving, id]);
    let deadline = Instant::now() + PATIENCE;
    while !server.ok(&["ports", id]).contains("8123") {
        assert!(Instant::now() < deadline, "it never listened");
    }
    let link = server.ok(&["ports", id, "--link", "8123", "--ttl", "5m"]);
    let (host, query) = link.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(server.address().strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET /page{query} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.lines().next().unwrap().ends_with(" 200 OK") && page.ends_with("hello\n"), "{page}");
}

#[test]
fn a_family_is_listed_even_if_intermediate_sandboxes_have_ended() {
    let server = Server::shared();
    let first = server.ok(&["create", "-t", "base"]).trim().to_owned();
    let mut line = vec![first.clone()];
    for _ in 0..3 {
        let child = server.ok(&["fork", line.last().unwrap()]);
        line.push(child.trim().to_owned());
    }
    let sibling = server.ok(&["fork", &first]).trim().to_owned();
    server.ok(&["rm", &line[1], &line[2]]);
    let family = server.call("GET", &format!("/v1/sandboxes/{}/family", line[3]), "");
    let ids: Vec<_> = family.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [first.as_str(), &line[3], &sibling]);
    assert_eq!(family[1]["parent_id"], line[2].as_str());
    server.ok(&["rm", &first, &line[3], &sibling]);
}
