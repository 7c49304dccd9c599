//! Restoring a sandbox from a snapshot, and handing a machine out as a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Instrument;

use super::instance::Engine;
use crate::machine::{Confirmed, PagesWritten, ReadyMachine, identify, start_services};
use crate::model::{
    Attachment, BootMode, EffectivePolicy, ForkPlace, Lifetime, SandboxId, SandboxInfo, SandboxSettings, SnapshotInfo,
    State, Timeline,
};
use crate::network::Prepared;
use crate::sandbox::{CreateError, Phase, Sandbox};
use crate::trace::step;
use crate::volume::Claimed;

/// What a restored sandbox has that its snapshot does not say.
pub(super) struct Origin {
    pub(super) name: Option<String>,
    pub(super) pids: u32,
    pub(super) lifetime: Lifetime,
    pub(super) workspace: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) settings: SandboxSettings,
    pub(super) parent: Option<SandboxId>,
    pub(super) fork: Option<ForkPlace>,
    /// How many checkpoints it keeps; absent if it makes none by itself.
    pub(super) checkpoints: Option<u32>,
    pub(super) network: Prepared,
    /// Volumes besides those it was saved with.
    pub(super) volumes: Option<Claimed>,
    /// The variables of all its processes, which its guest may have already.
    pub(super) variables: BTreeMap<String, String>,
    /// The snapshot's pages, if they are still being written.
    pub(super) unwritten: Option<PagesWritten>,
}

impl Engine {
    /// Restores a sandbox from a snapshot. From one without memory, it boots.
    pub(super) async fn restore_snapshot(
        &self,
        snapshot: &SnapshotInfo,
        origin: Origin,
        env: Option<&BTreeMap<String, String>>,
        event: &str,
    ) -> Result<(Arc<Sandbox>, Confirmed), CreateError> {
        let begun = Instant::now();
        let _held = self.parts.snapshots.hold(&snapshot.id);
        let booted = (!snapshot.has_memory()).then(|| self.parts.snapshots.image_of(snapshot)).transpose()?;
        let mut source = match (&booted, &origin.unwritten) {
            (Some(image), _) => self.parts.snapshots.boot_source(snapshot, image)?,
            (None, Some(pages)) => self.parts.snapshots.fresh_source(snapshot, pages.clone())?,
            (None, None) => self.parts.snapshots.source(snapshot)?,
        };
        let id = SandboxId::fresh_on(self.parts.machines.factory.node_tag);
        let carried =
            self.parts.volumes.carry(self.parts.snapshots.saved_volumes(snapshot), &id, &origin.workspace).await?;
        source.plugs = carried.plugs.clone();
        let more_mib = origin.volumes.as_ref().map(Claimed::largest_mib).unwrap_or_default();
        source.volume_mib = carried.claimed.largest_mib().max(more_mib);
        let restoring = self.parts.machines.factory.restore_as(id, &source);
        let made = restoring.instrument(step!("create.restore")).await?;
        let identifying = identify(made.link(), &made.id, 0, env, origin.pids);
        let confirmed = identifying.instrument(step!("create.identify")).await?;
        let settling = origin.network.settle(&self.parts.networks, &made.id, made.link());
        settling.instrument(step!("create.network")).await?;
        if let Err(error) = carried.settle(&made).await {
            made.discard().await;
            return Err(error.into());
        }
        let (made, mut volumes) = match origin.volumes {
            Some(more) => attach(made, more).await?,
            None => (made, Vec::new()),
        };
        volumes.extend(carried.claimed.hand_over(&made.id)?);
        volumes.sort_by_key(|volume| volume.slot);
        let info = SandboxInfo {
            id: made.id.clone(),
            name: origin.name,
            template: snapshot.template.clone(),
            image: snapshot.image.to_string(),
            bake: snapshot.bake.clone(),
            vcpus: snapshot.vcpus,
            memory_mib: snapshot.memory_mib,
            disk_mib: snapshot.disk_mib,
            pids: origin.pids,
            state: State::Running,
            created_at: jiff::Timestamp::now(),
            boot_mode: if booted.is_some() { BootMode::Boot } else { BootMode::Restore },
            boot_ms: ms(begun.elapsed()),
            boots: 0,
            boundary: made.machine().boundary().clone(),
            standing: snapshot.standing(),
            lifetime: origin.lifetime,
            workspace: origin.workspace,
            metadata: origin.metadata,
            labels: origin.labels,
            settings: origin.settings,
            from_snapshot: origin.parent.is_none().then(|| snapshot.id.clone()),
            parent: origin.parent,
            fork: origin.fork,
            timeline: Timeline::keeping(origin.checkpoints),
            network: origin.network.settings,
            effective: EffectivePolicy::default(),
            volumes,
            variables: self.parts.networks.seal_variables(&made.id, &origin.variables)?,
            format: Default::default(),
        };
        let (id, workspace) = (info.id.clone(), info.workspace.clone());
        let detail = serde_json::json!({ "snapshot": snapshot.id, "parent": info.parent });
        if let Some(image) = booted {
            start_services(made.link(), image.manifest.recipe, &id);
        }
        let sandbox = self.hand_out(made, info)?;
        self.parts.events.record(&id, &workspace, event, detail)?;
        Ok((sandbox, confirmed))
    }

    /// Writes the sandbox's row and starts its task.
    pub(super) fn hand_out(&self, made: ReadyMachine, info: SandboxInfo) -> Result<Arc<Sandbox>, CreateError> {
        if let Err(error) = self.parts.store.insert_sandbox(self.owner.id(), &info) {
            // If this fails, the next start releases them.
            let _ = self.parts.store.release_volumes(info.id.as_str());
            return Err(error.into());
        }
        let detail =
            serde_json::json!({ "template": info.template, "boot_mode": info.boot_mode, "boot_ms": info.boot_ms });
        self.parts.events.note(&info.id, &info.workspace, "created", detail);
        made.note_fallback(&self.parts.events, &info.workspace);
        self.host.start(Phase::Running(Arc::new(made.into_live())), info).ok_or(CreateError::Closing)
    }
}

/// Attaches the claimed volumes. If that fails, the machine ends before the volumes are released.
pub(super) async fn attach(
    made: ReadyMachine,
    mut volumes: Claimed,
) -> Result<(ReadyMachine, Vec<Attachment>), CreateError> {
    if let Err(error) = volumes.attach(&made).await {
        made.discard().await;
        return Err(error.into());
    }
    let attached = volumes.hand_over(&made.id)?;
    Ok((made, attached))
}

pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
