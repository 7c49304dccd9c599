//! Makes a sparse ext4 image of a directory tree, with mke2fs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{BuildError, io_at};
use crate::progress::{Progress, Report, Step};
use crate::tool::ToolError;
use crate::user_namespace;

/// Part of a root's inputs.
///
/// - No journal: a sandbox's disk is written with `cache=unsafe` and is restored only together with its memory. A journal
///   would protect nothing and double what every sandbox writes and every fork copies.
/// - Inode tables are initialised now; otherwise each sandbox's kernel would do it in the background.
/// - Identifiers are fixed, so that they do not reveal where or when an image was made.
pub(crate) const MKE2FS_OPTIONS: [&str; 14] = [
    "-q",
    "-t",
    "ext4",
    "-O",
    "^has_journal",
    "-m",
    "0",
    "-L",
    "sandling",
    "-U",
    "5a4d1196-0000-4000-8000-000000000001",
    "-E",
    "lazy_itable_init=0,root_owner=0:0,hash_seed=5a4d1196-0000-4000-8000-000000000002",
    "-d",
];

/// Writes `tree` to a new file `image` of `disk_mib`.
pub(crate) fn make_image(tree: &Path, image: &Path, disk_mib: u32, report: Report<'_>) -> Result<(), BuildError> {
    let file = create_sparse(image, disk_mib).map_err(io_at("create", image))?;
    let progress = Progress::of(Step::FileSystem, format!("{disk_mib} MiB, sparse"));
    report(&progress);
    // In the user namespace, the tree has the owners that the image needs, but the store is inaccessible, so the image
    // is passed as an open file.
    let tool = user_namespace::tool("mke2fs")?.args(MKE2FS_OPTIONS).arg(tree).arg("/proc/self/fd/0").stdin(file);
    tool.follow(|_| report(&progress)).map_err(|error| too_small(error, disk_mib))?;
    fs::set_permissions(image, Permissions::from_mode(0o444)).map_err(io_at("protect", image))
}

fn create_sparse(image: &Path, disk_mib: u32) -> std::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(image)?;
    file.set_len(u64::from(disk_mib) << 20)?;
    // Another user id opens it again through /proc. The mode of its directory keeps other users out.
    file.set_permissions(Permissions::from_mode(0o666))?;
    Ok(file)
}

/// mke2fs reports a full file system differently from a full disk.
fn too_small(error: ToolError, disk_mib: u32) -> BuildError {
    match &error {
        ToolError::Failed { said, .. } if said.contains("Could not allocate block in ext2 filesystem") => {
            BuildError::DiskTooSmall { disk_mib }
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    /// The user namespace's root must be able to enter it.
    fn open_tempdir() -> tempfile::TempDir {
        tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap()
    }

    #[test]
    fn an_image_is_sparse_and_has_the_trees_files() {
        let dir = open_tempdir();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("hello"), "hello").unwrap();
        let image = dir.path().join("root.img");
        make_image(&tree, &image, 512, &mut |_| ()).unwrap();
        let metadata = fs::metadata(&image).unwrap();
        assert_eq!(metadata.len(), 512 << 20);
        assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512 < 32 << 20);
        let listed = Tool::new("debugfs").args(["-R", "cat /hello"]).arg(&image).capture().unwrap();
        assert_eq!(listed, "hello");
    }

    #[test]
    fn a_tree_that_does_not_fit_is_reported_as_a_small_disk() {
        let dir = open_tempdir();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
        let error = make_image(&tree, &dir.path().join("root.img"), 2, &mut |_| ()).unwrap_err();
        assert!(matches!(error, BuildError::DiskTooSmall { disk_mib: 2 }), "{error}");
    }
}
