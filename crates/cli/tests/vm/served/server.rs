//! Test servers. The shared one starts with the first test that needs it and stops with the last.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::SANDLING;
use crate::harness::templates;

/// Longer than any operation takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// In the home.
const LOG: &str = "test.log";

pub struct Server {
    pub home: TempDir,
    child: Mutex<Child>,
    sandbox: OnceLock<String>,
}

impl Server {
    /// The shared server, with a sandbox that tests may use but not remove.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start());
        *shared = Arc::downgrade(&server);
        server
    }

    /// A separate server for one test.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let home = TempDir::new().unwrap();
        let child = serve(&home, options);
        Self { home, child: Mutex::new(child), sandbox: OnceLock::new() }
    }

    /// Starts a new server after the old one was killed.
    pub fn start_again(&mut self) {
        let _ = std::fs::remove_file(self.home.path().join("server"));
        self.child = Mutex::new(serve(&self.home, &["--standbys", "0"]));
    }

    /// Starts a new server while the old one shuts down. Returns the old one's exit status.
    pub fn replace(&mut self) -> ExitStatus {
        signal(self.child.lock().unwrap().id(), libc::SIGTERM);
        while !self.address().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let next = serve(&self.home, &["--standbys", "0"]);
        let mut old = std::mem::replace(&mut self.child, Mutex::new(next)).into_inner().unwrap();
        old.wait().unwrap()
    }

    pub fn address(&self) -> String {
        std::fs::read_to_string(self.home.path().join("server")).unwrap().trim().to_owned()
    }

    /// What all servers of this home have logged.
    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join(LOG)).unwrap_or_default()
    }

    pub fn sandbox(&self) -> &str {
        self.sandbox.get_or_init(|| self.ok(&["create", "-t", "base", "--label", "kind=shared"]).trim().to_owned())
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        command(&self.home, arguments)
    }

    pub fn sandling(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.sandling(arguments);
        assert_eq!(ran.status.code(), Some(0), "{arguments:?}: {}\n{}", text(&ran.stderr), self.log());
        text(&ran.stdout)
    }

    /// Sends a request to the API and returns the response.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Value {
        answer(self.ask(method, path, body))
    }

    /// Sends a request to the API without reading the response.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let token = std::fs::read_to_string(self.home.path().join("token")).unwrap();
        let mut stream = TcpStream::connect(self.address().strip_prefix("http://").unwrap()).unwrap();
        let (token, length) = (token.trim(), body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}");
        let body = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        write!(stream, "{head}\r\n{body}").unwrap();
        stream
    }

    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(arguments)).unwrap()
    }

    /// Runs a command that must be refused: a one-line message, exit code 2, nothing on stdout.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let ran = self.sandling(arguments);
        let said = text(&ran.stderr);
        assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(2), ""), "{arguments:?}: {said}");
        assert!(said.starts_with("sandling: ") && said.trim_end().lines().count() == 1, "{arguments:?}: {said}");
        said
    }

    /// Runs a command with this stdin.
    pub fn fed(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let (mut pipe, bytes) = (child.stdin.take().unwrap(), stdin.to_vec());
        let feeding = std::thread::spawn(move || pipe.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        // The command may have exited before reading everything; the output decides.
        let _ = feeding.join().unwrap();
        output
    }

    /// The server's exit status, if it exits before the deadline.
    pub fn ended(&self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            let ended = self.child.lock().unwrap().try_wait().unwrap();
            if ended.is_some() || Instant::now() >= deadline {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        // Sandboxes outlive their server, so remove them.
        let _ = command(&self.home, &["rm", "--all"]).output();
        signal(child.id(), libc::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn serve(home: &TempDir, options: &[&str]) -> Child {
    let arguments = [&["serve", "--listen", "127.0.0.1:0"], options].concat();
    let log = File::options().create(true).append(true).mode(0o600).open(home.path().join(LOG)).unwrap();
    let mut child = command(home, &arguments).stderr(log).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().starts_with("sandling listens on http://127.0.0.1:"));
    let deadline = Instant::now() + PATIENCE;
    while std::fs::read_to_string(home.path().join("server")).map_or(0, |text| text.len()) == 0 {
        assert!(Instant::now() < deadline, "the server did not announce its address");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn command(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(SANDLING);
    command.args(arguments).env("SANDLING_HOME", home.path()).env("SANDLING_TEMPLATES", templates());
    command.env_remove("SANDLING_API").env_remove("SANDLING_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Reads the API's response.
pub fn answer(mut stream: TcpStream) -> Value {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

pub fn signal(pid: u32, number: i32) {
    // SAFETY: plain kill(2) of our own child, which has not been reaped yet.
    unsafe { libc::kill(pid as i32, number) };
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Pseudorandom bytes.
pub fn noise(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}
