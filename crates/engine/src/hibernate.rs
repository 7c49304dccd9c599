//! Hibernation: the same save as a snapshot's, after which the machine ends, and a restore under the same id.
//!
//! What a sandbox was saved as is what it is woken from, and nothing else can be: the save is the last thing its
//! machine did, and its row names it before the machine ends.

use std::sync::Arc;

use sandling_vmm::machine::Afterwards;

use crate::create::CreateError;
use crate::engine::Engine;
use crate::identify::identify;
use crate::sandbox::{Live, SandboxInfo};
use crate::snapshot::{Save, Saving, SnapshotError, SnapshotId};
use crate::store::Listed;
use crate::volume;

/// Stops a machine that will not go on, to be saved.
pub(crate) async fn freeze(
    engine: &Arc<Engine>,
    live: &Live,
    info: &SandboxInfo,
    id: SnapshotId,
) -> Result<Saving, SnapshotError> {
    let afterwards = Afterwards::Stopped;
    // Its volumes stay its own, so nothing of them need be kept.
    let volumes = Vec::new();
    let machine = &live.machine;
    let process = true;
    // From then on there is nothing else of it.
    let lasting = info.lifetime.persistent || info.lifetime.sleep.at_the_end;
    let (name, listed) = (None, Listed::No);
    Save { engine, machine, info, id, name, listed, afterwards, volumes, process, lasting }.freeze().await
}

/// A machine that goes on where this sandbox was saved.
pub(crate) async fn wake(engine: &Arc<Engine>, info: &SandboxInfo) -> Result<Live, CreateError> {
    let saved = info.standing.restored.as_ref().ok_or(CreateError::NoSnapshot)?;
    let (snapshot, _) = engine.store.snapshot(saved)?.ok_or(CreateError::NoSnapshot)?;
    let mut source = snapshot.source(engine).await?;
    source.plugs = volume::plugs(engine, info);
    source.volume_mib = info.volumes.iter().map(|volume| volume.size_mib).max().unwrap_or_default();
    if source.disk_name != info.standing.top() {
        // It fell asleep under an older program, which called its disk something else.
        source.disk_name = info.standing.top().to_owned();
        source.cached = None;
    }
    let made = engine.maker.restore_as(info.id.clone(), &source).await?;
    match identify(made.link(), &made.id, None, info.pids).await {
        Ok(_) => Ok(made.into_live()),
        Err(error) => {
            // Not by dropping it: the next wake makes a directory of the same name.
            made.discard().await;
            Err(error.into())
        }
    }
}
