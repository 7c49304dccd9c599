//! Writes files of the image as a stream: a tar with `d/PATH` for the content of directories and `f/NAME` for files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tar::{EntryType, Header};

use crate::Failure;
use crate::sources;

pub fn pack(all: &[String], out: &str) -> Result<(), Failure> {
    let parent = Path::new(out).parent().unwrap_or(Path::new("/"));
    let created = fs::create_dir_all(parent).and_then(|()| File::create(out));
    let mut packer = Packer::new(std::io::BufWriter::new(created.map_err(|error| format!("{out}: {error}"))?));
    for source in all {
        for found in sources::find(Path::new("/"), source)? {
            packer.source(&found)?;
        }
    }
    packer.into_inner().and_then(|mut out| out.flush()).map_err(|error| format!("cannot send the files: {error}"))
}

pub struct Packer<W: Write> {
    tar: tar::Builder<W>,
    /// Where a file with several names is in the stream.
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Packer<W> {
    pub fn new(out: W) -> Self {
        Self { tar: tar::Builder::new(out), links: HashMap::new() }
    }

    pub fn into_inner(self) -> std::io::Result<W> {
        self.tar.into_inner()
    }

    /// Adds what a source has found. As in Docker, a link is followed.
    pub fn source(&mut self, path: &Path) -> Result<(), Failure> {
        let meta = fs::metadata(path).map_err(|error| about(path, &error))?;
        if meta.is_dir() {
            return self.children(path, Path::new("d"));
        }
        let name = Path::new("f").join(sources::name_of(path));
        let real = fs::canonicalize(path).map_err(|error| about(path, &error))?;
        self.entry(&real, &name, &meta)
    }

    /// The same, but a link stays a link. The client that made the archive has followed the links that should be followed.
    pub fn uploaded(&mut self, path: &Path) -> Result<(), Failure> {
        let meta = fs::symlink_metadata(path).map_err(|error| about(path, &error))?;
        if !meta.is_symlink() {
            return self.source(path);
        }
        self.entry(path, &Path::new("f").join(sources::name_of(path)), &meta)
    }

    fn children(&mut self, directory: &Path, name: &Path) -> Result<(), Failure> {
        let entries = fs::read_dir(directory).map_err(|error| about(directory, &error))?;
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for child in names {
            let path = directory.join(&child);
            if path == Path::new(sandling_builder::DIRECTORY) {
                continue;
            }
            let meta = fs::symlink_metadata(&path).map_err(|error| about(&path, &error))?;
            let name = name.join(&child);
            self.entry(&path, &name, &meta)?;
            if meta.is_dir() {
                self.children(&path, &name)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, name: &Path, meta: &Metadata) -> Result<(), Failure> {
        let failed = |error: std::io::Error| about(path, &error);
        let mut header = Header::new_gnu();
        header.set_mode(meta.mode() & 0o7777);
        header.set_uid(meta.uid().into());
        header.set_gid(meta.gid().into());
        header.set_mtime(u64::try_from(meta.mtime()).unwrap_or_default());
        header.set_size(0);
        let kind = meta.file_type();
        if meta.nlink() > 1 && !meta.is_dir() {
            if let Some(first) = self.links.get(&(meta.dev(), meta.ino())).cloned() {
                header.set_entry_type(EntryType::Link);
                return self.tar.append_link(&mut header, name, first).map_err(failed);
            }
            self.links.insert((meta.dev(), meta.ino()), name.to_owned());
        }
        self.attributes(path, meta)?;
        if kind.is_file() {
            header.set_size(meta.len());
            header.set_entry_type(EntryType::Regular);
            let file = File::open(path).map_err(failed)?;
            return self.tar.append_data(&mut header, name, file).map_err(failed);
        }
        if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            let target = fs::read_link(path).map_err(failed)?;
            return self.tar.append_link(&mut header, name, target).map_err(failed);
        }
        header.set_entry_type(if kind.is_dir() {
            EntryType::Directory
        } else if kind.is_fifo() {
            EntryType::Fifo
        } else if kind.is_char_device() {
            EntryType::Char
        } else if kind.is_block_device() {
            EntryType::Block
        } else {
            // A socket has no meaning without its process.
            return Ok(());
        });
        if kind.is_char_device() || kind.is_block_device() {
            let device = meta.rdev();
            header.set_device_major(rustix::fs::major(device)).map_err(failed)?;
            header.set_device_minor(rustix::fs::minor(device)).map_err(failed)?;
        }
        self.tar.append_data(&mut header, name, std::io::empty()).map_err(failed)
    }

    /// Extended attributes, among them file capabilities, as most tars write them.
    fn attributes(&mut self, path: &Path, meta: &Metadata) -> Result<(), Failure> {
        if meta.file_type().is_symlink() {
            return Ok(());
        }
        let mut names = vec![0_u8; 64 * 1024];
        let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return Ok(()) };
        let mut found = Vec::new();
        for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0_u8; 64 * 1024];
            let Ok(length) = rustix::fs::lgetxattr(path, name, &mut value) else { continue };
            value.truncate(length);
            let name = OsStr::from_bytes(name).to_string_lossy().into_owned();
            found.push((format!("SCHILY.xattr.{name}"), value));
        }
        if found.is_empty() {
            return Ok(());
        }
        let pairs = found.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        self.tar.append_pax_extensions(pairs).map_err(|error| about(path, &error))
    }
}

fn about(path: &Path, error: &std::io::Error) -> Failure {
    format!("{}: {error}", path.display())
}
