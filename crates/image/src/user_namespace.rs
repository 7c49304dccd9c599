//! The user ids of a build: a range without rights on the host, in which a tree has files with several owners.
//!
//! An ordinary user's range is in `/etc/subuid` and `/etc/subgid`. So is root's, if the operator has put one there.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Gid, Signal, Uid, getuid, set_parent_process_death_signal};
use rustix::thread::{
    LinkNameSpaceType, UnshareFlags, move_into_link_name_space, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid, unshare_unsafe,
};

use crate::tool::{Tool, ToolError, is_ordinary_user};

/// The ids of root's builds. Machines that root starts have others.
const ROOTS_RANGE: Range = Range { first: 1_900_000_000, count: 65_536 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
}

/// A program that runs as root of a build's ids, because it handles files with several owners.
pub(crate) fn tool(program: &'static str) -> Result<Tool, ToolError> {
    let namespace = create()?;
    Ok(Tool::new(program).before_start(move || enter(&namespace, Signal::TERM)))
}

/// Creates a user namespace in which the build's ids begin at 0.
pub(crate) fn create() -> Result<OwnedFd, ToolError> {
    let no_ids = |source| ToolError::Run { program: "unshare".to_owned(), source };
    let [users, groups] = ranges()?;
    // The namespace exists as long as a process or a descriptor refers to it. `cat` waits for input that never comes.
    let mut holder = Command::new("cat");
    holder.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: one system call, in a process with one thread.
    unsafe { holder.pre_exec(|| Ok(unshare_unsafe(UnshareFlags::NEWUSER)?)) };
    let mut holder = holder.spawn().map_err(no_ids)?;
    let opened = map(holder.id(), users, groups)
        .and_then(|()| File::open(format!("/proc/{}/ns/user", holder.id())).map_err(no_ids));
    let _ = holder.kill();
    let _ = holder.wait();
    opened.map(OwnedFd::from)
}

/// Becomes root of the namespace. Makes only system calls, so it may run between fork and exec.
pub(crate) fn enter(namespace: impl AsFd, when_parent_dies: Signal) -> io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?;
    set_thread_groups(&[])?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    // A change of the user resets this.
    Ok(set_parent_process_death_signal(Some(when_parent_dies))?)
}

fn map(process: u32, users: Range, groups: Range) -> Result<(), ToolError> {
    for (kind, program, range) in [("uid", "newuidmap", users), ("gid", "newgidmap", groups)] {
        let Range { first, count } = range;
        match is_ordinary_user() {
            // Only this program, which is set-user-ID, may use ids other than the user's own.
            true => {
                let map = [process, 0, first, count].map(|number| number.to_string());
                Tool::new(program).args(map).capture()?;
            }
            false => fs::write(format!("/proc/{process}/{kind}_map"), format!("0 {first} {count}"))
                .map_err(|source| ToolError::NoUserIds { reason: format!("ids from {first} on: {source}") })?,
        }
    }
    Ok(())
}

/// The ranges of users and groups.
fn ranges() -> Result<[Range; 2], ToolError> {
    let name = Tool::new("id").arg("-un").capture()?;
    let found = ["/etc/subuid", "/etc/subgid"].map(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        first_range(&text, name.trim(), getuid().as_raw()).ok_or(path)
    });
    match found {
        [Ok(users), Ok(groups)] => Ok([users, groups]),
        _ if !is_ordinary_user() => Ok([ROOTS_RANGE; 2]),
        [Err(path), _] | [_, Err(path)] => {
            let fix = format!("usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {}", name.trim());
            Err(ToolError::NoUserIds { reason: format!("this user has no range in {path}; `sudo {fix}` adds one") })
        }
    }
}

/// The first range of this user. Lines name the user or give its id.
fn first_range(text: &str, name: &str, uid: u32) -> Option<Range> {
    text.lines().find_map(|line| {
        let [user, first, count] = line.trim().split(':').collect::<Vec<_>>()[..] else { return None };
        let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        let is_own = user == name || user.parse() == Ok(uid);
        (is_own && first > 0 && count > 0 && first.checked_add(count).is_some()).then_some(Range { first, count })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_found_by_name_or_by_number() {
        let text = "ann:100000:65536\nbroken:x:1\n1000:200000:10\nroot:0:65536\n";
        let found = |name, uid| first_range(text, name, uid).map(|range| (range.first, range.count));
        assert_eq!(found("ann", 7), Some((100_000, 65_536)));
        assert_eq!(found("bob", 1000), Some((200_000, 10)));
        assert_eq!(found("broken", 5), None);
        assert_eq!(found("root", 0), None, "a build must not have root's own id");
    }
}
