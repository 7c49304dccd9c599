//! Copying a volume, also while a sandbox writes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sandling_vmm::disk::copy_sparse;

use super::error::{VolumeError, check_name};
use super::make::{VolumeView, volume};
use super::send::VolumeMoment;
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
        let source = self.source(workspace, name)?;
        if self.store.volume_named(workspace, copy)?.is_some() {
            return Err(VolumeError::Exists(copy.to_owned()));
        }
        let info = volume(workspace, copy, source.size_mib, kind, Some(&source));
        self.begin(source, info)
    }

    /// The same for a copy that another home gets. [`Volumes::finish_moment`] must follow.
    pub(crate) fn begin_moment(&self, workspace: &str, name: &str) -> Result<Copying, VolumeError> {
        let source = self.source(workspace, name)?;
        let info = volume(workspace, name, source.size_mib, VolumeKind::Ordinary, Some(&source));
        self.begin(source, info)
    }

    fn source(&self, workspace: &str, name: &str) -> Result<VolumeInfo, VolumeError> {
        self.store.volume_named(workspace, name)?.ok_or_else(|| VolumeError::Unknown(name.to_owned()))
    }

    fn begin(&self, source: VolumeInfo, info: VolumeInfo) -> Result<Copying, VolumeError> {
        self.room_for(source.size_mib)?;
        let reader = format!("copy-{}", info.id);
        let writer = match self.store.claim_volume(&source.id, &reader, &self.engine, false)? {
            Claim::Granted => None,
            Claim::HeldBy(writer) => Some(writer),
            Claim::Gone => return Err(VolumeError::Unknown(source.name)),
        };
        let (from, to) = (self.file(&source.id), self.file(&info.id));
        Ok(Copying { info, from, to, writer, reader })
    }

    pub(crate) fn finish_copy(
        &self,
        copying: Copying,
        copied: Result<(), VolumeError>,
    ) -> Result<VolumeView, VolumeError> {
        self.release(&copying)?;
        self.enter(copying.info, copied)
    }

    /// Ends a copy that another home gets. The file loses its name, so nothing is left of it when the copy is dropped or
    /// this process dies.
    pub(crate) fn finish_moment(
        &self,
        copying: Copying,
        copied: Result<(), VolumeError>,
    ) -> Result<VolumeMoment, VolumeError> {
        let opened = copied.and_then(|()| Ok(File::open(&copying.to)?));
        // After a failure, there may be no file.
        let _ = fs::remove_file(&copying.to);
        self.release(&copying)?;
        Ok(VolumeMoment { file: opened?, size_mib: copying.info.size_mib, is_clean: copying.info.clean })
    }

    fn release(&self, copying: &Copying) -> Result<(), VolumeError> {
        if copying.writer.is_none() {
            self.store.release_volumes(&copying.reader)?;
        }
        Ok(())
    }
}

/// Copies a volume's file, holes as holes.
pub(crate) async fn copy_file(from: &Path, to: &Path) -> Result<(), VolumeError> {
    let (from, to) = (from.to_owned(), to.to_owned());
    let copying = tokio::task::spawn_blocking(move || copy_sparse(&from, &to));
    Ok(copying.await.map_err(|_| VolumeError::CutOff)??)
}
