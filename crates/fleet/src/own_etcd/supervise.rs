//! Starts etcd, starts it again when it dies, and ends it with the server.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::confine::ARGUMENT;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// An etcd that ran for this long starts again without a longer pause.
const STABLE_AFTER: Duration = Duration::from_secs(60);
const END_WITHIN: Duration = Duration::from_secs(5);
const COMPACT_EVERY: &str = "5m";
/// In bytes. etcd refuses writes when its data are larger.
pub const QUOTA: u64 = 4 << 30;

#[derive(Debug, Clone)]
pub struct EtcdSettings {
    /// A program that calls [`super::main`] if its first argument is [`super::ARGUMENT`].
    pub launcher: PathBuf,
    /// Where etcd keeps its data. Certificates lie there, too: `ca.pem`, `server.pem` and `server.key`.
    pub directory: PathBuf,
    pub listen: SocketAddr,
}

/// etcd as a child of this process. Dropping this ends it.
pub struct OwnEtcd {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Where etcd is installed.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("etcd")).find(|program| program.is_file())
}

impl OwnEtcd {
    /// The directory must exist.
    pub fn start(settings: EtcdSettings) -> io::Result<Self> {
        let program = program().ok_or_else(|| io::Error::other("the program etcd is not installed"))?;
        let (stop, stopped) = mpsc::channel();
        // The kernel ends etcd when the thread that started it ends, so this one does nothing else.
        let thread = std::thread::Builder::new()
            .name("etcd".to_owned())
            .spawn(move || supervise(&settings, &program, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for OwnEtcd {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn supervise(settings: &EtcdSettings, program: &Path, stopped: &mpsc::Receiver<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        let ended = start(settings, program).and_then(|mut child| wait_or_stop(&mut child, stopped));
        match ended {
            Ok(None) => return,
            Ok(Some(status)) => tracing::error!(%status, ?pause, "the fleet's etcd has ended; it starts again"),
            Err(error) => tracing::error!(%error, ?pause, "the fleet's etcd does not start; the server tries again"),
        }
        if started.elapsed() > STABLE_AFTER {
            pause = FIRST_PAUSE;
        }
        if !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How etcd ended, or `None` after it was stopped.
fn wait_or_stop(child: &mut Child, stopped: &mpsc::Receiver<()>) -> io::Result<Option<ExitStatus>> {
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK_EVERY) {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
    }
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let end = Instant::now() + END_WITHIN;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

fn start(settings: &EtcdSettings, program: &Path) -> io::Result<Child> {
    let url = format!("https://{}", settings.listen);
    let mut command = Command::new(&settings.launcher);
    command.arg(ARGUMENT).args([std::process::id().to_string(), settings.listen.port().to_string()]).arg(program);
    command.args(["--name", "engine", "--data-dir", "data"]);
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    // There is one member, so nobody connects to the advertised address.
    command.args(["--listen-peer-urls", "unix://peer:0", "--initial-advertise-peer-urls", "http://localhost:2380"]);
    command.args(["--initial-cluster", "engine=http://localhost:2380"]);
    command.args(["--client-cert-auth", "--trusted-ca-file", "ca.pem"]);
    command.args(["--cert-file", "server.pem", "--key-file", "server.key"]);
    command.args(["--auto-compaction-mode", "periodic", "--auto-compaction-retention", COMPACT_EVERY]);
    command.args(["--quota-backend-bytes", &QUOTA.to_string()]);
    command.args(["--logger", "zap", "--log-level", "error", "--log-outputs", "stderr"]);
    command.env_clear().current_dir(&settings.directory);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(said) = child.stderr.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                tracing::warn!(line, "the fleet's etcd reports an error");
            }
        });
    }
    Ok(child)
}
