//! Copying a volume, also while a sandbox writes it.

use std::path::{Path, PathBuf};

use sandling_vmm::disk::copy_sparse;

use super::error::{VolumeError, check_name};
use super::make::{VolumeView, volume};
use super::volumes::Volumes;
use crate::model::{VolumeInfo, VolumeKind};
use crate::store::Claim;

/// A copy that is to be made. [`Volumes::finish_copy`] must follow, whether the copying worked or not.
pub(crate) struct Copying {
    info: VolumeInfo,
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    /// The sandbox that writes the volume and has to stop for the copy. Without one, this engine holds a claim as a
    /// reader, so that nothing can write or delete the volume meanwhile.
    pub(crate) writer: Option<String>,
    reader: String,
}

impl Volumes {
    pub(crate) fn begin_copy(
        &self,
        workspace: &str,
        name: &str,
        copy: &str,
        kind: VolumeKind,
    ) -> Result<Copying, VolumeError> {
        check_name(copy)?;
        let unknown = || VolumeError::Unknown(name.to_owned());
        let source = self.store.volume_named(workspace, name)?.ok_or_else(unknown)?;
        if self.store.volume_named(workspace, copy)?.is_some() {
            return Err(VolumeError::Exists(copy.to_owned()));
        }
        self.room_for(source.size_mib)?;
        let info = volume(workspace, copy, source.size_mib, kind, Some(&source));
        let reader = format!("copy-{}", info.id);
        let writer = match self.store.claim_volume(&source.id, &reader, &self.engine, false)? {
            Claim::Granted => None,
            Claim::HeldBy(writer) => Some(writer),
            Claim::Gone => return Err(unknown()),
        };
        let (from, to) = (self.file(&source.id), self.file(&info.id));
        Ok(Copying { info, from, to, writer, reader })
    }

    pub(crate) fn finish_copy(
        &self,
        copying: Copying,
        copied: Result<(), VolumeError>,
    ) -> Result<VolumeView, VolumeError> {
        if copying.writer.is_none() {
            self.store.release_volumes(&copying.reader)?;
        }
        self.enter(copying.info, copied)
    }
}

/// Copies a volume's file, holes as holes.
pub(crate) async fn copy_file(from: &Path, to: &Path) -> Result<(), VolumeError> {
    let (from, to) = (from.to_owned(), to.to_owned());
    let copying = tokio::task::spawn_blocking(move || copy_sparse(&from, &to));
    Ok(copying.await.map_err(|_| VolumeError::CutOff)??)
}
