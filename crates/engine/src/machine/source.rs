//! What a machine is restored from.

use std::path::PathBuf;

use sandling_image::Image;
use sandling_vmm::machine::{Hardware, Layer, Plug};
use sandling_vmm::memory::Memory;

use super::pages_written::PagesWritten;
use crate::process_cache::{Cached, Fallback};

/// What a machine is restored from: a template's bake, or a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) hardware: Hardware,
    pub(crate) memory: Memory,
    pub(crate) state: PathBuf,
    /// The layers below its disk, the lowest first.
    pub(crate) layers: Vec<Layer>,
    /// An empty disk on top of them, which is copied for the machine.
    pub(crate) overlay: PathBuf,
    pub(crate) disk_mib: u32,
    /// What goes into the slots that were in use when it was saved.
    pub(crate) plugs: Vec<Plug>,
    /// The size of the largest volume that it may get.
    pub(crate) volume_mib: u32,
    /// The name of its disk among its files.
    pub(crate) disk_name: String,
    /// A process that the same machine can be resumed from, which is faster. All other fields describe the restore from
    /// device state, to which a failed resume falls back. An error says why a cached process cannot even be tried.
    pub(crate) cached: Result<Option<Cached>, Fallback>,
    /// The pages of its topmost layer, if they are still being written. A resumed process waits for each page that it needs;
    /// a machine that is restored from device state waits for all of them.
    pub(crate) unwritten: Option<PagesWritten>,
}

impl Source {
    /// The cached process, if there is one that can be tried.
    pub(super) fn cached(&self) -> Option<&Cached> {
        self.cached.as_ref().ok()?.as_ref()
    }

    /// The same machine, resumed from its cached process.
    pub(super) fn resumed(&self, cached: &Cached) -> Self {
        let Cached { memory, overlay, .. } = cached.clone();
        Self { memory, overlay, ..self.clone() }
    }
}

/// The layer of a template's root disk.
pub(crate) fn root_layer(image: &Image) -> Layer {
    Layer { name: format!("root-{}", image.manifest.root.id), path: image.root_img() }
}
