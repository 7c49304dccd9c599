//! The audit log, the permissions of the home and the domain, which need no sandbox.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server::PATIENCE;
use crate::SANDLING;

/// A server without templates. It ends with the test.
struct Bare {
    home: PathBuf,
    child: Child,
    dir: Option<TempDir>,
}

impl Bare {
    fn start(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Self::start_in(dir.path().join("home"), options);
        server.dir = Some(dir);
        server
    }

    fn start_in(home: PathBuf, options: &[&str]) -> Self {
        let mut command = Command::new(SANDLING);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(options).env("SANDLING_HOME", &home);
        command.env_remove("SANDLING_TEMPLATES").stdout(Stdio::piped()).stderr(Stdio::inherit());
        // SAFETY: umask(2) is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::umask(0);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines.map_while(Result::ok).find(|line| line.starts_with("the token is in"));
        assert!(listening.is_some(), "the server did not start");
        let announced = home.join("server");
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(&announced).is_ok_and(|address| address.starts_with("http")) {
            assert!(Instant::now() < deadline, "the server did not announce itself");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { home, child, dir: None }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(SANDLING);
        command.args(arguments).env("SANDLING_HOME", &self.home).env_remove("SANDLING_API");
        command.env_remove("SANDLING_TOKEN").output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends the server as an operator does.
    fn stop(mut self) -> (PathBuf, Option<TempDir>) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        (self.home.clone(), self.dir.take())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every file and directory of a home that others can use, except for the programs that machines execute. The content of
/// `templates` has modes of its own, in a directory that is private.
fn open_to_others(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let metadata = fs::metadata(directory).unwrap();
    let name = directory.file_name().unwrap().to_string_lossy();
    let is_program = name.starts_with("preload-") || name.starts_with("resume-");
    if metadata.mode() & 0o077 != 0 && !is_program {
        found.push(format!("{} {:o}", directory.display(), metadata.mode()));
    }
    if metadata.is_dir() && name != "templates" {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        found.extend(entries.flat_map(|path| open_to_others(&path)));
    }
    found
}

#[test]
fn nobody_else_can_read_a_home_whatever_the_umask_is() {
    let server = Bare::start(&["--tls", "self"]);
    server.ok(&["token", "create", "one"]);
    assert_eq!(open_to_others(&server.home), [""; 0]);
    let (home, _dir) = server.stop();
    let planted = [home.join("uploads/default.abc"), home.join("token"), home.join("backup.db")];
    fs::create_dir_all(home.join("uploads")).unwrap();
    for path in &planted {
        fs::write(path, fs::read(path).unwrap_or_default()).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    let doctor = Command::new(SANDLING).args(["doctor", "--json"]).env("SANDLING_HOME", &home).output().unwrap();
    let report = String::from_utf8(doctor.stdout).unwrap();
    assert!(report.contains("has mode 0755 instead of 0700"), "{report}");
    let server = Bare::start_in(home, &[]);
    assert_eq!(open_to_others(&server.home), [""; 0]);
}

#[test]
fn the_audit_log_is_copied_and_tampering_shows() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("audit.jsonl");
    let copy_text = copy.to_str().unwrap().to_owned();
    let server = Bare::start(&["--audit", "required", "--audit-file", &copy_text]);
    for name in ["one", "two", "three"] {
        server.ok(&["token", "create", name]);
    }
    let verified = server.ok(&["audit", "verify", "--json"]);
    assert!(verified.contains("\"change\"") && verified.contains("\"problem\": null"), "{verified}");
    // The end writes what is left.
    let (home, _dir) = server.stop();
    assert_eq!(fs::read_to_string(&copy).unwrap().lines().count(), 3);
    let server = Bare::start_in(home, &[]);
    server.ok(&["audit", "verify", "--file", &copy_text]);
    server.ok(&["audit", "verify", "--file", &copy_text, "--offline"]);
    // Somebody computes the whole chain again. Only the copy shows it.
    let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
                  c.executescript('DELETE FROM audit; DELETE FROM audit_chains; DELETE FROM sqlite_sequence'); c.commit()";
    let forged = Command::new("python3").args(["-c", script]).arg(server.home.join("sandling.db")).status().unwrap();
    assert!(forged.success());
    for name in ["four", "five", "six"] {
        server.ok(&["token", "create", name]);
    }
    server.ok(&["audit", "verify"]);
    let differs = server.run(&["audit", "verify", "--json", "--file", &copy_text]);
    let report = String::from_utf8(differs.stdout).unwrap();
    assert!(!differs.status.success() && report.contains("entry 3 differs from the file"), "{report}");
    // A changed line of the copy shows without the server.
    fs::write(&copy, fs::read_to_string(&copy).unwrap().replacen("token.create", "token.revoke", 1)).unwrap();
    let changed = server.run(&["audit", "verify", "--json", "--file", &copy_text, "--offline"]);
    let report = String::from_utf8(changed.stdout).unwrap();
    assert!(!changed.status.success() && report.contains("entry 1: the entry was changed"), "{report}");
}

#[test]
fn e2bs_clients_get_the_domain_of_a_server_that_has_one() {
    let server = Bare::start(&["--tls", "self"]);
    let shown = server.ok(&["token", "show", "--for", "e2b"]);
    assert!(shown.starts_with("export E2B_DOMAIN=sandling.localhost:"), "{shown}");
    assert!(shown.contains("\nexport SSL_CERT_FILE=") && shown.contains("\nexport E2B_API_KEY=e2b_"), "{shown}");
    assert!(!shown.contains("E2B_API_URL"), "{shown}");
    let plain = Bare::start(&[]);
    assert!(plain.ok(&["token", "show", "--for", "e2b"]).contains("E2B_API_URL=http://127.0.0.1"));
}
