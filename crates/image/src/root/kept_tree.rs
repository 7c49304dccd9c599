//! The tree of Debian's packages that several built-in templates begin with, kept as an archive in the store.
//!
//! It is an archive, and not read from a template's root disk, because debugfs loses set-id bits and hard links.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{BuildError, io_at};
use crate::name::ContentId;
use crate::progress::{Progress, Report, Step};
use crate::user_namespace;
use crate::workspace::{TREE, Workspace};

const DIRECTORY: &str = "trees";
/// Owners by number, and all that a file system keeps about a file. The compression is a quick one.
const TAR: [&str; 7] = ["--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "--sparse", "-I", "gzip -1"];

pub(crate) struct KeptTree {
    directory: PathBuf,
    file: PathBuf,
}

impl KeptTree {
    /// `inputs` are those of the tree.
    pub(crate) fn new(store: &Path, inputs: &ContentId) -> Self {
        let directory = store.join(DIRECTORY);
        Self { file: directory.join(format!("{inputs}.tar.gz")), directory }
    }

    /// The size of the archive, or `None` if there is none.
    pub(crate) fn size(&self) -> Option<u64> {
        Some(fs::metadata(&self.file).ok()?.len())
    }

    /// Unpacks the archive into the workspace. A damaged one is removed; then this returns false.
    pub(crate) fn unpack(&self, workspace: &Workspace, report: Report<'_>) -> Result<bool, BuildError> {
        let archive = File::open(&self.file).map_err(io_at("open", &self.file))?;
        let progress = Progress::of(Step::Install, "Debian's packages, from an earlier build");
        report(&progress);
        workspace.share("target", 0o777)?;
        let tree = workspace.dir().join(TREE);
        user_namespace::tool("mkdir")?.arg(&tree).capture()?;
        // The namespace's user cannot enter the store, so the archive is passed as an open file.
        let tar = user_namespace::tool("tar")?.args(TAR).arg("-C").arg(&tree).args(["-xpf", "-"]).stdin(archive);
        let unpacked = tar.follow(|_| report(&progress));
        if let Err(error) = &unpacked {
            tracing::warn!(archive = %self.file.display(), %error, "a tree could not be unpacked, and is made anew");
            workspace.discard_tree(report)?;
            fs::remove_file(&self.file).map_err(io_at("remove", &self.file))?;
        }
        Ok(unpacked.is_ok())
    }

    /// Keeps the workspace's tree instead of any other.
    pub(crate) fn keep(&self, workspace: &Workspace, report: Report<'_>) -> Result<(), BuildError> {
        let progress = Progress::of(Step::Install, "keeping Debian's packages for other templates");
        report(&progress);
        let file = workspace.share("kept", 0o777)?.join("tree.tar.gz");
        let tar = user_namespace::tool("tar")?.args(TAR).arg("-C").arg(workspace.dir().join(TREE)).arg("-cf");
        tar.arg(&file).arg(".").follow(|_| report(&progress))?;
        let _ = fs::remove_dir_all(&self.directory);
        fs::create_dir_all(&self.directory).map_err(io_at("create", &self.directory))?;
        let partial = self.file.with_extension("partial");
        fs::copy(&file, &partial).map_err(io_at("copy", &file))?;
        File::open(&partial).and_then(|file| file.sync_all()).map_err(io_at("write", &partial))?;
        fs::rename(&partial, &self.file).map_err(io_at("write", &self.file))
    }
}
