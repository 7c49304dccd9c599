//! From an image's layers to a root disk, in a confined process.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandling_engine::Step;
use sandling_image::BuildError;
use sandling_oci::{Extra, Jail, JailError, LayerInput, Limits, Progress, UnpackOptions};

use super::error::ImageError;
use super::progress::OnStep;

/// The size of the built-in templates' disks. A larger one is reserved on the host, so an image gets one only if it needs
/// it.
const USUAL_DISK_MIB: u32 = 4096;
const LONGEST_UNPACK: Duration = Duration::from_secs(30 * 60);
/// The names and attributes of all files are in memory.
const UNPACK_MEMORY: u64 = 2 << 30;
/// Progress is shown after this many bytes.
const SHOWN_MIB: u64 = 1 << 20;

/// The sizes of disks to try for an image whose layers have this many bytes. Layers are compressed, so the first may be
/// too small.
pub(super) fn disk_sizes(compressed_bytes: u64) -> Vec<u32> {
    let guess = (compressed_bytes >> 20).saturating_mul(3) + 1024;
    let first = u32::try_from(guess.next_multiple_of(1024)).unwrap_or(u32::MAX).clamp(USUAL_DISK_MIB, 256 * 1024);
    vec![first, first.saturating_mul(2), first.saturating_mul(4)]
}

/// Unpacks layers into a new disk. Blocks.
pub(super) fn unpack(
    launcher: PathBuf,
    layers: &[LayerInput],
    out: &Path,
    disk_mib: u32,
    working_dir: Option<&str>,
    on_step: &OnStep,
) -> Result<(), UnpackFailure> {
    // Not private: the users that machines run under read it once it is a template's.
    let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(out);
    let out = created.map_err(UnpackFailure::File)?;
    let jail = Jail { launcher, deadline: LONGEST_UNPACK, memory_bytes: UNPACK_MEMORY };
    let options = UnpackOptions { disk_mib, limits: Limits::default(), extras: extras(working_dir) };
    let unpacked = jail.unpack(layers, &out, &options, &mut |progress: Progress| {
        let text = format!("unpacking layer {} of {}", progress.layer, progress.layers);
        on_step(Step { text, progress: Some((progress.read / SHOWN_MIB, progress.total / SHOWN_MIB)) });
    });
    match unpacked {
        Ok(unpacked) => {
            for line in unpacked.missing {
                tracing::debug!(line, "this host lacks a protection for unpacking");
            }
            Ok(())
        }
        Err(JailError::Refused { disk_too_small: true, .. }) => Err(UnpackFailure::DiskTooSmall),
        Err(error) => Err(UnpackFailure::Jail(error)),
    }
}

#[derive(Debug)]
pub(super) enum UnpackFailure {
    DiskTooSmall,
    Jail(JailError),
    File(io::Error),
}

impl UnpackFailure {
    pub(super) fn of_image(self, reference: &str, disk_mib: u32) -> ImageError {
        let reference = reference.to_owned();
        match self {
            Self::DiskTooSmall => ImageError::TooLarge { reference, disk_mib },
            Self::Jail(source) => ImageError::Unpack { reference, source },
            Self::File(source) => ImageError::File(source),
        }
    }
}

/// What container runtimes create in every container, and the guest agent needs.
fn extras(working_dir: Option<&str>) -> Vec<Extra> {
    let directory = |path: &str, mode| Extra::Directory { path: path.to_owned(), mode };
    let file =
        |path: &str, content: &str| Extra::File { path: path.to_owned(), mode: 0o644, content: content.to_owned() };
    let mut extras: Vec<_> = ["dev", "etc", "proc", "run", "sys"].map(|path| directory(path, 0o755)).into();
    extras.push(directory("tmp", 0o1777));
    extras.push(file("etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost\n"));
    // Docker creates the directory, too, when a container starts.
    let mut path = String::new();
    for part in working_dir.unwrap_or_default().split('/').filter(|part| !part.is_empty()) {
        if part == "." || part == ".." {
            break;
        }
        path = if path.is_empty() { part.to_owned() } else { format!("{path}/{part}") };
        extras.push(directory(&path, 0o755));
    }
    extras
}

/// Moves a finished disk to its place, which may be in another file system.
pub(super) fn place(disk: &Path, place: &Path) -> Result<(), BuildError> {
    let moved = fs::rename(disk, place).or_else(|error| match error.kind() {
        io::ErrorKind::CrossesDevices => copy_sparse(disk, place),
        _ => Err(error),
    });
    moved.map_err(|source| BuildError::Io { doing: "write", path: place.to_owned(), source })
}

/// Most of a disk is holes, which stay holes.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let (source, target) = (fs::File::open(from)?, fs::File::create_new(to)?);
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < length {
        let read = source.read_at(&mut buffer, offset)?;
        if read == 0 {
            break;
        }
        if buffer[..read].iter().any(|byte| *byte != 0) {
            target.write_all_at(&buffer[..read], offset)?;
        }
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_image_gets_an_ordinary_disk_and_a_large_one_a_larger() {
        assert_eq!(disk_sizes(150 << 20), [4096, 8192, 16384]);
        assert_eq!(disk_sizes(2 << 30)[0], 7168);
        assert!(disk_sizes(u64::MAX)[2] <= 1024 * 1024);
    }

    #[test]
    fn the_working_directory_exists_with_its_parents() {
        let paths = extras(Some("/srv/app/../x")).into_iter().filter_map(|extra| match extra {
            Extra::Directory { path, .. } => Some(path),
            _ => None,
        });
        assert!(paths.clone().any(|path| path == "srv/app") && !paths.clone().any(|path| path.contains("..")));
    }

    #[test]
    fn a_copy_has_the_same_content_and_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let mut content = vec![0; 5 << 20];
        content[3 << 20] = 7;
        fs::write(&from, &content).unwrap();
        copy_sparse(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), content);
    }
}
