//! The descriptors of a process, and the steps that make them again.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};

use crate::inherited::{OF_EVERY_MACHINE, STATE_FD};
use crate::jail::{DEVICES, FILES, LAYERS, MEMORY};
use crate::plan::Step;

use super::capture::unknown;

/// The status flags that a resumed process needs.
const STATUS_FLAGS: u64 = (libc::O_ACCMODE | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_APPEND) as u64;
const CREATION_FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
const LAST_STANDARD_STREAM: i32 = 2;

/// Files that are open under another name than they will have in the next jail, by their inodes.
pub(super) struct Renamed<'a> {
    /// Files of the machine's own that have become layers, and the layers' names.
    pub layers: &'a [(u64, String)],
    /// Guest memory.
    pub guest: Vec<u64>,
}

/// The steps that open all descriptors of a process except its standard streams.
pub(super) fn steps(process: &OwnedFd, renamed: &Renamed<'_>) -> io::Result<Vec<Step<String>>> {
    let directory = openat(process, "fd", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let Some(number) = entry?.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if number <= LAST_STANDARD_STREAM {
            continue;
        }
        let link = readlinkat(&directory, number.to_string(), Vec::new())?;
        let mut info = String::new();
        let file = openat(process, format!("fdinfo/{number}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        File::from(file).read_to_string(&mut info)?;
        found.push((number, step(number, &link.to_string_lossy(), &info, renamed)?));
    }
    // Duplicates first: a later step may replace the descriptor that they are made from.
    found.sort_by_key(|(number, step)| (!matches!(step, Step::Duplicate { .. }), *number));
    found.retain(|(number, step)| *number != STATE_FD || !matches!(step, Step::Duplicate { .. }));
    Ok(found.into_iter().map(|(_, step)| step).collect())
}

fn step(number: i32, link: &str, info: &str, renamed: &Renamed<'_>) -> io::Result<Step<String>> {
    let refused = || unknown("descriptor", link);
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let number_in = |name, radix| field(name).and_then(|text| u64::from_str_radix(text, radix).ok());
    let fd = number as u64;
    let flags = number_in("flags", 8).ok_or_else(refused)? & STATUS_FLAGS;
    // The device state has been read, and its descriptor is free for QEMU to use for something else.
    if OF_EVERY_MACHINE.contains(&number) && number != STATE_FD {
        return Ok(Step::SetFlags { fd, flags });
    }
    match link {
        "anon_inode:[eventfd]" if number_in("eventfd-semaphore", 10).unwrap_or(0) == 0 => {
            let count = number_in("eventfd-count", 16).ok_or_else(refused)?;
            return Ok(Step::EventFd { fd, count, flags: flags & CREATION_FLAGS });
        }
        "anon_inode:[signalfd]" => {
            let mask = number_in("sigmask", 16).ok_or_else(refused)?;
            return Ok(Step::SignalFd { fd, mask, flags: flags & CREATION_FLAGS });
        }
        "anon_inode:[eventpoll]" if field("tfd").is_none() => {
            return Ok(Step::Epoll { fd, flags: flags & libc::O_CLOEXEC as u64 });
        }
        // A connection: the jail gives the new process one whose other end is gone.
        _ if link.starts_with("socket:") => return Ok(Step::Duplicate { from: STATE_FD as u64, fd }),
        _ if link.starts_with(LAYERS) || DEVICES.contains(&link) => {
            return Ok(Step::OpenDescriptor { fd, flags, path: link.to_owned() });
        }
        _ => {}
    }
    let inode = number_in("ino", 10).unwrap_or(0);
    if let Some((_, name)) = renamed.layers.iter().find(|(layer, _)| *layer == inode) {
        return Ok(Step::OpenDescriptor { fd, flags: flags & CREATION_FLAGS, path: format!("{LAYERS}/{name}") });
    }
    // The supervisor opened guest memory for QEMU, which only maps it.
    if renamed.guest.contains(&inode) {
        return Ok(Step::OpenDescriptor { fd, flags: flags & CREATION_FLAGS, path: MEMORY.to_owned() });
    }
    // A space is part of " (deleted)".
    let is_own = link.strip_prefix(FILES).is_some_and(|name| name.starts_with('/') && !name.contains(' '));
    if is_own { Ok(Step::OpenDescriptor { fd, flags, path: link.to_owned() }) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING_RENAMED: Renamed<'_> = Renamed { layers: &[], guest: Vec::new() };

    fn of(link: &str, info: &str) -> Option<Step<String>> {
        step(20, link, info, &NOTHING_RENAMED).ok()
    }

    #[test]
    fn known_kinds_of_descriptors_are_made_again() {
        let eventfd = "flags:\t02004002\neventfd-count:               1f\n";
        assert_eq!(
            of("anon_inode:[eventfd]", eventfd),
            Some(Step::EventFd { fd: 20, count: 0x1f, flags: 0o2_004_000 })
        );
        let signalfd = "flags:\t02004002\nsigmask:\t0000000000000200\n";
        let made = Step::SignalFd { fd: 20, mask: 0x200, flags: 0o2_004_000 };
        assert_eq!(of("anon_inode:[signalfd]", signalfd), Some(made));
        let closed = Step::Duplicate { from: STATE_FD as u64, fd: 20 };
        assert_eq!(of("socket:[1]", "flags:\t02\n"), Some(closed));
        let file = Step::OpenDescriptor { fd: 20, flags: 2, path: "/vm/disk".to_owned() };
        assert_eq!(of("/vm/disk", "flags:\t02\nino:\t7\n"), Some(file));
    }

    #[test]
    fn descriptors_with_state_that_is_not_restored_are_refused() {
        let refused = [
            ("anon_inode:[timerfd]", "flags:\t02\n"),
            ("anon_inode:[eventpoll]", "flags:\t02\ntfd:        5 events:       19\n"),
            ("anon_inode:[eventfd]", "flags:\t02\neventfd-count: 1\neventfd-semaphore: 1\n"),
            ("anon_inode:[eventfd]", "flags:\t02\n"),
            ("anon_inode:[signalfd]", "flags:\t02\n"),
            ("pipe:[1]", "flags:\t02\n"),
            ("/memfd:x (deleted)", "flags:\t02\n"),
            ("/vm/gone (deleted)", "flags:\t02\n"),
            ("/vm/disk", ""),
        ];
        for (link, info) in refused {
            assert_eq!(of(link, info), None, "{link}: {info}");
        }
    }
}
