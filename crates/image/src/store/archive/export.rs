//! Writing a template as one file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Serialize;

use super::error::ArchiveError;
use super::header::{ArchiveHeader, FORMAT, HEADER, MANIFEST, bake_folder, folder, parts};
use super::write::{Hashed, Reported};
use crate::error::io_at;
use crate::manifest::Part;
use crate::name::TemplateName;
use crate::progress::Report;
use crate::store::image::Image;
use crate::store::parts::{digest_reported, files_in};

/// Fast, and good enough for disks and memory.
const LEVEL: i32 = 3;

/// What to export besides the image.
pub struct ExportOptions {
    /// The name that an import uses unless it is given another.
    pub name: TemplateName,
    /// The keys of the bakes to include.
    pub bakes: Vec<String>,
    /// See [`ArchiveHeader`].
    pub tsc_mhz: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedArchive {
    /// Of the archive, as `sha256sum` prints it.
    pub sha256: String,
    pub bytes: u64,
}

impl Image {
    /// The keys of the bakes that exist. Bakes that are being made have a dot in their names.
    pub fn bakes(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("baked")).into_iter().flatten().flatten();
        let mut keys: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        keys.retain(|key| !key.contains('.'));
        keys.sort();
        keys
    }

    /// Writes the image, which was verified when it was loaded, and some of its bakes. Blocks.
    pub fn export(
        &self,
        export: ExportOptions,
        out: impl Write,
        report: Report<'_>,
    ) -> Result<ExportedArchive, ArchiveError> {
        let mut bakes = BTreeMap::new();
        for key in export.bakes {
            let part = self.bake_part(&key, report)?;
            bakes.insert(key, part);
        }
        let mut header = ArchiveHeader {
            format: FORMAT,
            name: export.name,
            image: self.id.clone(),
            sandling: env!("CARGO_PKG_VERSION").to_owned(),
            stored_bytes: 0,
            tsc_mhz: export.tsc_mhz,
            bakes,
        };
        let files = self.archived_files(&header);
        for (_, path) in &files {
            header.stored_bytes += fs::metadata(path).map_err(io_at("look at", path))?.blocks() * 512;
        }
        self.write_archive(&header, &files, out, report).map_err(ArchiveError::Write)
    }

    /// The files of a bake. The process cache in its subdirectories is of no use on another host.
    fn bake_part(&self, key: &str, report: Report<'_>) -> Result<Part, ArchiveError> {
        let dir = self.baked_dir(key);
        let mut files = BTreeMap::new();
        for name in files_in(&dir).map_err(io_at("list", &dir))? {
            let digest = digest_reported(&dir.join(&name), report)?;
            files.insert(name, digest);
        }
        Ok(Part::of(files))
    }

    /// The paths of all files in the archive and in the store.
    fn archived_files(&self, header: &ArchiveHeader) -> Vec<(String, PathBuf)> {
        let parts = parts(&self.manifest).map(|(kind, part)| (folder(kind).to_owned(), self.part_dir(kind), part));
        let bakes = header.bakes.iter().map(|(key, part)| (bake_folder(key), self.baked_dir(key), part));
        let mut files = Vec::new();
        for (folder, dir, part) in parts.into_iter().chain(bakes) {
            files.extend(part.files.keys().map(|name| (format!("{folder}/{name}"), dir.join(name))));
        }
        files
    }

    fn write_archive(
        &self,
        header: &ArchiveHeader,
        files: &[(String, PathBuf)],
        out: impl Write,
        report: Report<'_>,
    ) -> io::Result<ExportedArchive> {
        let mut stream = zstd::Encoder::new(Hashed::new(out), LEVEL)?;
        stream.include_checksum(true)?;
        let mut tar = tar::Builder::new(Reported::new(stream, header.stored_bytes, report));
        // The same template then becomes the same archive.
        tar.mode(tar::HeaderMode::Deterministic);
        append_json(&mut tar, HEADER, header)?;
        append_json(&mut tar, MANIFEST, &self.manifest)?;
        for (name, path) in files {
            tar.get_mut().next_file(name);
            tar.append_file(name, &mut File::open(path)?)?;
        }
        let (sha256, bytes) = tar.into_inner()?.inner.finish()?.finish()?;
        Ok(ExportedArchive { sha256, bytes })
    }
}

fn append_json(tar: &mut tar::Builder<impl Write>, path: &str, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, path, &*text)
}
