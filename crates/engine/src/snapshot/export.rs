//! Writing a snapshot as one file.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::files::Files;
use super::portable::{Entry, ExportError, MAGIC, MadeOn, Manifest, Role, roles};
use super::restore::BakeFiles;
use super::snapshots::Snapshots;
use crate::hashing::Hashed;
use crate::model::SnapshotInfo;
use crate::sparse::write_parts;

/// Fast, and good enough for memory, which is most of it.
const LEVEL: i32 = 3;

impl Snapshots {
    /// Writes a snapshot with everything that it stands on, after verifying all of its files. Blocks.
    pub fn export(self: &Arc<Self>, snapshot: &SnapshotInfo, out: impl Write) -> Result<(), ExportError> {
        if !snapshot.has_memory() {
            return Err(ExportError::OnlyDisk);
        }
        let _held = self.hold(&snapshot.id);
        self.verify(snapshot)?;
        let bake_files = self.bake_files(snapshot)?;
        let mut files = Vec::new();
        let mut entries = Vec::new();
        for role in roles(snapshot) {
            let file = File::open(self.path_of(snapshot, &bake_files, &role))?;
            entries.push(Entry { role, bytes: file.metadata()?.len() });
            files.push(file);
        }
        let manifest = Manifest {
            snapshot: snapshot.clone(),
            made_on: MadeOn::here(&self.machines.hardware(snapshot.vcpus, snapshot.memory_mib)),
            root: bake_files.root.name,
            baked: bake_files.baked.name,
            files: entries,
        };
        write(&manifest, files, out)?;
        Ok(())
    }

    pub(super) fn path_of(&self, snapshot: &SnapshotInfo, bake_files: &BakeFiles, role: &Role) -> PathBuf {
        let own = Files::new(&self.dir, &snapshot.id);
        match role {
            Role::BaseMemory => bake_files.memory.clone(),
            Role::BaseRoot => bake_files.root.path.clone(),
            Role::BaseDisk => bake_files.baked.path.clone(),
            Role::Pages(id) => Files::new(&self.dir, id).pages(),
            Role::Disk(id) => Files::new(&self.dir, id).disk(),
            Role::Map => own.map(),
            Role::State => own.state(),
            Role::Overlay => own.overlay(),
            Role::Volume(slot) => own.volume(*slot),
        }
    }
}

fn write(manifest: &Manifest, files: Vec<File>, mut out: impl Write) -> io::Result<()> {
    out.write_all(MAGIC)?;
    let mut stream = zstd::Encoder::new(out, LEVEL)?;
    let text = serde_json::to_vec(manifest)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&text)?;
    let mut all = blake3::Hasher::new();
    all.update(&text);
    for (entry, file) in manifest.files.iter().zip(files) {
        let mut hashed = Hashed::new(&mut stream);
        write_parts(file, entry.bytes, &mut hashed)?;
        let digest = hashed.digest();
        all.update(&digest);
        stream.write_all(&digest)?;
    }
    stream.write_all(all.finalize().as_bytes())?;
    stream.finish()?.flush()
}
