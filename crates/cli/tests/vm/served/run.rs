//! `run` with a server: same behaviour, but the server owns the sandbox.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::{PATIENCE, Server, noise, signal, text};

#[test]
fn run_behaves_the_same_with_a_server() {
    let server = Server::start();
    let code =
        "import sys, os; print(sum(range(101))); print(sys.argv[1:], os.environ['X'], file=sys.stderr); sys.exit(5)";
    let ran = server.sandling(&["run", "-t", "base", "-e", "X=y", "-c", code, "--", "-v", "a b"]);
    assert_eq!(
        (text(&ran.stdout), text(&ran.stderr), ran.status.code()),
        ("5050\n".into(), "['-v', 'a b'] y\n".into(), Some(5))
    );
    let bytes = noise(1_000_000);
    let ran = server.fed(&["run", "-t", "base", "--language", "bash", "-c", "cat"], &bytes);
    assert!(ran.stdout == bytes, "{} bytes came back: {}", ran.stdout.len(), text(&ran.stderr));
    let ran = server.fed(&["run", "-t", "base", "-"], b"import sys; print('from stdin', repr(sys.stdin.read()))");
    assert_eq!(text(&ran.stdout), "from stdin ''\n");

    let ran = server.sandling(&[
        "run",
        "-t",
        "base",
        "--json",
        "--scan",
        "-c",
        "import socket; print('hi'); raise SystemExit(3)",
    ]);
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(3));
    assert_eq!((&report["stdout"], &report["reason"]), (&"hi\n".into(), &"exited".into()));
    assert_eq!(report["advice"][0]["risk"], "network");
    assert!(report["sandbox"]["boundary"]["accelerator"].is_string(), "{report}");
    let events = server.ok(&["events", "--json", report["sandbox"]["id"].as_str().unwrap()]);
    let kinds: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["sandbox.created", "sandbox.advice", "sandbox.ended"], "the server did the work");

    let ran = server.sandling(&["run", "-t", "base", "--output-limit", "1000", "-c", "while True: print('x' * 99)"]);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(125), 1000));
    assert!(server.refused(&["run", "--template", "nope", "-c", "1"]).contains("nope"));
    assert!(server.refused(&["run", "-t", "base", "--memory", "1", "-c", "1"]).contains("memory"));
    assert_eq!(server.ok(&["ls", "-q"]), "", "every sandbox is gone");
}

#[test]
fn the_sandbox_is_removed_however_a_run_ends() {
    let server = Server::start();
    // Short sleeps: Python does not notice an interrupt that arrives just before a long sleep until the sleep ends.
    let code = "import time\ntry:\n  print('up', flush=True)\n  while True: time.sleep(0.1)\nexcept KeyboardInterrupt: print('caught')";
    for (number, rest, exit_code) in [(libc::SIGINT, "caught\n", 0), (libc::SIGTERM, "", 2)] {
        let mut child = server.command(&["run", "-t", "base", "-c", code]).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 3]).unwrap();
        signal(child.id(), number);
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!((said.as_str(), child.wait().unwrap().code()), (rest, Some(exit_code)));
        assert_eq!(server.ok(&["ls", "-q"]), "", "after signal {number}");
    }
    let panic = "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger";
    let ran = server.sandling(&["run", "-t", "base", "--language", "bash", "-c", panic]);
    assert_eq!(ran.status.code(), Some(70));
    assert!(text(&ran.stderr).starts_with("sandling: guest died"), "{}", text(&ran.stderr));
    assert_eq!(server.ok(&["ls", "-q"]), "");
}

#[test]
fn run_works_locally_after_the_server_was_killed() {
    let server = Server::start();
    server.kill();
    assert!(server.home.path().join("server").exists(), "a killed server cannot withdraw its address");
    assert_eq!(server.ok(&["run", "-t", "base", "-c", "print(6 * 7)"]), "42\n");
    assert!(server.refused(&["ls"]).contains("sandling serve"));
    let started = Instant::now();
    let left = || std::fs::read_dir(server.home.path().join("sandboxes")).map_or(0, Iterator::count);
    while left() > 0 && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(left(), 0);
}
