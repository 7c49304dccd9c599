//! A minimal host, which follows the protocol exactly and checks everything that the agent sends.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use sandling_protocol::frame::{self, Decoder};
use sandling_protocol::{
    Event, ExecSpec, Exit, Failure, OnLimit, Outcome, Part, Program, Request, Response, Stdin, StreamId, ToGuest,
    ToHost, generation,
};

/// The longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running agent and its temporary directory; dropping it ends both.
pub struct Agent {
    child: Child,
    dir: tempfile::TempDir,
}

impl Agent {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let child =
            Command::new(env!("CARGO_BIN_EXE_sandling-guest")).arg("--test-socket").arg(&socket).spawn().unwrap();
        let agent = Self { child, dir };
        // The socket exists a moment before the agent listens.
        wait_for(|| UnixStream::connect(&socket).is_ok());
        agent
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connects and greets.
    pub fn connect(&self) -> Host {
        let socket: PathBuf = self.dir.path().join("agent.sock");
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut host =
            Host { stream, decoder: Decoder::new(), streams: HashMap::new(), last: 0, hello: None, generation: 0 };
        host.greet("n1");
        host
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Processes that the test left running are children of the agent; they are killed first.
        for pid in children_of(self.child.id()) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).output();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The children of `pid`.
pub fn children_of(pid: u32) -> Vec<u32> {
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = |pid: u32| -> Option<u32> { status(pid).rsplit(") ").next()?.split(' ').nth(1)?.parse().ok() };
    let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(|child| parent(*child) == Some(pid)).collect()
}

pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Waits until `condition` is true.
pub fn wait_for(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the host has received on a stream.
#[derive(Debug, Default)]
pub struct Heard {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub terminal: Vec<u8>,
    pub results: Vec<u8>,
    pub bytes: Vec<u8>,
    pub entries: Vec<u8>,
    pub events: Vec<Event>,
    /// The credit that the agent has granted.
    pub credit: u64,
    /// Received bytes that were not credited yet.
    pub owed: u32,
    pub next_offset: u64,
    pub outcome: Option<Outcome>,
}

impl Heard {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    pub fn response(self) -> Response {
        match self.outcome {
            Some(Outcome::Ok(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    pub fn failure(self) -> Failure {
        match self.outcome {
            Some(Outcome::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }

    pub fn exit(&self) -> Exit {
        match &self.outcome {
            Some(Outcome::Ok(Response::Exited(exit))) => exit.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub fn received(&self) -> usize {
        self.stdout.len() + self.stderr.len() + self.terminal.len() + self.bytes.len() + self.entries.len()
    }

    pub fn pid(&self) -> Option<u32> {
        self.events.iter().find_map(|event| match event {
            Event::Started { pid, .. } => Some(*pid),
            _ => None,
        })
    }
}

pub struct Host {
    pub stream: UnixStream,
    decoder: Decoder,
    streams: HashMap<StreamId, Heard>,
    last: StreamId,
    hello: Option<String>,
    /// What the agent answered to the last greeting.
    pub generation: u32,
}

impl Host {
    pub fn greet(&mut self, nonce: &str) {
        self.greet_as(generation::CURRENT, nonce);
        assert_eq!(self.generation, generation::CURRENT);
    }

    /// Greets as a host that speaks no newer generation.
    pub fn greet_as(&mut self, generation: u32, nonce: &str) {
        self.streams.clear();
        self.hello = None;
        self.say(&ToGuest::Hello { nonce: nonce.to_owned(), generation }, b"");
        let nonce = Some(nonce.to_owned());
        let deadline = Instant::now() + PATIENCE;
        while self.hello != nonce {
            assert!(Instant::now() < deadline, "no greeting");
            self.listen();
        }
        self.streams.clear();
    }

    pub fn say(&mut self, message: &ToGuest, body: &[u8]) {
        self.stream.write_all(&frame::encode(message, body).unwrap()).unwrap();
    }

    pub fn open(&mut self, request: Request) -> StreamId {
        self.open_with(request, b"")
    }

    pub fn open_with(&mut self, request: Request, body: &[u8]) -> StreamId {
        self.last += 1;
        self.streams.insert(self.last, Heard::default());
        self.say(&ToGuest::Open { stream: self.last, request }, body);
        self.last
    }

    pub fn data(&mut self, stream: StreamId, bytes: &[u8]) {
        self.say(&ToGuest::Data { stream }, bytes);
    }

    pub fn finish(&mut self, stream: StreamId) {
        self.say(&ToGuest::Finish { stream }, b"");
    }

    /// Reads once, without granting credit.
    pub fn listen(&mut self) {
        let mut buffer = [0; 65536];
        let length = match self.stream.read(&mut buffer) {
            Ok(0) => panic!("the agent has hung up"),
            Ok(length) => length,
            Err(_) => return,
        };
        for frame in self.decoder.push::<ToHost>(&buffer[..length]) {
            let frame = frame.unwrap();
            self.heard(frame.message, frame.body);
        }
    }

    fn heard(&mut self, message: ToHost, body: Vec<u8>) {
        match message {
            ToHost::Hello { nonce, generation } => {
                self.generation = generation;
                self.hello = Some(nonce);
            }
            ToHost::Data { stream, part, offset } => {
                assert!(body.len() <= sandling_protocol::CHUNK && !body.is_empty());
                let heard = self.open_stream(stream);
                let is_exec =
                    matches!(part, Part::Stdout | Part::Stderr | Part::Terminal | Part::Results | Part::Value);
                if !is_exec || heard.next_offset != 0 {
                    assert!(offset >= heard.next_offset, "offsets go back");
                }
                heard.next_offset = offset + body.len() as u64;
                heard.owed += body.len() as u32;
                match part {
                    Part::Stdout => heard.stdout.extend(body),
                    Part::Stderr => heard.stderr.extend(body),
                    Part::Terminal => heard.terminal.extend(body),
                    Part::Results | Part::Value => heard.results.extend(body),
                    Part::Bytes => heard.bytes.extend(body),
                    Part::Entries => heard.entries.extend(body),
                }
            }
            ToHost::Event { stream, event } => self.open_stream(stream).events.push(event),
            ToHost::Credit { stream, bytes } => self.open_stream(stream).credit += u64::from(bytes),
            ToHost::End { stream, outcome } => self.open_stream(stream).outcome = Some(outcome),
        }
    }

    /// An open stream. Fails on messages after a stream's end, and on messages for a stream that was never opened.
    fn open_stream(&mut self, stream: StreamId) -> &mut Heard {
        let heard = self.streams.get_mut(&stream).unwrap_or_else(|| panic!("nobody opened {stream}"));
        assert!(heard.outcome.is_none(), "something came after the end of {stream}");
        heard
    }

    pub fn peek(&self, stream: StreamId) -> &Heard {
        &self.streams[&stream]
    }

    /// Grants the agent credit for what it has sent.
    pub fn pay(&mut self, stream: StreamId) {
        let owed = std::mem::take(&mut self.streams.get_mut(&stream).unwrap().owed);
        if owed > 0 {
            self.say(&ToGuest::Credit { stream, bytes: owed }, b"");
        }
    }

    /// Reads and grants credit until a condition holds for a stream.
    pub fn until(&mut self, stream: StreamId, condition: impl Fn(&Heard) -> bool) -> &Heard {
        let deadline = Instant::now() + PATIENCE;
        while !condition(&self.streams[&stream]) {
            let received = self.streams[&stream].received();
            assert!(Instant::now() < deadline, "it did not happen within {PATIENCE:?}; {received} bytes were received");
            self.listen();
            self.pay(stream);
        }
        &self.streams[&stream]
    }

    /// Waits for a stream's end.
    pub fn end(&mut self, stream: StreamId) -> Heard {
        self.until(stream, |heard| heard.outcome.is_some());
        self.streams.remove(&stream).unwrap()
    }

    pub fn ask(&mut self, request: Request) -> Heard {
        let stream = self.open(request);
        self.end(stream)
    }

    pub fn run(&mut self, spec: ExecSpec) -> Heard {
        self.ask(Request::Run(spec))
    }

    pub fn shell(&mut self, line: &str) -> Heard {
        self.run(shell(line))
    }
}

pub fn shell(line: &str) -> ExecSpec {
    spec(Program::Shell(line.to_owned()))
}

pub fn argv(argv: &[&str]) -> ExecSpec {
    spec(Program::Argv(argv.iter().map(|&argument| argument.to_owned()).collect()))
}

pub fn spec(program: Program) -> ExecSpec {
    use std::sync::atomic::{AtomicU32, Ordering};
    static LAST: AtomicU32 = AtomicU32::new(0);
    ExecSpec {
        id: format!("exec-{}", LAST.fetch_add(1, Ordering::Relaxed)),
        program,
        env: Default::default(),
        cwd: Some("/".to_owned()),
        user: None,
        timeout_ms: None,
        output_limit: 10 << 20,
        on_limit: OnLimit::Kill,
        stdin: Stdin::Closed,
        terminal: None,
    }
}

/// Reports that a test is skipped, and what this machine lacks.
pub fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
