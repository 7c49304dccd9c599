//! Whether snapshots and hibernated sandboxes survive the loss of this node, as clients see it.

use axum::http::StatusCode;
use sandling_engine::{SandboxInfo, SnapshotId, SnapshotInfo, State};
use sandling_wire::{CreateSandbox, Durability, SandboxView, SnapshotView};

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
    let shown = Fleet::of(app).filter(|_| info.settings.failover.is_some()).map(|fleet| fleet.failover_of(&info.id));
    let mut view = SandboxView { durability, ..info.into_wire() };
    if let (Some(failover), Some((point_at, problem))) = (&mut view.failover, shown) {
        (failover.point_at, failover.problem) = (point_at, problem);
    }
    view
}

/// Refuses failover where it would not work.
pub(crate) fn check_failover(app: &App, request: &CreateSandbox) -> Result<(), ApiError> {
    if request.failover.is_none() {
        return Ok(());
    }
    let has_volumes = request.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty());
    let has_group = request.network.as_ref().is_some_and(|network| network.group.is_some());
    if has_volumes || has_group {
        let what = if has_volumes { "volumes" } else { "a network group" };
        let message = format!("a sandbox with {what} cannot leave its node; leave out `failover`, or {what}");
        return Err(ApiError::bad_request(message));
    }
    match Fleet::of(app).filter(|fleet| fleet.has_store()) {
        Some(fleet) => fleet.check_all_know_failover(),
        None => Err(ApiError::conflict(
            "no_store",
            "`failover` needs a fleet with a store, where other nodes find the sandbox (`sandling fleet init --store`); leave \
             out `failover`",
        )),
    }
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
