//! A snapshot as files and what describes them, for a store that keeps each file by its content.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::portable::{Entry, ExportError, MadeOn, Manifest, Role, roles};
use super::restore::BakeFiles;
use super::snapshots::{HeldSnapshot, Snapshots};
use crate::model::{Part, SnapshotId, SnapshotInfo};

/// The longest part of a file that is read at once for another node.
const LONGEST_READ: usize = 16 << 20;

/// A snapshot's files, which stay until this is dropped.
pub struct SnapshotParts {
    /// What an export begins with.
    pub manifest: Value,
    pub made_on: HostNeeds,
    pub files: Vec<PartFile>,
    _held: HeldSnapshot,
}

/// What a host must have to restore a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNeeds {
    pub accelerator: String,
    pub cpu_model: String,
    pub device_model: u32,
    pub emulator: String,
}

impl From<MadeOn> for HostNeeds {
    fn from(made_on: MadeOn) -> Self {
        let MadeOn { accelerator, cpu_model, device_model, emulator } = made_on;
        Self { accelerator, cpu_model, device_model, emulator }
    }
}

/// One file of a snapshot.
pub struct PartFile {
    /// What it is of the snapshot, such as `pages/ID`.
    pub name: String,
    pub path: PathBuf,
    /// Names the file's bytes, if that is known without reading them.
    pub content: Option<String>,
    /// Whether it is of the template, which other workspaces may use.
    pub is_of_template: bool,
}

impl Snapshots {
    /// The files of a snapshot. Its layers have the sizes that were written; their digests are for the reader to check.
    pub fn parts(self: &Arc<Self>, snapshot: &SnapshotInfo) -> Result<SnapshotParts, ExportError> {
        if !snapshot.has_memory() {
            return Err(ExportError::OnlyDisk);
        }
        let held = self.hold(&snapshot.id);
        self.check_files(snapshot)?;
        let bake_files = self.bake_files(snapshot)?;
        let (mut files, mut entries) = (Vec::new(), Vec::new());
        for role in roles(snapshot) {
            let path = self.path_of(snapshot, &bake_files, &role);
            let bytes = std::fs::metadata(&path)?.len();
            files.push(PartFile {
                name: role.file_name(),
                content: content(snapshot, &bake_files, &role),
                is_of_template: matches!(role, Role::BaseMemory | Role::BaseRoot | Role::BaseDisk),
                path,
            });
            entries.push(Entry { role, bytes });
        }
        let made_on = MadeOn::here(&self.machines.hardware(snapshot.vcpus, snapshot.memory_mib));
        let manifest = Manifest {
            snapshot: snapshot.clone(),
            made_on: made_on.clone(),
            root: bake_files.root.name,
            baked: bake_files.baked.name,
            files: entries,
        };
        let manifest = serde_json::to_value(manifest).map_err(io::Error::other)?;
        Ok(SnapshotParts { manifest, made_on: made_on.into(), files, _held: held })
    }

    /// What this host has, as far as snapshots care.
    pub fn host(&self) -> HostNeeds {
        MadeOn::here(&self.machines.hardware(1, 1)).into()
    }

    /// A snapshot of a workspace, listed or not.
    pub fn find_any(&self, workspace: &str, id: &SnapshotId) -> Result<Option<SnapshotInfo>, crate::StoreError> {
        Ok(self.get(id)?.filter(|info| info.workspace == workspace))
    }

    /// A part of a file of a snapshot, for another node. `None` if this home does not have the snapshot. Blocks.
    pub fn read_part(
        self: &Arc<Self>,
        workspace: &str,
        id: &SnapshotId,
        file: &str,
        at: u64,
        bytes: usize,
    ) -> Result<Option<Vec<u8>>, ExportError> {
        let found = self.find_any(workspace, id).ok().flatten();
        let Some(snapshot) = found.filter(SnapshotInfo::has_memory) else { return Ok(None) };
        let _held = self.hold(id);
        let Some(role) = roles(&snapshot).into_iter().find(|role| role.file_name() == file) else { return Ok(None) };
        let mut part = vec![0; bytes.min(LONGEST_READ)];
        let opened = File::open(self.path_of(&snapshot, &self.bake_files(&snapshot)?, &role))?;
        opened.read_exact_at(&mut part, at)?;
        Ok(Some(part))
    }
}

impl Role {
    pub(super) fn file_name(&self) -> String {
        match self {
            Self::BaseMemory => "base/memory".to_owned(),
            Self::BaseRoot => "base/root".to_owned(),
            Self::BaseDisk => "base/disk".to_owned(),
            Self::Pages(id) => format!("pages/{id}"),
            Self::Disk(id) => format!("disk/{id}"),
            Self::Map => "map".to_owned(),
            Self::State => "state".to_owned(),
            Self::Overlay => "overlay".to_owned(),
            Self::Volume(slot) => format!("volume/{slot}"),
        }
    }
}

/// What names the bytes of a file. The files of a template never change, and have names of their own.
fn content(snapshot: &SnapshotInfo, bake_files: &BakeFiles, role: &Role) -> Option<String> {
    match role {
        Role::Pages(id) => snapshot.sum(Part::Memory, id).map(|sum| sum.digest),
        Role::Disk(id) => snapshot.sum(Part::Disk, id).map(|sum| sum.digest),
        Role::BaseRoot => Some(bake_files.root.name.clone()),
        Role::BaseMemory => Some(format!("{} memory", bake_files.baked.name)),
        Role::BaseDisk => Some(format!("{} disk", bake_files.baked.name)),
        Role::Map | Role::State | Role::Overlay | Role::Volume(_) => None,
    }
}
