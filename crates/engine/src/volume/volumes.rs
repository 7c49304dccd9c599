//! The volumes of one home directory.

use std::path::PathBuf;
use std::sync::Arc;

use crate::model::VolumeId;
use crate::store::Store;

pub struct Volumes {
    pub(super) store: Arc<Store>,
    /// Where the files are.
    pub(super) dir: PathBuf,
    /// The id of this engine, which marks the claims that end with it.
    pub(super) engine: String,
}

impl Volumes {
    pub(crate) fn new(store: Arc<Store>, dir: PathBuf, engine: String) -> Self {
        Self { store, dir, engine }
    }

    pub(crate) fn file(&self, id: &VolumeId) -> PathBuf {
        id.file(&self.dir)
    }
}
