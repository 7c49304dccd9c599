//! Copying between file systems, with owners and permissions.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;

/// Copies a file, a link or a directory tree. Replaces what exists at the target, as a rename does.
pub fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if metadata.is_symlink() {
        let _ = fs::remove_file(to);
        symlink(from.read_link()?, to)?;
    } else if metadata.is_dir() {
        match fs::create_dir(to) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy_all(&from.join(&name), &to.join(&name))?;
        }
    } else if metadata.is_file() {
        fs::copy(from, to)?;
    } else {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    if !metadata.is_symlink() {
        fs::set_permissions(to, metadata.permissions())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_tree_is_copied_with_its_links_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::write(from.join("sub/file"), b"\0bytes").unwrap();
        fs::set_permissions(from.join("sub/file"), fs::Permissions::from_mode(0o751)).unwrap();
        symlink("nowhere", from.join("link")).unwrap();
        let to = dir.path().join("to");
        copy_all(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("sub/file")).unwrap(), b"\0bytes");
        assert_eq!(fs::metadata(to.join("sub/file")).unwrap().permissions().mode() & 0o7777, 0o751);
        assert_eq!(to.join("link").read_link().unwrap(), Path::new("nowhere"));
    }
}
