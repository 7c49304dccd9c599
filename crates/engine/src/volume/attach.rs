//! Attaching volumes to a sandbox, and detaching them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::Request;
use sandling_vmm::machine::{Plug, PlugAccess, PlugSource};

use super::error::{VolumeError, check_mount, check_name};
use super::volumes::Volumes;
use crate::machine::{Live, ReadyMachine};
use crate::model::{Attachment, MOST_VOLUMES, SandboxId, SandboxInfo, VolumeId, VolumeInfo, VolumeKind};
use crate::store::Claim;

/// A journal that must be replayed, under emulation, on a busy host.
const MOUNT_WITHIN: Duration = Duration::from_secs(60);
/// What the guest has not written out by then is lost, as in a power failure.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(15);

/// A volume that is wanted in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeSpec {
    pub name: String,
    /// Absent: `/mnt/NAME`.
    pub mount: Option<String>,
    pub read_only: bool,
}

/// Volumes that are kept for a sandbox which is being made. Dropped, they are given back, and those that were made
/// for it are deleted.
pub(crate) struct Claimed {
    volumes: Arc<Volumes>,
    holder: String,
    pub(super) made: Vec<VolumeId>,
    pub(super) wanted: Vec<(Attachment, VolumeInfo)>,
}

impl Volumes {
    /// Claims volumes before anything is made: all, or none. Slots that are taken are left out.
    pub(crate) fn claim(
        self: &Arc<Self>,
        workspace: &str,
        requests: &[VolumeSpec],
        taken: &[u32],
    ) -> Result<Claimed, VolumeError> {
        let mut claimed = Claimed::new(self, format!("create-{}", uuid::Uuid::new_v4()));
        if requests.len() + taken.len() > MOST_VOLUMES {
            return Err(VolumeError::TooMany);
        }
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        let mut slots = (0..).filter(|slot| !taken.contains(slot));
        for request in requests {
            check_name(&request.name).map_err(|_| VolumeError::Unknown(request.name.clone()))?;
            let mount = request.mount.clone().unwrap_or_else(|| format!("/mnt/{}", request.name));
            check_mount(&mount)?;
            for (seen, what) in [(&mut names, &request.name), (&mut places, &mount)] {
                if !seen.insert(what.clone()) {
                    return Err(VolumeError::Twice(what.clone()));
                }
            }
            let found = self.store.volume_named(workspace, &request.name)?;
            let volume = found.ok_or_else(|| VolumeError::Unknown(request.name.clone()))?;
            if volume.kind == VolumeKind::Snapshot && !request.read_only {
                return Err(VolumeError::NeverChanges(request.name.clone()));
            }
            let slot = slots.next().unwrap_or_default();
            claimed.claim(volume, slot, mount, request.read_only)?;
        }
        Ok(claimed)
    }
}

impl Claimed {
    pub(super) fn new(volumes: &Arc<Volumes>, holder: String) -> Self {
        Self { volumes: volumes.clone(), holder, made: Vec::new(), wanted: Vec::new() }
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
        match self.volumes.store.claim_volume(&volume.id, &self.holder, &self.volumes.engine, writes)? {
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
    pub(crate) async fn attach(&mut self, made: &ReadyMachine) -> Result<(), VolumeError> {
        for (attachment, volume) in &mut self.wanted {
            if attachment.read_only && !volume.clean {
                mend(&self.volumes, made, attachment, volume).await?;
                self.volumes.store.only_read_volume(&volume.id, &self.holder)?;
            }
            if !attachment.read_only {
                volume.clean = false;
                self.volumes.store.update_volume(volume)?;
            }
            made.machine().plug(&self.volumes.plug(attachment)).await?;
            mount(made, attachment, attachment.read_only).await?;
        }
        Ok(())
    }

    /// From now on they are the sandbox's, whose row is about to be written.
    pub(crate) fn hand_over(mut self, sandbox: &SandboxId) -> Result<Vec<Attachment>, VolumeError> {
        self.volumes.store.hand_volumes_over(&self.holder, sandbox.as_str())?;
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
        if let Err(error) = self.volumes.store.release_volumes(&self.holder) {
            tracing::warn!(error = &error as &dyn std::error::Error, "volumes were not given back");
        }
        for id in &self.made {
            self.volumes.discard(id);
        }
    }
}

/// Has the guest replay a journal, so that the volume can be attached read-only.
async fn mend(
    volumes: &Volumes,
    made: &ReadyMachine,
    attachment: &Attachment,
    volume: &mut VolumeInfo,
) -> Result<(), VolumeError> {
    let writing = Attachment { read_only: false, ..attachment.clone() };
    made.machine().plug(&volumes.plug(&writing)).await?;
    mount(made, &writing, false).await?;
    let unmount = Request::UnmountVolume { slot: attachment.slot, lost: false };
    made.link().call_within(MOUNT_WITHIN, unmount).await?;
    made.machine().unplug(attachment.slot).await?;
    volume.clean = true;
    Ok(volumes.store.update_volume(volume)?)
}

pub(super) async fn mount(made: &ReadyMachine, attachment: &Attachment, read_only: bool) -> Result<(), VolumeError> {
    let request = Request::MountVolume { slot: attachment.slot, path: attachment.mount.clone(), read_only };
    Ok(made.link().call_within(MOUNT_WITHIN, request).await.map(drop)?)
}

impl Volumes {
    pub(super) fn plug(&self, attachment: &Attachment) -> Plug {
        Plug {
            slot: attachment.slot,
            source: PlugSource::File(self.file(&attachment.volume)),
            access: if attachment.read_only { PlugAccess::ReadOnly } else { PlugAccess::ReadWrite },
        }
    }

    /// What a sandbox that is woken has in its slots.
    pub(crate) fn plugs(&self, info: &SandboxInfo) -> Vec<Plug> {
        info.volumes.iter().map(|attachment| self.plug(attachment)).collect()
    }

    /// Gives a sandbox that has booted its volumes again. Their journals are replayed.
    pub(crate) async fn attach_again(&self, made: &ReadyMachine, info: &SandboxInfo) -> Result<(), VolumeError> {
        for attachment in &info.volumes {
            made.machine().plug(&self.plug(attachment)).await?;
            mount(made, attachment, attachment.read_only).await?;
        }
        Ok(())
    }

    /// Has the guest write out and unmount its volumes before its machine ends. If the guest does not, its volumes have
    /// a journal that the next sandbox replays.
    pub(crate) async fn unmount(&self, live: &Live, info: &SandboxInfo) {
        for attachment in info.volumes.iter().rev() {
            let request = Request::UnmountVolume { slot: attachment.slot, lost: false };
            match live.link.call_within(UNMOUNT_WITHIN, request).await {
                Ok(_) if attachment.read_only => {}
                Ok(_) => {
                    if let Ok(Some(volume)) = self.store.volume(&attachment.volume) {
                        // If this fails, the next sandbox replays an empty journal.
                        let _ = self.store.update_volume(&VolumeInfo { clean: true, ..volume });
                    }
                }
                Err(error) => {
                    tracing::info!(sandbox = %info.id, volume = %attachment.name, error = &error as &dyn std::error::Error, "the guest did not unmount a volume");
                }
            }
        }
    }
}
