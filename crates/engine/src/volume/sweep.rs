//! Sweeping volumes whose sandbox is gone, and claims of dead engines.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::volumes::Volumes;
use crate::model::{SandboxId, VolumeId};
use crate::owner;
use crate::store::{Claim, StoreError};

/// Another engine may be making one at this moment; no file grows for so long without being written to.
const UNFINISHED_FOR: Duration = Duration::from_secs(600);

impl Volumes {
    /// Gives back what dead engines had claimed for sandboxes that never came to be, and removes what is no volume.
    pub(crate) fn sweep(&self, engines: &Path) -> Result<(), StoreError> {
        let living = self.store.living_sandboxes()?;
        for held in self.store.volume_uses()? {
            if !living.may_own(&held.holder) && !owner::is_alive(engines, &held.engine) {
                self.store.release_volumes(&held.holder)?;
            }
        }
        let held: BTreeSet<String> = self.store.volume_uses()?.into_iter().map(|held| held.volume).collect();
        for volume in self.store.volumes()? {
            if let Some(sandbox) = volume.is_private()
                && !living.may_own(sandbox.as_str())
                && !held.contains(volume.id.as_str())
            {
                self.discard(&volume.id);
            }
        }
        let known: BTreeSet<String> = self.store.volume_ids()?.into_iter().map(|id| format!("{id}.img")).collect();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let age = entry.metadata().ok().and_then(|meta| meta.modified().ok()).and_then(|at| at.elapsed().ok());
            let old = age.is_some_and(|age| age > UNFINISHED_FOR);
            if old && !known.contains(&*entry.file_name().to_string_lossy()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Deletes the copies that belonged to a sandbox which has ended.
    pub(crate) fn drop_private(&self, sandbox: &SandboxId) -> Result<(), StoreError> {
        for volume in self.store.volumes()? {
            if volume.is_private() == Some(sandbox) {
                self.discard(&volume.id);
            }
        }
        Ok(())
    }

    /// Deletes a volume that users do not see. If that fails, the next start tries again.
    pub(crate) fn discard(&self, id: &VolumeId) {
        match self.store.remove_volume(id) {
            Ok(Claim::Granted | Claim::Gone) => drop(fs::remove_file(self.file(id))),
            Ok(Claim::HeldBy(by)) => {
                tracing::warn!(volume = %id, %by, "did not remove an unused volume: it is claimed again")
            }
            Err(error) => {
                tracing::warn!(volume = %id, error = &error as &dyn std::error::Error, "could not remove an unused volume; the next start tries again");
            }
        }
    }
}
