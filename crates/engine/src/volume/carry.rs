//! What becomes of the volumes of a machine that was saved with them: each slot must have something in it again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::Request;
use sandling_vmm::machine::{Plug, PlugAccess, PlugSource};

use super::attach::{Claimed, mount, plug};
use super::info::{Attachment, OnVolumes, SavedVolume, VolumeError, VolumeInfo, VolumeKind};
use super::make::volume;
use crate::engine::Engine;
use crate::made::Made;
use crate::sandbox::SandboxId;
use crate::snapshot::{Files, SnapshotInfo};
use crate::store::Listed;

const LET_GO_WITHIN: Duration = Duration::from_secs(15);

/// What is to be kept of a sandbox's volumes when it is saved.
pub(crate) fn copies(attached: &[Attachment], then: OnVolumes, listed: Listed) -> Vec<SavedVolume> {
    let saved = attached.iter().map(|was| {
        // What nobody can write can be read by a child, too; but a snapshot may outlive it, and so may a child.
        let stays = was.read_only && !was.private && then == OnVolumes::ReadOnly && listed == Listed::No;
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

impl Engine {
    /// Makes what the slots of a restored machine need: copies, or nothing where there is to be nothing.
    pub(crate) async fn carry_volumes(
        self: &Arc<Self>,
        snapshot: &SnapshotInfo,
        child: &SandboxId,
        workspace: &str,
    ) -> Result<Carried, VolumeError> {
        let (engine, snapshot) = (self.clone(), snapshot.clone());
        let (child, workspace) = (child.clone(), workspace.to_owned());
        let carrying = tokio::task::spawn_blocking(move || engine.carry(&snapshot, &child, &workspace));
        carrying.await.map_err(|_| VolumeError::CutOff)?
    }

    fn carry(
        self: &Arc<Self>,
        snapshot: &SnapshotInfo,
        child: &SandboxId,
        workspace: &str,
    ) -> Result<Carried, VolumeError> {
        let claimed = Claimed::new(self, format!("create-{}", uuid::Uuid::new_v4()));
        let mut carried = Carried { claimed, plugs: Vec::new(), lost: Vec::new(), sealed: Vec::new() };
        let files = Files::new(&self.config.home.snapshots(), &snapshot.id);
        for saved in &snapshot.volumes {
            let was = &saved.was;
            if saved.then == OnVolumes::Detach {
                let source = PlugSource::Nothing { bytes: u64::from(was.size_mib) << 20 };
                let access = if was.read_only { PlugAccess::ReadOnly } else { PlugAccess::ReadWrite };
                carried.plugs.push(Plug { slot: was.slot, source, access });
                carried.lost.push(was.slot);
                continue;
            }
            let volume = if saved.copied {
                let file = files.volume(was.slot);
                carried.copied(self, saved, file, child, workspace)?
            } else {
                let found = self.store.volume(&was.volume)?.filter(|volume| volume.workspace == workspace);
                found.ok_or_else(|| VolumeError::Unknown(was.name.clone()))?
            };
            // The guest has it mounted; what its journal says, its memory knows.
            let volume = VolumeInfo { clean: true, ..volume };
            carried.claimed.claim(volume, was.slot, was.mount.clone(), was.read_only)?;
            let Some((attachment, _)) = carried.claimed.wanted.last_mut() else { continue };
            carried.plugs.push(plug(self, attachment));
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
        engine: &Engine,
        saved: &SavedVolume,
        file: PathBuf,
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
        engine.volume_from(&file, &info)?;
        self.claimed.made.push(info.id.clone());
        Ok(info)
    }

    /// Tells the guest, which has all of them mounted, what is gone and what it may no longer write.
    pub(crate) async fn settle(&self, made: &Made) -> Result<(), VolumeError> {
        for &slot in &self.lost {
            let unmount = Request::UnmountVolume { slot, lost: true };
            made.link().call_within(LET_GO_WITHIN, unmount).await?;
            made.machine().unplug(slot).await?;
        }
        for attachment in &self.sealed {
            mount(made, attachment, true).await?;
        }
        Ok(())
    }
}
