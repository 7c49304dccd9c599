//! Making directories; moving, removing and changing the mode of files.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use sandling_protocol::{Failure, FailureKind, Response};

use super::copy;
use super::path::about;
use super::remove::remove_tree;
use super::write::make_parents;
use crate::failure::failure;
use crate::users::User;

pub fn make_dir(path: &Path, mode: Option<u32>, parents: bool, user: Option<&str>) -> Result<Response, Failure> {
    let owner = user.map(|user| User::find(Some(user))).transpose()?;
    if parents {
        make_parents(path, owner.as_ref()).map_err(about(path))?;
    }
    match fs::create_dir(path) {
        Ok(()) => {
            if let Some(owner) = &owner {
                chown(path, Some(owner.ids.uid), Some(owner.ids.gid)).map_err(about(path))?;
            }
        }
        // With `parents`, as with `mkdir -p`, an existing directory is fine.
        Err(error) if parents && error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        Err(error) => return Err(about(path)(error)),
    }
    match mode {
        Some(mode) => chmod(path, mode),
        None => Ok(Response::Done),
    }
}

/// Renames a file; between file systems, copies and removes it.
pub fn rename(from: &Path, to: &Path) -> Result<Response, Failure> {
    fs::symlink_metadata(from).map_err(about(from))?;
    make_parents(to, None).map_err(about(to))?;
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy::copy_all(from, to).map_err(about(to))?;
            remove(from, true)
        }
        result => result.map(|()| Response::Done).map_err(about(from)),
    }
}

pub fn remove(path: &Path, recursive: bool) -> Result<Response, Failure> {
    if path.components().count() < 2 {
        return Err(failure(FailureKind::Invalid, "the root directory cannot be removed"));
    }
    let metadata = fs::symlink_metadata(path).map_err(about(path))?;
    let removed = match (metadata.is_dir(), recursive) {
        (true, true) => remove_tree(path),
        (true, false) => fs::remove_dir(path),
        (false, _) => fs::remove_file(path),
    };
    removed.map(|()| Response::Done).map_err(about(path))
}

pub fn chmod(path: &Path, mode: u32) -> Result<Response, Failure> {
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777)).map_err(about(path))?;
    Ok(Response::Done)
}
