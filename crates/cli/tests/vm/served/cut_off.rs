//! A server that is killed during an operation loses nothing that it acknowledged and leaves nothing half done.

use std::path::Path;
use std::time::Duration;

use super::server::Server;

const DELAYS_MS: [u64; 3] = [15, 60, 180];

/// Starts a command, kills the server during it, and starts a new server.
fn kill_during(server: &mut Server, delay_ms: u64, arguments: &[&str]) {
    let mut command = server.command(arguments).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(delay_ms));
    server.kill();
    command.wait().unwrap();
    server.start_again();
}

/// A server and a sandbox that records every step in a file.
struct Witness {
    server: Server,
    sandbox: String,
    lines: String,
}

impl Witness {
    fn new(options: &[&str]) -> Self {
        let server = Server::start_with(&["--standbys", "0"]);
        let sandbox = server.ok(&[&["create", "-t", "base", "--ttl", "1h"], options].concat()).trim().to_owned();
        server.ok(&["exec", "-c", "head -c 20000000 /dev/urandom > /dev/shm/ballast", &sandbox]);
        Self { server, sandbox, lines: String::new() }
    }

    /// Appends a line, which must be in the file from now on.
    fn record(&mut self, what: &str) {
        self.server.ok(&["exec", "-c", &format!("echo {what} >> /root/file; sync"), &self.sandbox]);
        self.lines += &format!("{what}\n");
    }

    #[track_caller]
    fn assert_unchanged(&self, when: &str) {
        assert_eq!(self.read(), self.lines, "{when}");
    }

    fn read(&self) -> String {
        self.server.ok(&["exec", "-c", "cat /root/file", &self.sandbox])
    }
}

#[test]
fn killing_the_server_during_fork_hibernate_or_wake_loses_nothing() {
    let mut witness = Witness::new(&[]);
    for delay_ms in DELAYS_MS {
        for verb in ["fork", "hibernate", "wake"] {
            let when = format!("{verb}, after {delay_ms} ms");
            witness.record(&when);
            let id = witness.sandbox.clone();
            if verb == "wake" {
                witness.server.ok(&["hibernate", &id]);
            }
            kill_during(&mut witness.server, delay_ms, &[verb, &id]);
            witness.assert_unchanged(&when);
            for other in witness.server.ok(&["ls", "-q"]).lines().filter(|other| *other != id) {
                // If the child exists, it must be complete.
                assert_eq!(witness.server.ok(&["exec", "-c", "cat /root/file", other]), witness.lines, "{when}");
                witness.server.ok(&["rm", other]);
            }
        }
    }
    let child = witness.server.ok(&["fork", &witness.sandbox]);
    assert_eq!(witness.server.ok(&["exec", "-c", "cat /root/file", child.trim()]), witness.lines);
}

#[test]
fn killing_the_server_during_a_rewind_leaves_the_old_or_the_new_state() {
    let mut witness = Witness::new(&[]);
    witness.record("before");
    let id = witness.sandbox.clone();
    witness.server.ok(&["checkpoint", "create", "--name", "good", &id]);
    witness.record("after");
    for delay_ms in DELAYS_MS {
        kill_during(&mut witness.server, delay_ms, &["rewind", &id, "--to", "good"]);
        let read = witness.read();
        assert!(read == "before\nafter\n" || read == "before\n", "after {delay_ms} ms: {read:?}");
        if read == "before\n" {
            witness.server.ok(&["exec", "-c", "echo after >> /root/file; sync", &id]);
        }
    }
    witness.server.ok(&["rewind", &id, "--to", "good"]);
    assert_eq!(witness.read(), "before\n");
}

#[test]
fn killing_the_server_during_export_import_or_clone_leaves_nothing_incomplete() {
    let mut witness = Witness::new(&[]);
    witness.record("saved");
    let snapshot = witness.server.ok(&["snapshot", "create", &witness.sandbox]).trim().to_owned();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (whole, torn) = (at("whole"), at("torn"));
    witness.server.ok(&["snapshot", "export", &snapshot, &whole]);
    let server = &mut witness.server;
    server.ok(&["volume", "create", "data", "--size", "64"]);
    let writer = server.ok(&["create", "-t", "base", "--volume", "data:/data"]);
    server.ok(&["exec", "-c", "head -c 30000000 /dev/urandom > /data/file; sync", writer.trim()]);
    server.ok(&["rm", writer.trim()]);
    for delay_ms in DELAYS_MS {
        kill_during(server, delay_ms, &["snapshot", "export", &snapshot, &torn]);
        if Path::new(&torn).exists() {
            std::fs::remove_file(&torn).unwrap();
        }
        kill_during(server, delay_ms, &["snapshot", "import", &whole]);
        for listed in server.json(&["snapshot", "ls", "--json"]).as_array().unwrap() {
            let id = listed["id"].as_str().unwrap();
            server.ok(&["snapshot", "export", id, &at("again")]);
            if id != snapshot {
                server.ok(&["snapshot", "rm", id]);
            }
        }
        kill_during(server, delay_ms, &["volume", "clone", "data", "copy"]);
        let listed = server.ok(&["volume", "ls"]);
        if listed.contains("copy") {
            let mounts = ["create", "-t", "base", "--volume", "data:/a:ro", "--volume", "copy:/b:ro"];
            let reader = server.ok(&mounts);
            server.ok(&["exec", "-c", "cmp /a/file /b/file", reader.trim()]);
            server.ok(&["rm", reader.trim()]);
            server.ok(&["volume", "rm", "copy"]);
        }
    }
    server.ok(&["volume", "clone", "data", "copy"]);
    witness.assert_unchanged("at the end");
}
