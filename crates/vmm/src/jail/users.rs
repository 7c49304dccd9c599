//! The user of a machine: each one that runs has a user and a group id of its own.
//!
//! A caller that is root takes ids from [`DEFAULT_USERS`], or from root's range in `/etc/subuid` and `/etc/subgid` if
//! the operator has put one there. Any other caller takes them from its own ranges in those files, if `newuidmap` and
//! `newgidmap` are installed. Without them the machine runs as the caller, and the boundary says so.
//!
//! The launcher claims an id by binding a Unix socket to a name that contains it, in the host's abstract namespace.
//! The supervisor keeps that socket. So an id is never used twice at a time, whichever engine asks, and the kernel
//! frees it when the supervisor ends. There is no list that could be lost or become stale.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{geteuid, getgroups, getuid};

use super::spec::{Spec, Step, StepError};

/// The user and group ids that root's machines get unless the operator has chosen others.
const DEFAULT_USERS: Range<u32> = 700_000..765_536;

const ROOT: u32 = 0;

/// The ids that machines may have. A machine with the user `users.start + n` has the group `first_group + n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    users: Range<u32>,
    first_group: u32,
}

/// A user and a group that no other machine has as long as this lives.
#[derive(Debug)]
pub(crate) struct OwnUser {
    pub uid: u32,
    pub gid: u32,
    _claim: OwnedFd,
}

/// The programs that let an ordinary user use its subordinate ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapTools {
    pub newuidmap: PathBuf,
    pub newgidmap: PathBuf,
}

/// As which user a machine runs.
#[derive(Debug)]
pub(super) enum MachineUser {
    /// As one of root's, because the caller is root.
    OfRoot(OwnUser),
    /// As a subordinate user of the caller.
    Subordinate(OwnUser, MapTools),
    /// As the caller, who is not root.
    Caller,
}

impl MachineUser {
    pub fn choose(spec: &Spec) -> Result<Self, StepError> {
        const CLAIM: &str = "claiming a user id for the machine";
        if geteuid().is_root() {
            return Pool::of_root().claim(&spec.directory).step(CLAIM).map(Self::OfRoot);
        }
        match Pool::of_this_user() {
            Ok((pool, tools)) if !spec.program.kvm || others_can_open_kvm() => {
                Ok(Self::Subordinate(pool.claim(&spec.directory).step(CLAIM)?, tools))
            }
            _ => Ok(Self::Caller),
        }
    }
}

impl MapTools {
    fn find() -> Result<Self, String> {
        let find = |name: &str| {
            let places = ["/usr/bin", "/bin", "/usr/local/bin"].map(|place| Path::new(place).join(name));
            places.into_iter().find(|path| path.exists()).ok_or_else(|| format!("{name} is not installed"))
        };
        Ok(Self { newuidmap: find("newuidmap")?, newgidmap: find("newgidmap")? })
    }
}

impl Pool {
    /// The ids of a caller that is root.
    pub fn of_root() -> Self {
        Self::configured("root", ROOT)
            .filter(|pool| !pool.contains_root())
            .unwrap_or(Self { users: DEFAULT_USERS, first_group: DEFAULT_USERS.start })
    }

    /// The ids of this process's user, who is not root, and the programs by which it can use them; or why it has none.
    pub fn of_this_user() -> Result<(Self, MapTools), String> {
        let tools = MapTools::find()?;
        let uid = getuid().as_raw();
        let name = name_of(uid, &fs::read_to_string("/etc/passwd").unwrap_or_default()).unwrap_or_default();
        let pool = Self::configured(&name, uid).filter(|pool| !pool.contains_root());
        let pool = pool.ok_or("this user has no range of its own in /etc/subuid and /etc/subgid")?;
        Ok((pool, tools))
    }

    fn configured(name: &str, uid: u32) -> Option<Self> {
        let range = |path| first_range(&fs::read_to_string(path).ok()?, name, uid);
        let (users, groups) = (range("/etc/subuid")?, range("/etc/subgid")?);
        let count = users.len().min(groups.len()) as u32;
        Some(Self { users: users.start..users.start + count, first_group: groups.start })
    }

    fn contains_root(&self) -> bool {
        self.users.contains(&ROOT) || self.first_group == ROOT
    }

    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Claims ids that are free. The search begins at a place that depends on the machine's directory, so that ids are
    /// rarely used again soon.
    pub fn claim(&self, machine: &Path) -> io::Result<OwnUser> {
        let mut hasher = DefaultHasher::new();
        machine.hash(&mut hasher);
        let count = self.users.len() as u64;
        let first = hasher.finish() % count.max(1);
        for step in 0..count {
            let offset = ((first + step) % count) as u32;
            let uid = self.users.start + offset;
            if let Some(claim) = claim(uid)? {
                return Ok(OwnUser { uid, gid: self.first_group + offset, _claim: claim });
            }
        }
        Err(io::Error::other(format!("all {count} user ids from {} on are in use", self.users.start)))
    }
}

/// Claims one user id; `None` if it is in use.
pub(crate) fn claim(uid: u32) -> io::Result<Option<OwnedFd>> {
    let name = format!("sandling-user-{uid}");
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    match bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) => Ok(Some(socket)),
        Err(rustix::io::Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a user without other rights than this process's groups could open `/dev/kvm`.
pub(crate) fn others_can_open_kvm() -> bool {
    const READ_WRITE: u32 = 0o6;
    let Ok(device) = fs::metadata("/dev/kvm") else { return false };
    let is_member = getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == device.gid()));
    device.mode() & READ_WRITE == READ_WRITE || is_member && (device.mode() >> 3) & READ_WRITE == READ_WRITE
}

/// The first range of this user in the text of `/etc/subuid` or `/etc/subgid`. Lines name the user or give its id.
fn first_range(text: &str, name: &str, uid: u32) -> Option<Range<u32>> {
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let (user, start, count) = (fields.next()?, fields.next()?, fields.next()?);
        let is_user = !user.is_empty() && (user == name || user.parse() == Ok(uid));
        let (start, count) = (start.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        let end = start.checked_add(count)?;
        (is_user && count > 0).then_some(start..end)
    })
}

/// The name of a user in the text of `/etc/passwd`.
fn name_of(uid: u32, passwd: &str) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(users: Range<u32>) -> Pool {
        Pool { first_group: users.start + 1_000_000, users }
    }

    #[test]
    fn no_id_is_given_out_twice_until_it_is_free_again() {
        let pool = pool(3_000_000_000..3_000_000_008);
        let mut claimed: Vec<_> = (0..8).map(|_| pool.claim(Path::new("/the/same/machine")).unwrap()).collect();
        let mut ids: Vec<_> = claimed.iter().map(|user| (user.uid, user.gid)).collect();
        ids.sort_unstable();
        let expected: Vec<_> = (0..8).map(|n| (3_000_000_000 + n, 3_001_000_000 + n)).collect();
        assert_eq!(ids, expected);
        let error = pool.claim(Path::new("/another")).unwrap_err();
        assert!(error.to_string().contains("all 8 user ids from 3000000000 on are in use"), "{error}");
        let freed = claimed.swap_remove(3).uid;
        // A process that another test is just starting has a copy of the claim until it executes its program.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let again = loop {
            match pool.claim(Path::new("/another")) {
                Ok(user) => break user.uid,
                Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
            }
        };
        assert_eq!(again, freed);
    }

    #[test]
    fn two_machines_whose_directories_have_the_same_hash_get_different_users() {
        let pool = pool(3_000_100_000..3_000_165_536);
        let first = pool.claim(Path::new("/a")).unwrap();
        let second = pool.claim(Path::new("/a")).unwrap();
        assert_ne!(first.uid, second.uid);
    }

    #[test]
    fn a_range_is_found_by_name_or_by_number() {
        let text = "# comment\nroot:100000:65536\nbroken:x:1\n1000:200000:65536\nann:300000:10\nann:400000:10\n";
        assert_eq!(first_range(text, "root", 0), Some(100_000..165_536));
        assert_eq!(first_range(text, "bob", 1000), Some(200_000..265_536));
        assert_eq!(first_range(text, "ann", 1001), Some(300_000..300_010));
        assert_eq!(first_range(text, "broken", 5), None);
        assert_eq!(first_range(text, "", 7), None);
        assert_eq!(first_range("ann:4294967290:10\nann:5:0\n", "ann", 1), None, "beyond the last id, or empty");
    }

    #[test]
    fn a_user_has_a_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nann:x:1001:1001::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1001, passwd).as_deref(), Some("ann"));
        assert_eq!(name_of(1002, passwd), None);
    }
}
