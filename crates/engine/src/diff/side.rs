//! One of two moments, with a machine that can be asked about it.

use std::sync::Arc;

use sandling_protocol::Request;

use super::manifest::Manifest;
use super::point::Point;
use super::{DiffError, SKIPPED};
use crate::engine::Engine;
use crate::host::available_memory_mib;
use crate::link::Link;
use crate::machine::{Live, ReadyMachine};
use crate::model::SnapshotInfo;
use crate::sandbox::{CreateError, InUse, Sandbox};
use crate::snapshot::HeldSnapshot;

pub(super) struct Side {
    pub(super) manifest: Manifest,
    machine: Looked,
}

enum Looked {
    /// The sandbox itself, which goes on meanwhile.
    Running { live: Arc<Live>, _in_use: InUse },
    /// Ended when this is dropped.
    Restored { made: Box<ReadyMachine>, _held: HeldSnapshot },
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
        let snapshot = engine.parts.snapshots.get(&standing)?.ok_or(CreateError::NoSnapshot)?;
        return restored(engine, &snapshot).await;
    }
    let (live, in_use) = sandbox.live()?;
    Ok(Looked::Running { live, _in_use: in_use })
}

async fn restored(engine: &Arc<Engine>, snapshot: &SnapshotInfo) -> Result<Looked, DiffError> {
    if let Some(available_mib) = available_memory_mib()
        && available_mib < u64::from(snapshot.memory_mib) / 4 + 256
    {
        return Err(CreateError::NoMemory { available_mib }.into());
    }
    let held = engine.parts.snapshots.hold(&snapshot.id);
    let source = engine.parts.snapshots.source(snapshot).map_err(CreateError::from)?;
    let made = engine.parts.machines.factory.restore(&source).await.map_err(CreateError::from)?;
    // It gets no identity: nothing of the user's runs in it, and it is in no list.
    made.link().call(Request::Freeze).await?;
    Ok(Looked::Restored { made: Box::new(made), _held: held })
}
