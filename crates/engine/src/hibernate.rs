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
use crate::snapshot::{Save, SnapshotError, Standing};
use crate::store::Listed;

/// Saves a machine that will not go on, and returns what the sandbox stands on then.
pub(crate) async fn save(engine: &Arc<Engine>, live: &Live, info: &SandboxInfo) -> Result<Standing, SnapshotError> {
    let afterwards = Afterwards::Stopped;
    let save = Save { engine, machine: &live.machine, info, name: None, listed: Listed::No, afterwards };
    let saving = save.freeze().await?;
    let (snapshot, _) = saving.write().await?;
    Ok(snapshot.standing())
}

/// A machine that goes on where this sandbox was saved.
pub(crate) async fn wake(engine: &Arc<Engine>, info: &SandboxInfo) -> Result<Live, CreateError> {
    let saved = info.standing.restored.as_ref().ok_or(CreateError::NoSnapshot)?;
    let (snapshot, _) = engine.store.snapshot(saved)?.ok_or(CreateError::NoSnapshot)?;
    let source = snapshot.source(engine).await?;
    let made = engine.maker.restore_as(info.id.clone(), &source).await?;
    identify(made.link(), &made.id, None, info.pids).await?;
    Ok(made.into_live())
}
