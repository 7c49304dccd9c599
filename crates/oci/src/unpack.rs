//! Makes a root disk of an image's layers. Runs in the confined process that `jail` starts.

use std::fs::File;

use serde::{Deserialize, Serialize};

use crate::blocks::{BlockWriter, Ext4Error};
use crate::ext4::write_metadata;
use crate::layers::{Applier, EntryKind, LayerError, LayerInput, LayerStream, Limits, Tree, apply_layer};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackOptions {
    pub disk_mib: u32,
    pub limits: Limits,
    /// Entries to create after the layers, unless their paths exist.
    pub extras: Vec<Extra>,
}

/// An entry that is not part of the image. It belongs to root, and its time is 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Extra {
    Directory { path: String, mode: u16 },
    File { path: String, mode: u16, content: String },
    Symlink { path: String, target: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The layer that is being read, from 1.
    pub layer: usize,
    pub layers: usize,
    /// Bytes of all layers as they are stored, and how many of them were read.
    pub read: u64,
    pub total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Bytes of all layers, uncompressed.
    pub layer_bytes: u64,
    /// Bytes of the disk that files and directories take.
    pub disk_bytes: u64,
    pub inodes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Ext4(#[from] Ext4Error),
}

impl UnpackError {
    /// Whether the image would fit on a larger disk.
    pub fn is_disk_too_small(&self) -> bool {
        match self {
            Self::Layer(LayerError::Store { source, .. }) => matches!(**source, Ext4Error::DiskTooSmall { .. }),
            Self::Ext4(error) => matches!(error, Ext4Error::DiskTooSmall { .. }),
            Self::Layer(_) => false,
        }
    }
}

/// Progress is reported after this many bytes.
const PROGRESS_STEP: u64 = 4 << 20;

/// Writes an ext4 file system with the content of `layers`, from bottom to top, to `out`.
pub fn unpack(
    layers: &[LayerInput],
    out: &File,
    options: &UnpackOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, UnpackError> {
    let mut tree = Tree::new();
    let mut blocks = BlockWriter::new(out, options.disk_mib)?;
    let total = layers.iter().map(|layer| layer.length).sum();
    let (mut layer_bytes, mut read_before, mut reported) = (0, 0, 0);
    for (index, input) in layers.iter().enumerate() {
        let layer = index + 1;
        progress(Progress { layer, layers: layers.len(), read: read_before, total });
        let stream = LayerStream::open(input, layer, &options.limits, layer_bytes)?;
        let mut applier = Applier { tree: &mut tree, blocks: &mut blocks, limits: &options.limits, layer };
        layer_bytes += apply_layer(&mut applier, stream, &mut |read_of_layer, _| {
            let read = read_before + read_of_layer;
            if read >= reported + PROGRESS_STEP {
                reported = read;
                progress(Progress { layer, layers: layers.len(), read, total });
            }
        })?;
        read_before += input.length;
    }
    let layer = layers.len() + 1;
    let mut applier = Applier { tree: &mut tree, blocks: &mut blocks, limits: &options.limits, layer };
    for extra in &options.extras {
        add_extra(&mut applier, extra)?;
    }
    let written = write_metadata(&tree, blocks)?;
    progress(Progress { layer: layers.len(), layers: layers.len(), read: total, total });
    Ok(Summary { layer_bytes, disk_bytes: written.used_blocks * 4096, inodes: written.inodes })
}

fn add_extra(applier: &mut Applier<'_>, extra: &Extra) -> Result<(), LayerError> {
    match extra {
        Extra::Directory { path, mode } => applier.add_if_missing(path.as_bytes(), EntryKind::Directory, *mode, b""),
        Extra::File { path, mode, content } => {
            applier.add_if_missing(path.as_bytes(), EntryKind::File, *mode, content.as_bytes())
        }
        Extra::Symlink { path, target } => {
            let target = target.clone().into_bytes();
            applier.add_if_missing(path.as_bytes(), EntryKind::Symlink { target }, 0o777, b"")
        }
    }
}
