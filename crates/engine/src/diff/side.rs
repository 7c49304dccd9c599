//! One of two moments, with a machine that can be asked about it.

use std::sync::Arc;

use sandling_protocol::Request;

use super::manifest::Manifest;
use super::point::Point;
use super::{DiffError, SKIPPED};
use crate::create::CreateError;
use crate::engine::{Engine, HeldSnapshot};
use crate::expiry::InUse;
use crate::link::Link;
use crate::made::Made;
use crate::memory;
use crate::sandbox::{Live, Sandbox};
use crate::snapshot::SnapshotInfo;

pub(super) struct Side {
    pub(super) manifest: Manifest,
    machine: Looked,
}

enum Looked {
    /// The sandbox itself, which goes on meanwhile.
    Running { live: Arc<Live>, _in_use: InUse },
    /// Ended when this is dropped.
    Restored { made: Box<Made>, _held: HeldSnapshot },
}

impl Side {
    pub(super) async fn look(engine: &Arc<Engine>, point: &Point, root: &str) -> Result<Self, DiffError> {
        let machine = match point {
            Point::Now(sandbox) => now(engine, sandbox).await?,
            Point::Saved(snapshot) => restored(engine, snapshot).await?,
        };
        let skip: Vec<String> = SKIPPED.iter().map(|path| (*path).to_owned()).collect();
        let manifest = Manifest::of(machine.link(), root, &skip).await?;
        Ok(Self { manifest, machine })
    }

    pub(super) fn link(&self) -> &Link {
        self.machine.link()
    }
}

impl Looked {
    fn link(&self) -> &Link {
        match self {
            Self::Running { live, .. } => &live.link,
            Self::Restored { made, .. } => made.link(),
        }
    }
}

/// One that hibernates is not woken for it: what it was saved as is what it is now.
async fn now(engine: &Arc<Engine>, sandbox: &Arc<Sandbox>) -> Result<Looked, DiffError> {
    if sandbox.hibernates() {
        let standing = sandbox.standing.borrow().restored.clone().ok_or(CreateError::NoSnapshot)?;
        let (snapshot, _) = engine.store.snapshot(&standing)?.ok_or(CreateError::NoSnapshot)?;
        return restored(engine, &snapshot).await;
    }
    let (live, in_use) = sandbox.live()?;
    Ok(Looked::Running { live, _in_use: in_use })
}

async fn restored(engine: &Arc<Engine>, snapshot: &SnapshotInfo) -> Result<Looked, DiffError> {
    if let Some(available_mib) = memory::available_mib()
        && available_mib < u64::from(snapshot.memory_mib) / 4 + 256
    {
        return Err(CreateError::NoMemory { available_mib }.into());
    }
    let held = engine.hold_snapshot(&snapshot.id);
    let source = snapshot.source(engine).await.map_err(CreateError::from)?;
    let made = engine.maker.restore(&source).await.map_err(CreateError::from)?;
    // It is nobody: it gets no name and no randomness, nothing of the user's runs in it, and nobody hears of it.
    made.link().call(Request::Freeze).await?;
    Ok(Looked::Restored { made: Box::new(made), _held: held })
}
