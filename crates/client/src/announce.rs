//! Announces a server's address in its home, so that commands find it.
//!
//! A server writes its address to the file `server` in its home and keeps the file locked. While it shuts down, the
//! file is empty: the server takes no more requests but still owns its sandboxes. The kernel releases the lock however
//! the server ends, so an unlocked file is stale. Its address is then ignored, because another program may use the port
//! by now and must not receive a token.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sandling_wire::Home;

const FILE: &str = "server";
/// How long a server may take to shut down: twice the time that its last requests get.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// Retries, because a process that looks for the server also holds the lock briefly.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(10);

/// The announcement of a server. Dropping it withdraws the address.
#[derive(Debug)]
pub struct Announcement {
    path: PathBuf,
    lock: File,
}

impl Announcement {
    /// Announces a server. Returns `None` if another server of this home is announced.
    pub fn publish(home: &Home, listens: SocketAddr) -> io::Result<Option<Self>> {
        let path = home.root().join(FILE);
        for _ in 0..LOCK_ATTEMPTS {
            let mut file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            // A server that just ended may have removed the file before we locked it.
            if locked.is_ok() && is_same_file(&file, &path) {
                file.set_len(0)?;
                writeln!(file, "http://{}", reachable(listens))?;
                return Ok(Some(Self { path, lock: file }));
            }
            match locked {
                Ok(()) | Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_RETRY_DELAY),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Withdraws the address but keeps the lock: the next server waits until the sandboxes are released.
    pub fn close(&self) {
        // If this fails, clients still find the server, and it refuses their requests.
        let _ = self.lock.set_len(0);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // The lock is still held. If the file remains, it is unlocked and therefore stale.
        let _ = fs::remove_file(&self.path);
    }
}

/// The address of this home's server, if it accepts requests.
pub fn find(home: &Home) -> io::Result<Option<String>> {
    Ok(announced(home)?.filter(|address| !address.is_empty()))
}

/// Waits while this home's server shuts down. Until then it owns its sandboxes, and a new server cannot take them over.
pub async fn wait_for_shutdown(home: &Home) {
    let ended = async {
        while announced(home).is_ok_and(|said| said.is_some_and(|address| address.is_empty())) {
            tokio::time::sleep(POLL).await;
        }
    };
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await;
}

/// The content of the announcement, or `None` if no server holds it.
fn announced(home: &Home) -> io::Result<Option<String>> {
    let mut file = match File::open(home.root().join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {}
        Ok(()) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let mut address = String::new();
    file.read_to_string(&mut address)?;
    Ok(Some(address.trim().to_owned()))
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(one), Ok(other)) if identity(&one) == identity(&other))
}

/// Replaces an unspecified address by the loopback address, which works from this machine.
fn reachable(listens: SocketAddr) -> SocketAddr {
    let ip = match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listens.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        (dir, home)
    }

    #[test]
    fn a_server_is_found_only_while_it_runs() {
        let (_dir, home) = home();
        assert_eq!(find(&home).unwrap(), None);
        let said = Announcement::publish(&home, "127.0.0.1:4242".parse().unwrap()).unwrap().unwrap();
        assert_eq!(find(&home).unwrap().as_deref(), Some("http://127.0.0.1:4242"));
        drop(said);
        assert_eq!(find(&home).unwrap(), None);
        assert!(!home.root().join(FILE).exists());
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_server_waits_while_the_old_one_shuts_down() {
        let (_dir, home) = home();
        wait_for_shutdown(&home).await;
        let said = Announcement::publish(&home, "127.0.0.1:4242".parse().unwrap()).unwrap().unwrap();
        wait_for_shutdown(&home).await;
        said.close();
        assert_eq!(find(&home).unwrap(), None);
        let waited = async {
            let began = tokio::time::Instant::now();
            wait_for_shutdown(&home).await;
            began.elapsed()
        };
        let (waited, ()) = tokio::join!(waited, async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(said);
        });
        assert!((5..10).contains(&waited.as_secs()), "{waited:?}");
    }

    #[test]
    fn the_file_of_a_dead_server_is_stale_and_reused() {
        let (_dir, home) = home();
        fs::write(home.root().join(FILE), "http://127.0.0.1:1\nmore than the next one writes, by far\n").unwrap();
        assert_eq!(find(&home).unwrap(), None);
        let _said = Announcement::publish(&home, "[::]:4242".parse().unwrap()).unwrap().unwrap();
        assert_eq!(find(&home).unwrap().as_deref(), Some("http://[::1]:4242"));
    }

    #[test]
    fn the_first_of_two_servers_stays_announced() {
        let (_dir, home) = home();
        let _first = Announcement::publish(&home, "0.0.0.0:1".parse().unwrap()).unwrap().unwrap();
        assert!(Announcement::publish(&home, "127.0.0.1:2".parse().unwrap()).unwrap().is_none());
        assert_eq!(find(&home).unwrap().as_deref(), Some("http://127.0.0.1:1"));
    }
}
