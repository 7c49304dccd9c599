//! Points from which another home takes a sandbox over, after its own is lost: a snapshot, and a description of the sandbox.
//!
//! A description is what a move carries besides the files. It is in the fleet's store for as long as its snapshot.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::instance::Engine;
use super::moving::{Arrived, MoveError, Traveller, tied};
use crate::model::{
    FailedOver, Failover, Format, SandboxId, SandboxInfo, SandboxSettings, SnapshotId, SnapshotInfo, State, Timeline,
};
use crate::network::CarriedNetwork;
use crate::sandbox::Sandbox;
use crate::snapshot::{POINT_KEY, SnapshotError};
use crate::store::StoreError;
use crate::transit::Arrival;

/// What goes along with a point.
pub struct PointNote {
    /// Whether the sandbox wakes as soon as it is taken over.
    pub wakes: bool,
    /// The node that makes the point.
    pub from: String,
    pub at: Timestamp,
    /// What the crates above the engine carry.
    pub more: Value,
}

/// A sandbox at a point.
#[derive(Serialize, Deserialize)]
struct DescribedPoint {
    sandbox: Traveller,
    network: CarriedNetwork,
    wakes: bool,
    from: String,
    at: Timestamp,
    more: Value,
    #[serde(flatten)]
    format: Format<1>,
}

/// A sandbox that hibernates where a snapshot was made. It has no checkpoints, because those stay on their node.
pub(super) fn row_at(info: SandboxInfo, snapshot: &SnapshotInfo, last: Option<FailedOver>) -> SandboxInfo {
    let mut info = SandboxInfo {
        state: State::Hibernated,
        standing: snapshot.standing(),
        timeline: Timeline::keeping(info.timeline.keep),
        ..info
    };
    info.settings.failover = Some(Failover { last });
    info
}

impl Engine {
    /// Saves a sandbox that runs, and keeps the snapshot until [`forget_point`](Self::forget_point).
    pub async fn save_point(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<SnapshotInfo, SnapshotError> {
        // The key names the snapshot, which is not known yet.
        let saving = format!("{POINT_KEY}{} saving", sandbox.id());
        let saved = self.snapshot_under_key(sandbox, &saving).await?;
        self.parts.snapshots.keep_point(&saved.workspace, sandbox.id(), &saved.id)?;
        self.parts.snapshots.forget_kept(&saved.workspace, &[saving]).await?;
        Ok(saved)
    }

    /// Describes a sandbox as it is to be at a snapshot of it. Blocks.
    pub fn describe_point(&self, id: &SandboxId, snapshot: &SnapshotId, note: PointNote) -> Result<Vec<u8>, MoveError> {
        let mut info = self.parts.store.living_sandbox(id.as_str())?.ok_or(MoveError::Unknown)?;
        if let Some(tied) = tied(&info) {
            return Err(MoveError::Tied(tied));
        }
        let (snapshot, _) = self.parts.store.snapshot(snapshot)?.ok_or(MoveError::Unknown)?;
        let reach = self.parts.networks.reach(&info.workspace, &info.template, &info.network)?;
        let network = self.parts.networks.pack(&mut info)?;
        let last = info.settings.failover.as_ref().and_then(|failover| failover.last.clone());
        let row = Traveller::row(row_at(info, &snapshot, last)).map_err(StoreError::from)?;
        let PointNote { wakes, from, at, more } = note;
        let sandbox = Traveller { row, reach };
        let point = DescribedPoint { sandbox, network, wakes, from, at, more, format: Format::default() };
        Ok(serde_json::to_vec(&point).map_err(StoreError::from)?)
    }

    /// Changes when the description of a point would be another one, but for the snapshot. Has no secrets. Blocks.
    pub fn point_settings(&self, id: &SandboxId) -> Result<String, MoveError> {
        let info = self.parts.store.living_sandbox(id.as_str())?.ok_or(MoveError::Unknown)?;
        let reach = self.parts.networks.reach(&info.workspace, &info.template, &info.network)?;
        let secrets = self.parts.networks.usable_secrets(&info)?;
        let SandboxInfo { name, metadata, labels, settings, network, variables, lifetime, .. } = info;
        let settings = SandboxSettings { failover: None, ..settings };
        // From when a time to live counts changes with each request for more time.
        let lifetime = (lifetime.ttl_seconds, lifetime.idle_seconds, lifetime.persistent, lifetime.sleep);
        let network = (network, variables, reach, secrets);
        let text = serde_json::to_vec(&(name, metadata, labels, settings, lifetime, network));
        Ok(blake3::hash(&text.map_err(StoreError::from)?).to_hex().to_string())
    }

    /// Stores the sandbox of a description as an arrival. Its snapshot is here. Blocks.
    pub fn arrive_at_point(&self, description: &[u8], id: &SandboxId, token: &str) -> Result<Arrived, MoveError> {
        let point: DescribedPoint = serde_json::from_slice(description).map_err(|_| MoveError::Foreign)?;
        let DescribedPoint { sandbox, network, wakes, from, at, more, .. } = point;
        let mut info: SandboxInfo = serde_json::from_value(sandbox.row.clone()).map_err(|_| MoveError::Foreign)?;
        let ids_are = info.id == *id && info.snapshots().all(SnapshotId::is_well_formed);
        let restored = info.standing.restored.clone().filter(|_| ids_are).ok_or(MoveError::Foreign)?;
        if self.parts.store.snapshot(&restored)?.is_none() {
            return Err(MoveError::Io(io::ErrorKind::NotFound.into()));
        }
        self.check_free(&info, &sandbox)?;
        info.settings.failover = Some(Failover { last: Some(FailedOver { from: from.clone(), to: at }) });
        let arrival = Arrival { token: token.to_owned(), wakes, from, fails_over: true, ..Arrival::default() };
        let Arrival { token, from, .. } = self.store_arrival(&mut info, Some(&network), arrival)?;
        Ok(Arrived { sandbox: Some(info.id), snapshot: None, token, from, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_the_first_version_is_read() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1/point.json");
        let point: DescribedPoint = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
        let info: SandboxInfo = serde_json::from_value(point.sandbox.row).unwrap();
        assert_eq!((info.state, info.settings.failover), (State::Hibernated, Some(Failover::default())));
        assert!(info.standing.restored.is_some() && info.timeline.checkpoints().is_empty());
        assert_eq!((&*point.from, point.wakes), ("a", true));
    }
}
