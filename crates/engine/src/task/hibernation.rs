//! How machines are put on the disk and brought back. Tests of the task bring their own.

use futures_util::future::BoxFuture;
use sandling_network::Flow;
use sandling_vmm::machine::Afterwards;

use crate::machine::{Live, ReadyMachine, identify, start_services};
use crate::model::{Kept, SandboxInfo, SnapshotId, Standing, Visibility};
use crate::parts::Parts;
use crate::sandbox::CreateError;
use crate::snapshot::{Save, SnapshotError};

/// Writes the copy of a machine, and returns what the sandbox can be woken from.
pub(crate) type Writing = BoxFuture<'static, Result<Standing, SnapshotError>>;

pub(crate) trait Hibernation: Send + Sync {
    /// Stops the machine, which does not resume, and copies it. Returns what its disk stands on from now on, whatever
    /// becomes of the rest.
    fn freeze<'a>(
        &'a self,
        live: &'a Live,
        info: &'a SandboxInfo,
        id: SnapshotId,
        connections: Vec<Flow>,
        kept: Kept,
    ) -> BoxFuture<'a, Result<(Standing, Writing), SnapshotError>>;

    /// Makes a machine from what the sandbox stands on: it goes on where it was saved, or boots if only its disk was
    /// saved. Its guest has confirmed its identity.
    fn restore<'a>(&'a self, info: &'a SandboxInfo) -> BoxFuture<'a, Result<Live, CreateError>>;
}

impl Hibernation for Parts {
    fn freeze<'a>(
        &'a self,
        live: &'a Live,
        info: &'a SandboxInfo,
        id: SnapshotId,
        connections: Vec<Flow>,
        kept: Kept,
    ) -> BoxFuture<'a, Result<(Standing, Writing), SnapshotError>> {
        Box::pin(async move {
            let save = Save {
                snapshots: &self.snapshots,
                machine: &live.machine,
                info,
                id,
                name: None,
                visibility: Visibility::Hidden,
                afterwards: Afterwards::Stopped,
                kept,
                // The sandbox keeps its volumes, so they are not copied.
                volumes: Vec::new(),
                behind: None,
                // From then on the save is all that is left of the sandbox.
                lasting: info.lifetime.persistent || info.lifetime.sleep.at_the_end,
            };
            let mut saving = save.freeze().await?;
            saving.had(connections, Vec::new());
            let standing = saving.standing.clone();
            let writing: Writing = Box::pin(async move { Ok(saving.write(None).await?.0.standing()) });
            Ok((standing, writing))
        })
    }

    fn restore<'a>(&'a self, info: &'a SandboxInfo) -> BoxFuture<'a, Result<Live, CreateError>> {
        Box::pin(async move {
            let Some(saved) = &info.standing.restored else { return self.boot(info).await };
            let snapshot = self.snapshots.get(saved)?.ok_or(CreateError::NoSnapshot)?;
            let mut source = self.snapshots.source(&snapshot)?;
            source.plugs = self.volumes.plugs(info);
            source.volume_mib = info.volumes.iter().map(|volume| volume.size_mib).max().unwrap_or_default();
            if source.disk_name != info.standing.top() {
                // An older version put it to sleep, under another name of its disk.
                source.disk_name = info.standing.top().to_owned();
                source.cached = Ok(None);
            }
            let made = self.machines.factory.restore_as(info.id.clone(), &source).await?;
            match identify(made.link(), &made.id, info.boots, None, info.pids).await {
                Ok(_) => {
                    made.note_fallback(&self.events, &info.workspace);
                    Ok(made.into_live())
                }
                Err(error) => {
                    // Not by dropping it: the next wake makes a directory of the same name.
                    made.discard().await;
                    Err(error.into())
                }
            }
        })
    }
}

impl Parts {
    /// Boots a sandbox from its disk.
    async fn boot(&self, info: &SandboxInfo) -> Result<Live, CreateError> {
        let saved = info.standing.disk.last().ok_or(CreateError::NoSnapshot)?;
        let snapshot = self.snapshots.get(saved)?.ok_or(CreateError::NoSnapshot)?;
        let image = self.snapshots.image(info)?;
        let mut source = self.snapshots.boot_source(&snapshot, &image)?;
        source.volume_mib = info.volumes.iter().map(|volume| volume.size_mib).max().unwrap_or_default();
        source.disk_name = info.standing.top().to_owned();
        let made = self.machines.factory.restore_as(info.id.clone(), &source).await?;
        if let Err(error) = self.set_up(info, &made).await {
            made.discard().await;
            return Err(error);
        }
        let live = made.into_live();
        start_services(&live.link, image.manifest.recipe, &info.id);
        Ok(live)
    }

    /// Tells a guest that has just booted what one that wakes still knows.
    async fn set_up(&self, info: &SandboxInfo, made: &ReadyMachine) -> Result<(), CreateError> {
        let variables = self.networks.variables(info)?;
        identify(made.link(), &made.id, info.boots, Some(&variables), info.pids).await?;
        Ok(self.volumes.attach_again(made, info).await?)
    }
}
