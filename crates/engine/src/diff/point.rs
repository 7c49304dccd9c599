//! The moments that can be compared, and how users name them.

use std::sync::Arc;

use super::DiffError;
use crate::engine::Engine;
use crate::model::{SandboxId, SnapshotId, SnapshotInfo};
use crate::sandbox::Sandbox;
use crate::snapshot::SnapshotError;

/// One of two moments that are compared.
#[derive(Clone)]
pub enum Point {
    Now(Arc<Sandbox>),
    Saved(Box<SnapshotInfo>),
}

impl Point {
    pub(super) fn image(&self) -> String {
        match self {
            Self::Now(sandbox) => sandbox.info.image.clone(),
            Self::Saved(snapshot) => snapshot.image.to_string(),
        }
    }
}

impl Engine {
    /// Finds what `text` names within a workspace: `now` or a checkpoint of `own`, another sandbox, `SANDBOX@CHECKPOINT`, or
    /// a snapshot.
    pub async fn point(
        self: &Arc<Self>,
        workspace: &str,
        own: Option<&Arc<Sandbox>>,
        text: &str,
    ) -> Result<Point, DiffError> {
        let unknown = || DiffError::Point(text.chars().take(100).collect());
        if let Some((sandbox, moment)) = text.split_once('@') {
            let id = SandboxId::parse(sandbox).ok_or_else(unknown)?;
            let sandbox = self.find(workspace, &id).await.ok_or_else(unknown)?;
            return self.moment(&sandbox, moment).await;
        }
        if let Some(id) = SandboxId::parse(text)
            && let Some(sandbox) = self.find(workspace, &id).await
        {
            return Ok(Point::Now(sandbox));
        }
        if let Some(id) = SnapshotId::parse(text) {
            let snapshot = self.parts.snapshots.find(workspace, &id)?.ok_or_else(unknown)?;
            return Ok(Point::Saved(Box::new(snapshot)));
        }
        self.moment(own.ok_or_else(unknown)?, text).await
    }

    async fn moment(self: &Arc<Self>, sandbox: &Arc<Sandbox>, moment: &str) -> Result<Point, DiffError> {
        if moment == "now" {
            return Ok(Point::Now(sandbox.clone()));
        }
        let timeline = self.timeline(sandbox).await;
        let checkpoint = timeline.find(moment)?;
        let snapshot = self.parts.snapshots.get(&checkpoint.snapshot)?.ok_or(SnapshotError::Unknown)?;
        Ok(Point::Saved(Box::new(snapshot)))
    }
}
