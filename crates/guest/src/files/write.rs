//! Writing a file.
//!
//! An upload goes to a file without a name in the target's directory and takes effect at its end. In every mode, an upload
//! that breaks off leaves no trace, and a watch of the directory sees only the target. A file that exists keeps its inode,
//! and with it its hard links.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;
use sandling_protocol::{Failure, FailureKind, Response, WriteMode};

use super::blocks::copy_blocks;
use super::metadata;
use super::path::{about, target};
use super::serve::Stopped;
use crate::failure::failure;
use crate::lent_disk;
use crate::users::User;
use crate::worker::{Input, WorkerStream};

const NEW_FILE_MODE: u32 = 0o644;

pub fn write(
    path: &Path,
    how: WriteMode,
    mode: Option<u32>,
    user: Option<&str>,
    metadata: BTreeMap<String, String>,
    work: &mut WorkerStream,
) -> Result<Response, Stopped> {
    let owner = user.map(|user| User::find(Some(user))).transpose()?;
    let target = target(path).map_err(about(path))?;
    let existing = fs::metadata(&target).ok();
    check_write_target(&target, how, existing.as_ref())?;
    make_parents(&target, owner.as_ref()).map_err(about(path))?;
    let is_device = existing.as_ref().is_some_and(|existing| !existing.is_file());
    if is_device {
        return write_through(&target, work);
    }
    let mut upload = Upload::new(&target).map_err(about(path))?;
    let bytes = receive(&mut upload.file, path, work)?;
    let attributes = Attributes::of(mode, owner.as_ref(), metadata);
    match (how, existing.is_some()) {
        (WriteMode::Replace, true) => upload.overwrite(&target, &attributes),
        (WriteMode::Append, true) => upload.append_to(&target, &attributes),
        (WriteMode::CreateNew, _) => upload.create(&target, &attributes),
        (WriteMode::Replace | WriteMode::Append, false) => match upload.create(&target, &attributes) {
            // Another process has created it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => upload.overwrite(&target, &attributes),
            result => result,
        },
    }
    .map_err(about(path))?;
    Ok(Response::Written { bytes })
}

fn check_write_target(target: &Path, how: WriteMode, existing: Option<&Metadata>) -> Result<(), Failure> {
    match existing {
        Some(existing) if existing.is_dir() => {
            Err(failure(FailureKind::IsADirectory, format!("{}: is a directory", target.display())))
        }
        Some(_) if how == WriteMode::CreateNew => {
            Err(failure(FailureKind::AlreadyExists, format!("{}: file exists", target.display())))
        }
        _ => Ok(()),
    }
}

fn receive(file: &mut File, path: &Path, work: &mut WorkerStream) -> Result<u64, Stopped> {
    let mut total = 0;
    while let Some(input) = work.receive()? {
        match input {
            Input::Bytes(bytes) => {
                file.write_all(&bytes).map_err(about(path))?;
                total += bytes.len() as u64;
            }
            Input::Disk(disk, taken) => {
                let content = lent_disk::open(&disk)?;
                copy_blocks(&content, file, disk.bytes, || work.is_cancelled()).map_err(about(path))?;
                total += disk.bytes;
                taken.end(Ok(Response::Done));
            }
        }
    }
    Ok(total)
}

/// Writes to a device or a pipe directly, which must not be replaced by a file.
fn write_through(target: &Path, work: &mut WorkerStream) -> Result<Response, Stopped> {
    let mut device = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(target).map_err(about(target))?;
    let bytes = receive(&mut device, target, work)?;
    Ok(Response::Written { bytes })
}

/// Makes the missing directories above `target` and gives them to the owner.
pub fn make_parents(target: &Path, owner: Option<&User>) -> io::Result<()> {
    let missing: Vec<&Path> = target.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if let Some(owner) = owner {
            chown(dir, Some(owner.ids.uid), Some(owner.ids.gid))?;
        }
    }
    Ok(())
}

/// The mode, the owner and the metadata that a request names.
struct Attributes {
    mode: Option<u32>,
    ids: Option<(u32, u32)>,
    metadata: BTreeMap<String, String>,
}

impl Attributes {
    fn of(mode: Option<u32>, owner: Option<&User>, metadata: BTreeMap<String, String>) -> Self {
        let ids = owner.map(|owner| (owner.ids.uid, owner.ids.gid));
        Self { mode: mode.map(|mode| mode & 0o7777), ids, metadata }
    }

    /// Sets what differs, so that watches report no change of attributes that did not change.
    fn apply(&self, file: &File, default_mode: Option<u32>) -> io::Result<()> {
        let before = file.metadata()?;
        if let Some((uid, gid)) = self.ids.filter(|ids| *ids != (before.uid(), before.gid())) {
            fchown(file, Some(uid), Some(gid))?;
        }
        // After the owner, because changing the owner clears set-user-id bits.
        let now = file.metadata()?.permissions().mode() & 0o7777;
        let mode = self.mode.or(default_mode).unwrap_or(before.permissions().mode() & 0o7777);
        if mode == now { Ok(()) } else { file.set_permissions(fs::Permissions::from_mode(mode)) }
    }
}

/// The received bytes, in a file that is gone unless the upload is completed.
struct Upload {
    file: File,
    /// On file systems that know no files without a name.
    name: Option<PathBuf>,
}

impl Upload {
    fn new(target: &Path) -> io::Result<Self> {
        let folder = target.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(Self { file: file.into(), name: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(target),
            Err(error) => Err(error.into()),
        }
    }

    fn named(target: &Path) -> io::Result<Self> {
        let path = name_beside(target)?;
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, name: Some(path) })
    }

    /// Gives the file its name; fails if it exists.
    fn create(&mut self, target: &Path, attributes: &Attributes) -> io::Result<()> {
        metadata::replace(&self.file, &attributes.metadata)?;
        attributes.apply(&self.file, Some(NEW_FILE_MODE))?;
        match &self.name {
            Some(name) => renameat_with(CWD, name, CWD, target, RenameFlags::NOREPLACE)?,
            None => self.link(target)?,
        }
        self.announce(target)
    }

    fn link(&self, target: &Path) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(linkat(CWD, own, CWD, target, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Sets the mode and writes the last byte again. After the creation, watches then report both, as for a file that was
    /// written in place.
    fn announce(&self, target: &Path) -> io::Result<()> {
        // Opened by its name: watches do not see what is written through the descriptor of a file that had none.
        let named = match File::options().read(true).write(true).open(target) {
            // Another process has removed it meanwhile, or runs it.
            Err(_) => return Ok(()),
            Ok(named) => named,
        };
        let (ours, found) = (self.file.metadata()?, named.metadata()?);
        if (ours.dev(), ours.ino()) != (found.dev(), found.ino()) {
            return Ok(());
        }
        named.set_permissions(found.permissions())?;
        let Some(last) = found.len().checked_sub(1) else {
            return Ok(());
        };
        let mut byte = [0];
        named.read_exact_at(&mut byte, last)?;
        named.write_all_at(&byte, last)
    }

    /// Copies the bytes into a file that exists.
    fn overwrite(&mut self, target: &Path, attributes: &Attributes) -> io::Result<()> {
        let existing = match File::options().write(true).open(target) {
            // The kernel does not let anybody write to a program that runs, but it can be replaced.
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => return self.replace(target, attributes),
            opened => opened?,
        };
        let (before, now) = (existing.metadata()?.len(), self.file.metadata()?.len());
        if now > before {
            // Without space for all bytes, the file stays as it is.
            match rustix::fs::fallocate(&existing, FallocateFlags::KEEP_SIZE, before, now - before) {
                Err(Errno::OPNOTSUPP) => {}
                result => result?,
            }
        }
        metadata::replace(&existing, &attributes.metadata)?;
        attributes.apply(&existing, None)?;
        self.file.rewind()?;
        copy_blocks(&self.file, &existing, now, || false)?;
        existing.set_len(now)
    }

    /// Puts a new file in the place of an existing one, with its mode and owner.
    fn replace(&mut self, target: &Path, attributes: &Attributes) -> io::Result<()> {
        let existing = fs::metadata(target)?;
        let ids = attributes.ids.or(Some((existing.uid(), existing.gid())));
        let mode = attributes.mode.or(Some(existing.permissions().mode() & 0o7777));
        metadata::replace(&self.file, &attributes.metadata)?;
        Attributes { mode, ids, metadata: BTreeMap::new() }.apply(&self.file, None)?;
        let name = match self.name.take() {
            Some(name) => name,
            None => {
                let name = name_beside(target)?;
                self.link(&name)?;
                name
            }
        };
        fs::rename(&name, target).inspect_err(|_| drop(fs::remove_file(&name)))
    }

    fn append_to(&mut self, target: &Path, attributes: &Attributes) -> io::Result<()> {
        self.file.rewind()?;
        let mut end = File::options().append(true).open(target)?;
        if !attributes.metadata.is_empty() {
            metadata::replace(&end, &attributes.metadata)?;
        }
        attributes.apply(&end, None)?;
        io::copy(&mut self.file, &mut end).map(drop)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Fails after a rename, when the name no longer exists.
            let _ = fs::remove_file(name);
        }
    }
}

fn name_beside(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // Shortened, because a name of the maximum length leaves no room for the suffix.
    let name: String = name.to_string_lossy().chars().take(40).collect();
    let unique = &crate::identity::fresh_entropy()[..12];
    Ok(target.with_file_name(format!(".{name}.{unique}.part")))
}
