//! One of two moments, with a machine whose agent can read its files.

use std::sync::Arc;

use sandling_protocol::{FailureKind, Request};

use super::manifest::Manifest;
use super::point::Point;
use super::{DiffError, SKIPPED};
use crate::engine::Engine;
use crate::host::available_memory_mib;
use crate::lifecycle::Refused;
use crate::link::{Link, LinkError};
use crate::machine::{Live, ReadyMachine};
use crate::model::SnapshotInfo;
use crate::sandbox::{CreateError, InUse, Sandbox, UseError};
use crate::snapshot::HeldSnapshot;

pub(super) struct Side {
    /// Empty if the directory does not exist.
    pub(super) manifest: Manifest,
    /// The guest's error, if the directory does not exist.
    pub(super) missing: Option<LinkError>,
    machine: Machine,
}

enum Machine {
    /// The sandbox itself, which keeps running.
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
        let (manifest, missing) = match Manifest::of(machine.link(), root, &skip).await {
            Err(DiffError::Use(UseError::Link(LinkError::Failed(failure))))
                if failure.kind == FailureKind::NotFound =>
            {
                (Manifest::default(), Some(LinkError::Failed(failure)))
            }
            listed => (listed?, None),
        };
        Ok(Self { manifest, missing, machine })
    }

    pub(super) fn link(&self) -> &Link {
        self.machine.link()
    }
}

impl Machine {
    fn link(&self) -> &Link {
        match self {
            Self::Running { live, .. } => &live.link,
            Self::Restored { made, .. } => made.link(),
        }
    }
}

/// A hibernated sandbox is not woken: its saved image is its current state.
async fn now(engine: &Arc<Engine>, sandbox: &Arc<Sandbox>) -> Result<Machine, DiffError> {
    if sandbox.hibernates() {
        // Without its memory, there is only a disk, which the host does not read.
        let standing = sandbox.standing.borrow().restored.clone().ok_or(UseError::Refused(Refused::Hibernated))?;
        let snapshot = engine.parts.snapshots.get(&standing)?.ok_or(CreateError::NoSnapshot)?;
        return restored(engine, &snapshot).await;
    }
    let (live, in_use) = sandbox.live()?;
    Ok(Machine::Running { live, _in_use: in_use })
}

async fn restored(engine: &Arc<Engine>, snapshot: &SnapshotInfo) -> Result<Machine, DiffError> {
    if let Some(available_mib) = available_memory_mib()
        && available_mib < u64::from(snapshot.memory_mib) / 4 + 256
    {
        return Err(CreateError::NoMemory { available_mib }.into());
    }
    let held = engine.parts.snapshots.hold(&snapshot.id);
    let source = engine.parts.snapshots.source(snapshot).map_err(CreateError::from)?;
    let made = engine.parts.machines.factory.restore(&source).await.map_err(CreateError::from)?;
    // It gets no identity, because the user's processes do not run in it and no list shows it.
    made.link().call(Request::Freeze).await?;
    Ok(Machine::Restored { made: Box::new(made), _held: held })
}
