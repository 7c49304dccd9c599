//! Where the server of a home listens, for commands that look for it.
//!
//! A server writes its address to the file `server` in its home and keeps that file locked. While it ends, the file is
//! empty: it takes no requests any more, and has its sandboxes still. The kernel lets the lock go however the server
//! ends, so a file that nobody holds is stale, whatever stands in it: the port may be somebody else's by now, and must
//! not be sent a token.

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
/// How long a server may take to end: twice what its last requests are given.
const END_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// Somebody who looks holds the lock for a moment, too.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// A server's word that it can be reached. Dropped, it is taken back.
#[derive(Debug)]
pub struct Announcement {
    path: PathBuf,
    lock: File,
}

impl Announcement {
    /// Announces a server, unless another one of this home is announced.
    pub fn make(home: &Home, listens: SocketAddr) -> io::Result<Option<Self>> {
        let path = home.root().join(FILE);
        for _ in 0..TRIES {
            let mut file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            // One that ended just now may have removed the file before we had its lock.
            if locked.is_ok() && is_at(&file, &path) {
                file.set_len(0)?;
                writeln!(file, "http://{}", reachable(listens))?;
                return Ok(Some(Self { path, lock: file }));
            }
            match locked {
                Ok(()) | Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_TRIES),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Takes the address back, and still holds the place: whoever comes next waits until the sandboxes are free.
    pub fn close(&self) {
        // Where that fails, whoever looks is turned away by the server itself.
        let _ = self.lock.set_len(0);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Still under the lock. A file that stays is stale, and is known to be.
        let _ = fs::remove_file(&self.path);
    }
}

/// The address of this home's server, if one takes requests now.
pub fn find(home: &Home) -> io::Result<Option<String>> {
    Ok(held(home)?.filter(|address| !address.is_empty()))
}

/// Waits while this home's server ends: it has its sandboxes until then, and who starts before that gets none of them.
pub async fn until_ended(home: &Home) {
    let ended = async {
        while held(home).is_ok_and(|said| said.is_some_and(|address| address.is_empty())) {
            tokio::time::sleep(POLL).await;
        }
    };
    let _ = tokio::time::timeout(END_WITHIN, ended).await;
}

/// What this home's server says, if there is one.
fn held(home: &Home) -> io::Result<Option<String>> {
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

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(one), Ok(other)) if identity(&one) == identity(&other))
}

/// A server that listens everywhere is reached from here by the loopback address.
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
    fn a_server_is_found_while_it_lives_and_not_afterwards() {
        let (_dir, home) = home();
        assert_eq!(find(&home).unwrap(), None);
        let said = Announcement::make(&home, "127.0.0.1:4242".parse().unwrap()).unwrap().unwrap();
        assert_eq!(find(&home).unwrap().as_deref(), Some("http://127.0.0.1:4242"));
        drop(said);
        assert_eq!(find(&home).unwrap(), None);
        assert!(!home.root().join(FILE).exists());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_while_a_server_ends_waits_for_it() {
        let (_dir, home) = home();
        until_ended(&home).await;
        let said = Announcement::make(&home, "127.0.0.1:4242".parse().unwrap()).unwrap().unwrap();
        until_ended(&home).await;
        said.close();
        assert_eq!(find(&home).unwrap(), None);
        let waited = async {
            let began = tokio::time::Instant::now();
            until_ended(&home).await;
            began.elapsed()
        };
        let (waited, ()) = tokio::join!(waited, async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(said);
        });
        assert!((5..10).contains(&waited.as_secs()), "{waited:?}");
    }

    #[test]
    fn a_file_that_a_dead_server_left_is_stale_and_the_next_server_takes_it() {
        let (_dir, home) = home();
        fs::write(home.root().join(FILE), "http://127.0.0.1:1\nmore than the next one writes, by far\n").unwrap();
        assert_eq!(find(&home).unwrap(), None);
        let _said = Announcement::make(&home, "[::]:4242".parse().unwrap()).unwrap().unwrap();
        assert_eq!(find(&home).unwrap().as_deref(), Some("http://[::1]:4242"));
    }

    #[test]
    fn the_first_of_two_servers_keeps_the_word() {
        let (_dir, home) = home();
        let _first = Announcement::make(&home, "0.0.0.0:1".parse().unwrap()).unwrap().unwrap();
        assert!(Announcement::make(&home, "127.0.0.1:2".parse().unwrap()).unwrap().is_none());
        assert_eq!(find(&home).unwrap().as_deref(), Some("http://127.0.0.1:1"));
    }
}
