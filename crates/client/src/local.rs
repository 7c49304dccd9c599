//! A server of this user's own, started where there is none.
//!
//! The SDKs do the same: `local-server.lock` in the home is held while one looks or starts, so that many at once start
//! one. What is started here ends by itself when nobody has used it for a while; its log is `local-server.log`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sandling_wire::Home;

use crate::announce;
use crate::error::ClientError;
use crate::http::Client;

const LOCK: &str = "local-server.lock";
const LOG: &str = "local-server.log";
const START_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// How long a server that was started here stays without work.
const IDLE_EXIT: Duration = Duration::from_secs(600);
/// A server that somebody restarts is back by then.
const BACK_WITHIN: Duration = Duration::from_secs(10);
/// What of a log is shown.
const SHOWN: usize = 2000;

impl Client {
    /// A client of the server that there is, else of one that is started now.
    pub async fn find_or_start() -> Result<Self, ClientError> {
        if let Some(client) = Self::find()? {
            return Ok(client);
        }
        let home = Home::from_environment().ok_or(ClientError::NoServer)?;
        start(&home).await?;
        Self::need()
    }

    /// The same for a server that could not be reached. Its sandboxes go on without it, and only the one that comes after
    /// it takes them over, so it has some time to come back before another is started.
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
        match tokio::time::timeout(BACK_WITHIN, back).await {
            Ok(found) => found,
            Err(_) => Self::find_or_start().await,
        }
    }
}

async fn start(home: &Home) -> Result<(), ClientError> {
    let failed = |source| ClientError::Home { what: "the home", source };
    fs::create_dir_all(home.root()).map_err(failed)?;
    let lock = File::create(home.root().join(LOCK)).map_err(failed)?;
    take(&lock).await.map_err(failed)?;
    // Somebody else may have started one while we waited.
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
                return Err(ClientError::NotStarted { said: said(home) });
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let in_time = tokio::time::timeout(START_WITHIN, announced).await;
    in_time.unwrap_or_else(|_| Err(ClientError::NotStarted { said: said(home) }))
}

async fn take(lock: &File) -> io::Result<()> {
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => tokio::time::sleep(POLL).await,
            Err(error) => return Err(error.into()),
        }
    }
}

fn spawn(home: &Home) -> io::Result<Child> {
    let log = OpenOptions::new().create(true).write(true).truncate(true).open(home.root().join(LOG))?;
    Command::new(std::env::current_exe()?)
        .args(["serve", "--listen", "127.0.0.1:0", "--idle-exit"])
        .arg(IDLE_EXIT.as_secs().to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir(home.root())
        // A Ctrl-C in our terminal is not meant for it.
        .process_group(0)
        .spawn()
}

fn said(home: &Home) -> String {
    let text = fs::read_to_string(home.root().join(LOG)).unwrap_or_default();
    let text = text.trim();
    let start = text.ceil_char_boundary(text.len().saturating_sub(SHOWN));
    if text.is_empty() { "it said nothing".to_owned() } else { text[start..].to_owned() }
}
