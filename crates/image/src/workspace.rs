//! The scratch directory of one build.
//!
//! It is not inside the store, because an ordinary user's build runs as other user ids in a user namespace. These must
//! enter the workspace, and must not enter the store. The workspace's name cannot be guessed, and it cannot be listed.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{BuildError, io_at};
use crate::name::ContentId;
use crate::progress::{Progress, Report, Step};
use crate::tool::{Tool, ToolError, is_ordinary_user};
use crate::user_namespace;

/// Where the installed tree is within the workspace.
pub(crate) const TREE: &str = "target/tree";

pub(crate) struct Workspace {
    dir: PathBuf,
    /// The program that launches the jail that works in the directory.
    launcher: PathBuf,
}

impl Workspace {
    /// Creates a workspace and removes those of interrupted builds. The caller holds the store's lock.
    pub(crate) fn create(store: &Path, launcher: &Path) -> Result<Self, BuildError> {
        let parent = parent();
        let prefix = format!("sandling-build-{}-", ContentId::of(store.as_os_str().as_encoded_bytes()));
        sweep(&parent, &prefix);
        let dir = tempfile::Builder::new().prefix(&prefix).rand_bytes(16).tempdir_in(&parent);
        let dir = dir.map_err(io_at("create a directory in", &parent))?.keep();
        let workspace = Self { dir, launcher: launcher.to_owned() };
        workspace.share("", 0o711)?;
        Ok(workspace)
    }

    pub(crate) fn launcher(&self) -> &Path {
        &self.launcher
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates a directory that the build's user ids can enter and, with 0o777, write to.
    pub(crate) fn share(&self, name: &str, mode: u32) -> Result<PathBuf, BuildError> {
        let path = self.dir.join(name);
        fs::create_dir_all(&path).map_err(io_at("create", &path))?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(io_at("open up", &path))?;
        Ok(path)
    }

    pub(crate) fn write(&self, name: &str, mode: u32, content: &str) -> Result<PathBuf, BuildError> {
        let path = self.dir.join(name);
        fs::write(&path, content).map_err(io_at("write", &path))?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(io_at("open up", &path))?;
        Ok(path)
    }

    /// Removes the finished tree early: what has not been written back yet then need not be, and the image is faster.
    pub(crate) fn discard_tree(&self, report: Report<'_>) -> Result<(), BuildError> {
        let progress = Progress::of(Step::FileSystem, "clearing up");
        report(&progress);
        Ok(remove_tree(&self.dir.join(TREE))?.follow(|_| report(&progress))?)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.dir) {
            tracing::warn!(directory = %self.dir.display(), %error, "a build's scratch directory could not be removed");
        }
    }
}

/// `/var/tmp` and not `/tmp`, which is often a small file system in memory.
fn parent() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix)
            && let Err(error) = remove(&entry.path())
        {
            tracing::warn!(directory = %entry.path().display(), %error, "a stale scratch directory could not be removed");
        }
    }
}

fn remove(dir: &Path) -> io::Result<()> {
    let tree = dir.join(TREE);
    if tree.exists() {
        remove_tree(&tree).and_then(Tool::capture).map_err(io::Error::other)?;
    }
    fs::remove_dir_all(dir)
}

/// An ordinary user does not own the files built in a user namespace, and removes them in another one.
fn remove_tree(tree: &Path) -> Result<Tool, ToolError> {
    let rm = if is_ordinary_user() { user_namespace::tool("rm")? } else { Tool::new("rm") };
    Ok(rm.arg("-rf").arg(tree))
}
