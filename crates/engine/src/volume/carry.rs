//! What becomes of the volumes of a machine that was saved with them: each slot must have something in it again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::Request;
use sandling_vmm::machine::{Plug, PlugAccess, PlugSource};

use super::attach::{Claimed, mount};
use super::error::VolumeError;
use super::make::volume;
use super::volumes::Volumes;
use crate::machine::ReadyMachine;
use crate::model::{Attachment, OnVolumes, SandboxId, SavedVolume, Visibility, VolumeInfo, VolumeKind};

const UNMOUNT_WITHIN: Duration = Duration::from_secs(15);

/// What is to be kept of a sandbox's volumes when it is saved.
pub(crate) fn copies(attached: &[Attachment], then: OnVolumes, visibility: Visibility) -> Vec<SavedVolume> {
    let saved = attached.iter().map(|was| {
        // A child can read a read-only volume itself. A listed snapshot may outlive the volume, so it needs a copy.
        let stays = was.read_only && !was.private && then == OnVolumes::ReadOnly && visibility == Visibility::Hidden;
        SavedVolume { was: was.clone(), then, copied: then != OnVolumes::Detach && !stays }
    });
    saved.collect()
}

/// Volumes of a sandbox that is being restored from a snapshot.
pub(crate) struct Carried {
    pub(crate) claimed: Claimed,
    pub(crate) plugs: Vec<Plug>,
    lost: Vec<u32>,
    sealed: Vec<Attachment>,
}

impl Volumes {
    /// Makes what the slots of a restored machine need: copies of the files in `saved`, or empty disks.
    pub(crate) async fn carry(
        self: &Arc<Self>,
        saved: Vec<(SavedVolume, PathBuf)>,
        child: &SandboxId,
        workspace: &str,
    ) -> Result<Carried, VolumeError> {
        let (volumes, child, workspace) = (self.clone(), child.clone(), workspace.to_owned());
        let carrying = tokio::task::spawn_blocking(move || volumes.carry_blocking(saved, &child, &workspace));
        carrying.await.map_err(|_| VolumeError::CutOff)?
    }

    fn carry_blocking(
        self: &Arc<Self>,
        saved: Vec<(SavedVolume, PathBuf)>,
        child: &SandboxId,
        workspace: &str,
    ) -> Result<Carried, VolumeError> {
        let claimed = Claimed::new(self, format!("create-{}", uuid::Uuid::new_v4()));
        let mut carried = Carried { claimed, plugs: Vec::new(), lost: Vec::new(), sealed: Vec::new() };
        for (saved, file) in saved {
            let was = &saved.was;
            if saved.then == OnVolumes::Detach {
                let source = PlugSource::Nothing { bytes: u64::from(was.size_mib) << 20 };
                let access = if was.read_only { PlugAccess::ReadOnly } else { PlugAccess::ReadWrite };
                carried.plugs.push(Plug { slot: was.slot, source, access });
                carried.lost.push(was.slot);
                continue;
            }
            let volume = if saved.copied {
                carried.copied(self, &saved, &file, child, workspace)?
            } else {
                let found = self.store.volume(&was.volume)?.filter(|volume| volume.workspace == workspace);
                found.ok_or_else(|| VolumeError::Unknown(was.name.clone()))?
            };
            // The guest has it mounted; what its journal says, its memory knows.
            let volume = VolumeInfo { clean: true, ..volume };
            carried.claimed.claim(volume, was.slot, was.mount.clone(), was.read_only)?;
            let Some((attachment, _)) = carried.claimed.wanted.last_mut() else { continue };
            carried.plugs.push(self.plug(attachment));
            if saved.then == OnVolumes::ReadOnly && !was.read_only {
                // To the guest it becomes so once it is there; until then it writes out what it still held back.
                attachment.read_only = true;
                carried.sealed.push(attachment.clone());
            }
        }
        Ok(carried)
    }
}

impl Carried {
    fn copied(
        &mut self,
        volumes: &Volumes,
        saved: &SavedVolume,
        file: &Path,
        child: &SandboxId,
        workspace: &str,
    ) -> Result<VolumeInfo, VolumeError> {
        let was = &saved.was;
        let (name, kind) = match saved.then {
            OnVolumes::Clone => (format!("{:.55}-{}", was.name, &child.as_str()[..8]), VolumeKind::Ordinary),
            OnVolumes::ReadOnly | OnVolumes::Detach => (was.name.clone(), VolumeKind::Private(child.clone())),
        };
        let mut info = volume(workspace, &name, was.size_mib, kind, None);
        info.from = Some(was.name.clone());
        info.clean = was.read_only;
        volumes.create_from(file, &info)?;
        self.claimed.made.push(info.id.clone());
        Ok(info)
    }

    /// Tells the guest, which has all of them mounted, what is gone and what it may no longer write.
    pub(crate) async fn settle(&self, made: &ReadyMachine) -> Result<(), VolumeError> {
        for &slot in &self.lost {
            let unmount = Request::UnmountVolume { slot, lost: true };
            made.link().call_within(UNMOUNT_WITHIN, unmount).await?;
            made.machine().unplug(slot).await?;
        }
        for attachment in &self.sealed {
            mount(made, attachment, true).await?;
        }
        Ok(())
    }
}
