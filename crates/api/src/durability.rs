//! Whether snapshots and hibernated sandboxes survive the loss of this node, as clients see it.

use axum::http::StatusCode;
use sandling_engine::{SandboxInfo, SnapshotId, SnapshotInfo, State};
use sandling_wire::{Durability, SandboxView, SnapshotView};

use crate::app::App;
use crate::convert::IntoWire;
use crate::error::ApiError;
use crate::fleet::{Fleet, Waited};

fn durability_of(app: &App, id: &SnapshotId) -> Durability {
    Fleet::of(app).map_or(Durability::Local, |fleet| fleet.durability(id))
}

pub(crate) fn snapshot_view(app: &App, info: SnapshotInfo) -> SnapshotView {
    SnapshotView { durability: durability_of(app, &info.id), ..info.into_wire() }
}

pub(crate) fn sandbox_view(app: &App, info: SandboxInfo) -> SandboxView {
    let of_image = || info.standing.restored.as_ref().map_or(Durability::Local, |image| durability_of(app, image));
    let durability = (info.state == State::Hibernated).then(of_image);
    SandboxView { durability, ..info.into_wire() }
}

/// Refuses to promise what this server cannot do.
pub(crate) fn require_store(app: &App) -> Result<(), ApiError> {
    match Fleet::of(app).is_some_and(|fleet| fleet.has_store()) {
        true => Ok(()),
        false => Err(ApiError::conflict(
            "no_store",
            "this server is in no fleet with a store, so its snapshots are local; leave out `durable`",
        )),
    }
}

/// Waits until a snapshot is in the fleet's store.
pub(crate) async fn wait_until_durable(app: &App, snapshot: &SnapshotInfo) -> Result<(), ApiError> {
    let id = &snapshot.id;
    // One whose row cannot be read now is still there.
    let exists = || !matches!(app.engine.snapshots().find(&snapshot.workspace, id), Ok(None));
    let waited = match Fleet::of(app) {
        Some(fleet) => fleet.wait_until_durable(id, exists).await,
        None => Waited::Local,
    };
    match waited {
        Waited::Durable => Ok(()),
        Waited::Gone => {
            Err(ApiError::conflict("snapshot_deleted", format!("snapshot {id} was deleted before it was stored")))
        }
        Waited::Local => Err(ApiError::new(
            StatusCode::CONFLICT,
            "snapshot_local",
            format!(
                "snapshot {id} was created, but cannot be stored, so only its node has it; the server's log says why"
            ),
        )),
    }
}
