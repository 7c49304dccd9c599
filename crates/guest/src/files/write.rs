//! Writing a file.
//!
//! An upload goes to a new file beside its target and takes effect at its end. In every mode, an upload that breaks off
//! leaves no trace.

use std::fs::{self, File, Metadata};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandling_protocol::{Failure, FailureKind, Response, WriteMode};

use super::path::{about, target};
use super::serve::Stopped;
use crate::failure::failure;
use crate::users::User;
use crate::worker::WorkerStream;

const NEW_FILE_MODE: u32 = 0o644;

pub fn write(
    path: &Path,
    how: WriteMode,
    mode: Option<u32>,
    user: Option<&str>,
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
    upload.set_attributes(mode, owner.as_ref(), existing.as_ref()).map_err(about(path))?;
    match how {
        WriteMode::Replace => upload.replace(&target),
        WriteMode::CreateNew => upload.create_new(&target),
        WriteMode::Append if existing.is_some() => upload.append_to(&target),
        WriteMode::Append => upload.replace(&target),
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

fn receive(file: &mut impl Write, path: &Path, work: &mut WorkerStream) -> Result<u64, Stopped> {
    let mut total = 0;
    while let Some(bytes) = work.receive()? {
        file.write_all(&bytes).map_err(about(path))?;
        total += bytes.len() as u64;
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

/// The new file of an upload. It is removed unless the upload is completed.
struct Upload {
    file: File,
    path: PathBuf,
}

impl Upload {
    fn new(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // Shortened, because a name of the maximum length leaves no room for the suffix.
        let name: String = name.to_string_lossy().chars().take(40).collect();
        let unique = &crate::identity::fresh_entropy()[..12];
        let path = target.with_file_name(format!(".{name}.{unique}.part"));
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, path })
    }

    /// Sets mode and owner: those of the request, else those of the existing file, else the defaults.
    fn set_attributes(&self, mode: Option<u32>, owner: Option<&User>, existing: Option<&Metadata>) -> io::Result<()> {
        let ids = match (owner, existing) {
            (Some(owner), _) => Some((owner.ids.uid, owner.ids.gid)),
            (None, Some(existing)) => Some((existing.uid(), existing.gid())),
            (None, None) => None,
        };
        if let Some((uid, gid)) = ids {
            std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid))?;
        }
        // After the owner, because changing the owner clears set-user-id bits.
        let before = existing.map(|existing| existing.permissions().mode());
        let mode = mode.or(before).unwrap_or(NEW_FILE_MODE) & 0o7777;
        self.file.set_permissions(fs::Permissions::from_mode(mode))
    }

    fn replace(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)
    }

    fn create_new(self, target: &Path) -> io::Result<()> {
        Ok(renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE)?)
    }

    fn append_to(mut self, target: &Path) -> io::Result<()> {
        self.file.rewind()?;
        let mut end = File::options().append(true).open(target)?;
        io::copy(&mut self.file, &mut end).map(drop)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Fails after a rename, when the name no longer exists.
        let _ = fs::remove_file(&self.path);
    }
}
