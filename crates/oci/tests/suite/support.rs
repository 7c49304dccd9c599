//! Layers, and disks to unpack them to.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use sandling_oci::{Digest, LayerInput, Limits, Summary, UnpackError, UnpackOptions, unpack};
use tar::{EntryType, Header};
use tempfile::TempDir;

/// A tar archive that is written entry by entry; names are not checked.
#[derive(Default)]
pub struct Layer(Vec<u8>);

impl Layer {
    pub fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(name, EntryType::Regular, "", content)
    }

    pub fn directory(self, name: &str) -> Self {
        self.entry(name, EntryType::Directory, "", b"")
    }

    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Symlink, target, b"")
    }

    pub fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Link, target, b"")
    }

    pub fn pax(self, key: &str, value: &[u8]) -> Self {
        let rest = key.len() + value.len() + 3;
        let length = (1..).map(|digits| rest + digits).find(|all| all.to_string().len() + rest == *all).unwrap();
        let mut record = format!("{length} {key}=").into_bytes();
        record.extend_from_slice(value);
        record.push(b'\n');
        self.entry("pax", EntryType::XHeader, "", &record)
    }

    pub fn entry(mut self, name: &str, kind: EntryType, target: &str, content: &[u8]) -> Self {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_600_000_000);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn bytes(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes that are not zero and do not compress well.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8 | 1
    };
    (0..length).map(|_| next()).collect()
}

/// A layer whose digests are right.
pub fn input(bytes: &[u8]) -> LayerInput {
    input_of(bytes, Digest::of(bytes), None)
}

pub fn input_of(bytes: &[u8], digest: Digest, diff_id: Option<Digest>) -> LayerInput {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    LayerInput { file, offset: 0, length: bytes.len() as u64, media_type: String::new(), digest: Some(digest), diff_id }
}

pub fn options(disk_mib: u32) -> UnpackOptions {
    UnpackOptions { disk_mib, limits: Limits::default(), extras: Vec::new() }
}

/// A disk in a directory of its own.
pub struct Disk {
    _directory: TempDir,
    pub path: PathBuf,
    pub file: File,
}

impl Disk {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        Self { _directory: directory, path, file }
    }

    /// Unpacks layers and checks the file system.
    pub fn unpack(&self, layers: Vec<Layer>, options: &UnpackOptions) -> Result<Summary, UnpackError> {
        let layers: Vec<LayerInput> = layers.into_iter().map(|layer| input(&layer.bytes())).collect();
        let summary = unpack(&layers, &self.file, options, &mut |_| ())?;
        self.check();
        Ok(summary)
    }

    pub fn check(&self) {
        let checked = Command::new("e2fsck").arg("-fn").arg(&self.path).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }

    pub fn debugfs(&self, request: &str) -> String {
        let output = Command::new("debugfs").args(["-R", request]).arg(&self.path).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The error of one layer with these limits.
pub fn refused(layer: Layer, limits: Limits) -> String {
    refused_all(vec![layer], limits)
}

pub fn refused_all(layers: Vec<Layer>, limits: Limits) -> String {
    Disk::new().unpack(layers, &UnpackOptions { limits, ..options(16) }).unwrap_err().to_string()
}
