//! Starts a local server if none is running, and waits for one that is starting.
//!
//! The SDKs do the same. `local-server.lock` in the home is held during the search and start, so that concurrent
//! processes start only one server. `sandling serve` holds it, too, until it has announced its address. A server that is
//! started here exits when it is idle; its log is `local-server.log`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sandling_wire::Home;

use crate::announce;
use crate::error::ClientError;
use crate::http::Client;

const LOCK: &str = "local-server.lock";
const LOG: &str = "local-server.log";
const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// How long to wait for a server that was started a moment ago, as in `sandling serve & sandling create`.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(1);
/// Idle timeout of a server that was started here.
const IDLE_EXIT: Duration = Duration::from_secs(600);
/// How long to wait for a server that is being restarted.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the log to show in an error.
const MAX_LOG_TAIL: usize = 2000;

/// The mark of a server that is starting. Dropping it removes the mark.
#[derive(Debug)]
pub struct StartMark(#[expect(dead_code, reason = "closing the file unlocks it")] File);

impl StartMark {
    /// Marks this home's server as starting. Returns `None` if the process that starts the server holds the mark.
    pub fn set(home: &Home) -> io::Result<Option<Self>> {
        home.prepare_root()?;
        let lock = private_file(&home.root().join(LOCK))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(lock))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn is_set(home: &Home) -> bool {
        let Ok(lock) = File::open(home.root().join(LOCK)) else { return false };
        matches!(flock(&lock, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
    }
}

impl Client {
    /// A client for the running server. Waits for a server that is starting, and fails if there is none.
    pub async fn require() -> Result<Self, ClientError> {
        let began = Instant::now();
        loop {
            if let Some(client) = Self::find()? {
                return Ok(client);
            }
            let home = Home::from_environment().ok_or(ClientError::NoServer)?;
            let timeout = if StartMark::is_set(&home) { START_TIMEOUT } else { APPEAR_TIMEOUT };
            if began.elapsed() >= timeout {
                return Err(ClientError::NoServer);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// A client for the running server. Starts a server if there is none.
    pub async fn find_or_start() -> Result<Self, ClientError> {
        if let Some(client) = Self::find()? {
            return Ok(client);
        }
        let home = Home::from_environment().ok_or(ClientError::NoServer)?;
        start(&home).await?;
        Self::require().await
    }

    /// The same after the server could not be reached. It first waits for that server to come back, because a restarted
    /// server takes over the sandboxes, which keep running.
    pub async fn find_again() -> Result<Self, ClientError> {
        let back = async {
            loop {
                if let Some(client) = Self::find()?
                    && client.get_raw("/healthz").await.is_ok()
                {
                    return Ok(client);
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(RESTART_TIMEOUT, back).await {
            Ok(found) => found,
            Err(_) => Self::find_or_start().await,
        }
    }
}

async fn start(home: &Home) -> Result<(), ClientError> {
    let failed = |source| ClientError::Home { what: "the home directory", source };
    home.prepare_root().map_err(failed)?;
    let lock = private_file(&home.root().join(LOCK)).map_err(failed)?;
    lock_exclusive(&lock).await.map_err(failed)?;
    // Another process may have started a server while we waited for the lock.
    if announce::find(home).map_err(failed)?.is_some() {
        return Ok(());
    }
    let mut server = spawn(home).map_err(failed)?;
    let announced = async {
        loop {
            if announce::find(home).map_err(failed)?.is_some() {
                return Ok(());
            }
            if server.try_wait().map_err(failed)?.is_some() {
                return Err(ClientError::NotStarted { log: log_tail(home) });
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let in_time = tokio::time::timeout(START_TIMEOUT, announced).await;
    in_time.unwrap_or_else(|_| Err(ClientError::NotStarted { log: log_tail(home) }))
}

/// Creates or empties a file that only its owner can read.
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)
}

async fn lock_exclusive(lock: &File) -> io::Result<()> {
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => tokio::time::sleep(POLL).await,
            Err(error) => return Err(error.into()),
        }
    }
}

fn spawn(home: &Home) -> io::Result<Child> {
    let log = private_file(&home.root().join(LOG))?;
    Command::new(std::env::current_exe()?)
        .args(["serve", "--listen", "127.0.0.1:0", "--idle-exit"])
        .arg(IDLE_EXIT.as_secs().to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir(home.root())
        // Ctrl-C in our terminal must not reach the server.
        .process_group(0)
        .spawn()
}

fn log_tail(home: &Home) -> String {
    let text = fs::read_to_string(home.root().join(LOG)).unwrap_or_default();
    let text = text.trim();
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_LOG_TAIL));
    if text.is_empty() { "(the log is empty)".to_owned() } else { text[start..].to_owned() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_home_has_at_most_one_server_that_starts() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        assert!(!StartMark::is_set(&home));
        let mark = StartMark::set(&home).unwrap().unwrap();
        assert!(StartMark::is_set(&home) && StartMark::set(&home).unwrap().is_none());
        drop(mark);
        assert!(!StartMark::is_set(&home));
    }

    #[test]
    fn a_home_that_a_client_creates_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("share/sandling"));
        home.prepare_root().unwrap();
        private_file(&home.root().join(LOG)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(home.root()), mode(&home.root().join(LOG))), (0o700, 0o600));
    }
}
