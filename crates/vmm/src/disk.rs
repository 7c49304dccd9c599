//! Disk layers: qcow2 overlays whose backing file names are valid in the jail, not on the host.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The format of a backing layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFormat {
    Raw,
    Qcow2,
}

impl DiskFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("cannot start qemu-img; install it (Debian: apt install qemu-utils)")]
    NoQemuImg(#[source] io::Error),
    #[error("cannot create the overlay {path}: {reason}")]
    Refused { path: PathBuf, reason: String },
}

/// Creates an empty overlay of `virtual_bytes` over `backing`, a name as QEMU will see it (`/layers/NAME`).
///
/// qemu-img does not open the backing file (`-u`), because that name exists only in the jail. Starting qemu-img takes
/// some 10 ms; to avoid that, copy an overlay that was created earlier.
pub async fn create_overlay(
    path: &Path,
    backing: &str,
    backing_format: DiskFormat,
    virtual_bytes: u64,
) -> Result<(), DiskError> {
    let output = tokio::process::Command::new("qemu-img")
        .args(["create", "-q", "-u", "-f", "qcow2", "-b", backing, "-F", backing_format.name()])
        .arg(path)
        .arg(virtual_bytes.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(DiskError::NoQemuImg)?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(DiskError::Refused { path: path.to_owned(), reason })
}

/// Copies a sparse file to a new one, and skips its holes. Where the file system can share blocks, it copies nothing.
pub fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while at < length {
        let data = match rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(data))?;
        copy_range(&source, &target, data, at)?;
    }
    Ok(())
}

fn copy_range(source: &File, target: &File, from: u64, to: u64) -> io::Result<()> {
    let (mut read_at, mut write_at) = (from, from);
    while read_at < to {
        let left = usize::try_from(to - read_at).unwrap_or(usize::MAX);
        let copied = rustix::fs::copy_file_range(source, Some(&mut read_at), target, Some(&mut write_at), left)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_the_same_holes() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let file = File::create(&one).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", 33 << 20).unwrap();
        copy_sparse(&one, &other).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&other).unwrap());
        assert!(std::fs::metadata(&other).unwrap().blocks() * 512 < 1 << 20);
        assert_eq!(copy_sparse(&one, &other).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[tokio::test]
    async fn an_overlay_names_its_backing_layer_without_opening_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("overlay.qcow2");
        create_overlay(&path, "/layers/not-on-this-host", DiskFormat::Raw, 64 << 20).await.unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(&bytes[..4], b"QFI\xfb");
        let name = b"/layers/not-on-this-host";
        assert!(bytes.windows(name.len()).any(|window| window == name));
    }

    #[tokio::test]
    async fn an_overlay_in_a_missing_directory_is_refused_with_a_reason() {
        let path = Path::new("/nonexistent/overlay.qcow2");
        let refusal = create_overlay(path, "/layers/root", DiskFormat::Qcow2, 1 << 20).await.unwrap_err();
        assert!(refusal.to_string().contains("No such file"), "{refusal}");
    }
}
