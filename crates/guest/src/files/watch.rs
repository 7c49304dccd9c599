//! Watching a directory or a tree.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use sandling_protocol::{Change, ChangeKind, Event, Response};

use super::path::about;
use super::serve::Stopped;
use crate::worker::WorkerStream;

/// The size of one read of events.
const BUFFER_BYTES: usize = 16 * 1024;

/// The events to report: everything that changes what a reader would see.
fn interesting() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE
        | WatchFlags::MOVE_SELF
        // Uploads are files without a name until they are complete.
        | WatchFlags::EXCL_UNLINK
}

/// Reports changes until the host cancels or the watched path is gone.
///
/// Sends `Connected` when the watch is in place: every later change is reported.
pub fn watch(path: &Path, recursive: bool, work: &mut WorkerStream) -> Result<Response, Stopped> {
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|e| about(path)(e.into()))?;
    let mut watch = Watch { fd, top: path.to_owned(), recursive, paths: HashMap::new() };
    watch.add(path).map_err(about(path))?;
    watch.add_below(path, &mut Vec::new());
    work.event(Event::Connected)?;
    loop {
        if !wait(&watch.fd, work).map_err(about(path))? {
            return Err(Stopped::Cancelled);
        }
        let (changes, gone) = watch.read().map_err(about(path))?;
        for change in changes {
            work.event(Event::Changed(change))?;
        }
        if gone {
            return Ok(Response::Done);
        }
    }
}

/// Waits for events. False if the host cancelled.
fn wait(fd: &OwnedFd, work: &WorkerStream) -> io::Result<bool> {
    let cancelled = work.cancelled_fd();
    let mut fds = [PollFd::new(fd, PollFlags::IN), PollFd::from_borrowed_fd(cancelled, PollFlags::IN)];
    loop {
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            result => {
                result?;
                return Ok(fds[1].revents().is_empty());
            }
        }
    }
}

struct Watch {
    fd: OwnedFd,
    top: PathBuf,
    recursive: bool,
    paths: HashMap<i32, PathBuf>,
}

impl Watch {
    fn add(&mut self, path: &Path) -> io::Result<()> {
        let number = inotify::add_watch(&self.fd, path, interesting())?;
        self.paths.insert(number, path.to_owned());
        Ok(())
    }

    /// Watches the directories below `path`; adds to `found` the entries that were there before the watch.
    fn add_below(&mut self, path: &Path, found: &mut Vec<PathBuf>) {
        if !self.recursive {
            return;
        }
        // A directory that was removed meanwhile, or is unreadable, cannot be watched.
        let Ok(entries) = std::fs::read_dir(path) else {
            return;
        };
        for entry in entries.flatten() {
            found.push(entry.path());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && self.add(&entry.path()).is_ok() {
                self.add_below(&entry.path(), found);
            }
        }
    }

    /// The changes, and whether the watched path itself was removed.
    fn read(&mut self) -> io::Result<(Vec<Change>, bool)> {
        let mut events = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    events.push((event.wd(), event.events(), name));
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() {
                break;
            }
        }
        let mut changes = Vec::new();
        let mut gone = false;
        for (number, flags, name) in events {
            gone |= self.interpret(number, flags, name.as_deref(), &mut changes);
        }
        Ok((changes, gone))
    }

    /// Turns one event into changes. True if the watched path itself was removed.
    fn interpret(&mut self, number: i32, flags: ReadFlags, name: Option<&OsStr>, changes: &mut Vec<Change>) -> bool {
        let mut tell = |path: &Path, kind| changes.push(Change { path: path.to_string_lossy().into_owned(), kind });
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            tell(&self.top, ChangeKind::Overflow);
            return false;
        }
        let Some(parent) = self.paths.get(&number).cloned() else {
            return false;
        };
        if flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&number);
            return false;
        }
        let path = name.map_or_else(|| parent.clone(), |name| parent.join(name));
        let is_top = name.is_none() && path == self.top;
        if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            // The parent's watch reports a directory below.
            if is_top {
                tell(&path, ChangeKind::Removed);
            }
            return is_top;
        }
        if flags.contains(ReadFlags::ATTRIB) && name.is_some_and(names_no_file) && !path.exists() {
            return false;
        }
        if let Some(kind) = kind_of(flags) {
            tell(&path, kind);
        }
        let appeared = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && flags.contains(ReadFlags::ISDIR);
        if appeared && self.recursive && self.add(&path).is_ok() {
            let mut found = Vec::new();
            self.add_below(&path, &mut found);
            found.iter().for_each(|path| tell(path, ChangeKind::Created));
        }
        false
    }
}

/// The kernel calls a file without a name `#` and its number. An upload has none until it is complete, and the kernel
/// reports the moment when it gets its name as a change of `#` and the number.
fn names_no_file(name: &OsStr) -> bool {
    let number = name.as_bytes().strip_prefix(b"#");
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// A move is reported for both names: the old one as renamed, the new one as created.
fn kind_of(flags: ReadFlags) -> Option<ChangeKind> {
    let kinds = [
        (ReadFlags::CREATE | ReadFlags::MOVED_TO, ChangeKind::Created),
        (ReadFlags::MODIFY, ChangeKind::Modified),
        (ReadFlags::DELETE, ChangeKind::Removed),
        (ReadFlags::MOVED_FROM, ChangeKind::Renamed),
        (ReadFlags::ATTRIB, ChangeKind::Attributes),
    ];
    kinds.into_iter().find_map(|(wanted, kind)| flags.intersects(wanted).then_some(kind))
}
