//! From a wish for a volume to a mounted one, and back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::Request;
use sandling_vmm::machine::{Plug, PlugAccess, PlugSource};

use super::info::{Attachment, MOST_VOLUMES, VolumeError, VolumeId, VolumeInfo, VolumeKind, check_mount, check_name};
use crate::engine::Engine;
use crate::made::Made;
use crate::sandbox::{Live, SandboxId, SandboxInfo};
use crate::store::Claim;

/// A journal that must be replayed, under emulation, on a busy host.
const MOUNT_WITHIN: Duration = Duration::from_secs(60);
/// What the guest has not written out by then is lost, as by a power cut.
const LET_GO_WITHIN: Duration = Duration::from_secs(15);

/// A volume that is wanted in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeWish {
    pub name: String,
    /// Absent: `/mnt/NAME`.
    pub mount: Option<String>,
    pub read_only: bool,
}

/// Volumes that are kept for a sandbox which is being made. Dropped, they are given back, and those that were made
/// for it are deleted.
pub(crate) struct Claimed {
    engine: Arc<Engine>,
    holder: String,
    pub(super) made: Vec<VolumeId>,
    pub(super) wanted: Vec<(Attachment, VolumeInfo)>,
}

impl Engine {
    /// Claims volumes before anything is made: all, or none. Slots that are taken are left out.
    pub(crate) fn claim_volumes(
        self: &Arc<Self>,
        workspace: &str,
        wishes: &[VolumeWish],
        taken: &[u32],
    ) -> Result<Claimed, VolumeError> {
        let mut claimed = Claimed::new(self, format!("create-{}", uuid::Uuid::new_v4()));
        if wishes.len() + taken.len() > MOST_VOLUMES {
            return Err(VolumeError::TooMany);
        }
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        let mut slots = (0..).filter(|slot| !taken.contains(slot));
        for wish in wishes {
            check_name(&wish.name).map_err(|_| VolumeError::Unknown(wish.name.clone()))?;
            let mount = wish.mount.clone().unwrap_or_else(|| format!("/mnt/{}", wish.name));
            check_mount(&mount)?;
            for (seen, what) in [(&mut names, &wish.name), (&mut places, &mount)] {
                if !seen.insert(what.clone()) {
                    return Err(VolumeError::Twice(what.clone()));
                }
            }
            let found = self.store.volume_named(workspace, &wish.name)?;
            let volume = found.ok_or_else(|| VolumeError::Unknown(wish.name.clone()))?;
            if volume.kind == VolumeKind::Snapshot && !wish.read_only {
                return Err(VolumeError::NeverChanges(wish.name.clone()));
            }
            let slot = slots.next().unwrap_or_default();
            claimed.claim(volume, slot, mount, wish.read_only)?;
        }
        Ok(claimed)
    }
}

impl Claimed {
    pub(super) fn new(engine: &Arc<Engine>, holder: String) -> Self {
        Self { engine: engine.clone(), holder, made: Vec::new(), wanted: Vec::new() }
    }

    pub(crate) fn largest_mib(&self) -> u32 {
        self.wanted.iter().map(|(_, volume)| volume.size_mib).max().unwrap_or_default()
    }

    pub(super) fn claim(
        &mut self,
        volume: VolumeInfo,
        slot: u32,
        mount: String,
        read_only: bool,
    ) -> Result<(), VolumeError> {
        // One with a journal to be replayed is written once before it is read.
        let writes = !read_only || !volume.clean;
        match self.engine.store.claim_volume(&volume.id, &self.holder, self.engine.owner.id(), writes)? {
            Claim::Granted => {}
            Claim::HeldBy(by) => return Err(VolumeError::InUse { name: volume.name, by }),
            Claim::Gone => return Err(VolumeError::Unknown(volume.name)),
        }
        let attachment = Attachment {
            slot,
            volume: volume.id.clone(),
            name: volume.name.clone(),
            mount,
            read_only,
            size_mib: volume.size_mib,
            private: volume.is_private().is_some(),
        };
        self.wanted.push((attachment, volume));
        Ok(())
    }

    /// Plugs all of them in and has the guest mount them.
    pub(crate) async fn attach(&mut self, made: &Made) -> Result<(), VolumeError> {
        for (attachment, volume) in &mut self.wanted {
            if attachment.read_only && !volume.clean {
                mend(&self.engine, made, attachment, volume).await?;
                self.engine.store.only_read_volume(&volume.id, &self.holder)?;
            }
            if !attachment.read_only {
                volume.clean = false;
                self.engine.store.update_volume(volume)?;
            }
            made.machine().plug(&plug(&self.engine, attachment)).await?;
            mount(made, attachment, attachment.read_only).await?;
        }
        Ok(())
    }

    /// From now on they are the sandbox's, whose row is about to be written.
    pub(crate) fn hand_over(mut self, sandbox: &SandboxId) -> Result<Vec<Attachment>, VolumeError> {
        self.engine.store.hand_volumes_over(&self.holder, sandbox.as_str())?;
        self.made.clear();
        self.holder.clear();
        Ok(std::mem::take(&mut self.wanted).into_iter().map(|(attachment, _)| attachment).collect())
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.holder.is_empty() {
            return;
        }
        if let Err(error) = self.engine.store.release_volumes(&self.holder) {
            tracing::warn!(error = &error as &dyn std::error::Error, "volumes were not given back");
        }
        for id in &self.made {
            self.engine.drop_volume(id);
        }
    }
}

/// Has the guest replay a journal, so that the volume can be read by those who may not write.
async fn mend(
    engine: &Engine,
    made: &Made,
    attachment: &Attachment,
    volume: &mut VolumeInfo,
) -> Result<(), VolumeError> {
    let writing = Attachment { read_only: false, ..attachment.clone() };
    made.machine().plug(&plug(engine, &writing)).await?;
    mount(made, &writing, false).await?;
    let unmount = Request::UnmountVolume { slot: attachment.slot, lost: false };
    made.link().call_within(MOUNT_WITHIN, unmount).await?;
    made.machine().unplug(attachment.slot).await?;
    volume.clean = true;
    Ok(engine.store.update_volume(volume)?)
}

pub(super) async fn mount(made: &Made, attachment: &Attachment, read_only: bool) -> Result<(), VolumeError> {
    let request = Request::MountVolume { slot: attachment.slot, path: attachment.mount.clone(), read_only };
    Ok(made.link().call_within(MOUNT_WITHIN, request).await.map(drop)?)
}

pub(super) fn plug(engine: &Engine, attachment: &Attachment) -> Plug {
    Plug {
        slot: attachment.slot,
        source: PlugSource::File(engine.volume_file(&attachment.volume)),
        access: if attachment.read_only { PlugAccess::ReadOnly } else { PlugAccess::ReadWrite },
    }
}

/// What a sandbox that is woken has in its slots.
pub(crate) fn plugs(engine: &Engine, info: &SandboxInfo) -> Vec<Plug> {
    info.volumes.iter().map(|attachment| plug(engine, attachment)).collect()
}

/// Has the guest write out and unmount what it has, before its machine ends. One that does not is cut off; its journal
/// is replayed when the volume is next used.
pub(crate) async fn let_go(engine: &Engine, live: &Live, info: &SandboxInfo) {
    for attachment in info.volumes.iter().rev() {
        let request = Request::UnmountVolume { slot: attachment.slot, lost: false };
        let answer = live.link.call_within(LET_GO_WITHIN, request).await;
        match answer {
            Ok(_) if attachment.read_only => {}
            Ok(_) => {
                let known = engine.store.volume(&attachment.volume);
                if let Ok(Some(volume)) = known {
                    // One that is taken for unclean is only mended in vain.
                    let _ = engine.store.update_volume(&VolumeInfo { clean: true, ..volume });
                }
            }
            Err(error) => {
                tracing::info!(sandbox = %info.id, volume = %attachment.name, error = &error as &dyn std::error::Error, "a volume was not unmounted");
            }
        }
    }
}
