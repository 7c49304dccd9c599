//! Making a sandbox: a standby is claimed or a machine restored, made itself, and handed out once it has said so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::Request;
use tokio::time::Instant;

use super::instance::Engine;
use super::restore::{Origin, attach};
use crate::host::available_space_mib;
use crate::machine::{ReadyMachine, Template, file_bytes, identify};
use crate::model::{
    BootMode, EffectivePolicy, Lifetime, MOST_CHECKPOINTS, SandboxInfo, SandboxSettings, Sleep, SnapshotId,
    SnapshotInfo, Standing, State, Timeline,
};
use crate::network::{NetworkSpec, Prepared};
use crate::sandbox::{CreateError, GrowError, Sandbox};
use crate::volume::{VolumeError, VolumeSpec};

/// With less room on the home's file system nothing is created: the sandboxes that there are need it to go on.
const SPARE_DISK_MIB: u64 = 64;

/// What sandbox is wanted. What is absent comes from the template.
#[derive(Debug, Clone, Default)]
pub struct CreateSpec {
    pub template: String,
    /// Instead of the template: all of what a snapshot has, and its size.
    pub from_snapshot: Option<SnapshotId>,
    pub vcpus: Option<u32>,
    pub memory_mib: Option<u32>,
    pub disk_mib: Option<u32>,
    pub pids: Option<u32>,
    /// How long it may live; absent means the engine's default.
    pub ttl: Option<Duration>,
    /// How long it may be idle; absent means as long as it lives.
    pub idle: Option<Duration>,
    /// Neither limit applies.
    pub persistent: bool,
    pub sleep: Sleep,
    pub env: BTreeMap<String, String>,
    /// Whose it is.
    pub workspace: String,
    pub metadata: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub settings: SandboxSettings,
    /// Makes a checkpoint before everything that changes it, and keeps so many.
    pub checkpoints: Option<u32>,
    pub network: NetworkSpec,
    pub volumes: Vec<VolumeSpec>,
}

impl Engine {
    /// Makes a sandbox. When this returns, its guest has answered, and it is written down.
    pub async fn create(self: &Arc<Self>, spec: CreateSpec) -> Result<Arc<Sandbox>, CreateError> {
        let engine = self.clone();
        // In a task of its own: a caller that goes away in the middle leaves no half-made machine.
        let making = tokio::spawn(async move { engine.create_inner(spec).await });
        making.await.unwrap_or(Err(CreateError::Closing))
    }

    async fn create_inner(&self, mut spec: CreateSpec) -> Result<Arc<Sandbox>, CreateError> {
        let asked = Instant::now();
        spec.check()?;
        let snapshot = self.snapshot_for(&spec)?;
        let template = snapshot.as_ref().map_or(&spec.template, |snapshot| &snapshot.template);
        let network = self.parts.networks.prepare(&spec.workspace, template, &spec.network)?;
        spec.env.extend(network.variables());
        if let Some(snapshot) = snapshot {
            return self.create_from(&snapshot, &spec, network).await;
        }
        let template = self.template(&spec.workspace, &spec.template, spec.vcpus, spec.memory_mib).await?;
        let disk_mib = spec.disk_mib(&template)?;
        self.admit(&template).await?;
        let volumes = self.parts.volumes.claim(&spec.workspace, &spec.volumes, &[])?;
        let pids = spec.pids.unwrap_or(template.pids());
        // A machine that waits may be too narrow for a large volume.
        let fits = u64::from(volumes.largest_mib()) << 20 <= file_bytes(&template.hardware, template.disk_mib());
        let standby = if fits { self.claim(&template, &spec, pids).await } else { None };
        let (made, boot_mode) = match standby {
            Some(made) => (made, BootMode::Standby),
            None => {
                let mut source = template.source(&self.parts.machines.factory.library);
                source.volume_mib = volumes.largest_mib();
                let made = self.parts.machines.factory.restore(&source).await?;
                identify(made.link(), &made.id, Some(&spec.env), pids).await?;
                (made, BootMode::Restore)
            }
        };
        network.settle(&self.parts.networks, &made.id, made.link()).await?;
        if disk_mib != template.disk_mib() {
            grow(&made, disk_mib).await.map_err(CreateError::GrowDisk)?;
        }
        let (made, volumes) = attach(made, volumes).await?;
        let boot_ms = asked.elapsed().as_secs_f64() * 1e3;
        let info = SandboxInfo {
            id: made.id.clone(),
            // Not as it is cached: others may call the same image something else, and have defaults for that.
            template: spec.template.clone(),
            image: template.image.id.to_string(),
            state: State::Running,
            vcpus: template.hardware.vcpus,
            memory_mib: template.hardware.memory_mib,
            disk_mib,
            pids,
            created_at: jiff::Timestamp::now(),
            boot_mode,
            boot_ms,
            lifetime: spec.lifetime(self.config.default_ttl),
            workspace: spec.workspace.clone(),
            metadata: spec.metadata.clone(),
            labels: spec.labels.clone(),
            settings: spec.settings.clone(),
            boundary: made.machine().boundary().clone(),
            bake: template.shape.key.clone(),
            standing: Standing::default(),
            parent: None,
            from_snapshot: None,
            timeline: Timeline::keeping(spec.checkpoints),
            network: network.settings,
            effective: EffectivePolicy::default(),
            volumes,
            format: Default::default(),
        };
        self.hand_out(made, info)
    }

    /// The snapshot that it is to be made from, or that its template is.
    fn snapshot_for(&self, spec: &CreateSpec) -> Result<Option<SnapshotInfo>, CreateError> {
        if let Some(id) = &spec.from_snapshot {
            return self.parts.snapshots.find(&spec.workspace, id)?.ok_or(CreateError::NoSnapshot).map(Some);
        }
        let snapshot = self.parts.snapshots.of_template(&spec.workspace, &spec.template)?;
        Ok(snapshot.map(|snapshot| SnapshotInfo { template: spec.template.clone(), ..snapshot }))
    }

    /// A sandbox that goes on where a snapshot was made.
    async fn create_from(
        &self,
        snapshot: &SnapshotInfo,
        spec: &CreateSpec,
        network: Prepared,
    ) -> Result<Arc<Sandbox>, CreateError> {
        if spec.vcpus.is_some() || spec.memory_mib.is_some() || spec.disk_mib.is_some() {
            return Err(CreateError::SizeOfSnapshot);
        }
        spec.check_volumes(!snapshot.volumes.is_empty())?;
        let taken: Vec<u32> = snapshot.volumes.iter().map(|saved| saved.was.slot).collect();
        let volumes = self.parts.volumes.claim(&spec.workspace, &spec.volumes, &taken)?;
        let origin = Origin {
            pids: spec.pids.unwrap_or(snapshot.pids),
            lifetime: spec.lifetime(self.config.default_ttl),
            workspace: spec.workspace.clone(),
            metadata: spec.metadata.clone(),
            labels: spec.labels.clone(),
            settings: spec.settings.clone(),
            parent: None,
            checkpoints: spec.checkpoints,
            network,
            volumes: Some(volumes),
        };
        let (sandbox, _) = self.restore_snapshot(snapshot, origin, Some(&spec.env), "restored").await?;
        Ok(sandbox)
    }

    /// A standby that has become itself. One that died on the shelf is passed over.
    async fn claim(&self, template: &Arc<Template>, spec: &CreateSpec, pids: u32) -> Option<ReadyMachine> {
        let pool = self.parts.machines.pool(template)?;
        while let Some(made) = pool.take() {
            // What it is told waits for it to run.
            let identified = async { Ok(identify(made.link(), &made.id, Some(&spec.env), pids).await?) };
            if tokio::try_join!(made.go_on(), identified).is_ok() {
                return Some(made);
            }
            made.discard().await;
        }
        None
    }

    /// Refuses before anything is made, if the host could not bear it. Standbys make room first.
    async fn admit(&self, template: &Template) -> Result<(), CreateError> {
        if let Some(available_mib) = available_space_mib(&self.parts.machines.factory.sandboxes)
            && available_mib < SPARE_DISK_MIB
        {
            return Err(CreateError::NoSpace { available_mib });
        }
        // A sandbox shares its template's memory; what it really takes is what it writes. A quarter is a guess on
        // the safe side of what was measured for Python sessions.
        let needed = u64::from(template.hardware.memory_mib) / 4;
        let enough = || match (self.config.available_memory_mib)() {
            Some(available_mib) if available_mib < needed + 256 => Err(CreateError::NoMemory { available_mib }),
            _ => Ok(()),
        };
        let mut pools = self.parts.machines.pools_for(&template.shape).into_iter();
        loop {
            let refused = enough();
            let Some(pool) = pools.next().filter(|_| refused.is_err()) else { return refused };
            while enough().is_err() && pool.give_way().await {}
        }
    }
}

impl CreateSpec {
    fn lifetime(&self, default_ttl: Duration) -> Lifetime {
        Lifetime {
            from: jiff::Timestamp::now(),
            ttl_seconds: Some(self.ttl.unwrap_or(default_ttl).as_secs()),
            idle_seconds: self.idle.map(|idle| idle.as_secs()),
            persistent: self.persistent,
            sleep: self.sleep,
        }
    }

    fn check(&self) -> Result<(), CreateError> {
        let within = |what, value: Option<u32>, least: u32, most: u32| match value {
            Some(value) if value < least || value > most => {
                Err(CreateError::OutOfRange { what, value: value.into(), least: least.into(), most: most.into() })
            }
            _ => Ok(()),
        };
        within("vcpus", self.vcpus, 1, 16)?;
        within("memory_mib", self.memory_mib, 256, 65_536)?;
        within("pids", self.pids, 16, 1_000_000)?;
        within("checkpoints_kept", self.checkpoints, 1, MOST_CHECKPOINTS)?;
        self.check_volumes(!self.volumes.is_empty())
    }

    fn check_volumes(&self, has_some: bool) -> Result<(), CreateError> {
        if has_some && self.checkpoints.is_some() { Err(VolumeError::NoCheckpoints.into()) } else { Ok(()) }
    }

    fn disk_mib(&self, template: &Template) -> Result<u32, CreateError> {
        let least = template.disk_mib();
        match self.disk_mib.unwrap_or(least) {
            wanted if wanted < least || wanted > 1024 * 1024 => Err(CreateError::OutOfRange {
                what: "disk_mib",
                value: wanted.into(),
                least: least.into(),
                most: 1024 * 1024,
            }),
            wanted => Ok(wanted),
        }
    }
}

async fn grow(made: &ReadyMachine, disk_mib: u32) -> Result<(), GrowError> {
    let bytes = u64::from(disk_mib) << 20;
    made.machine().resize_disk(bytes).await?;
    Ok(made.link().call(Request::GrowDisk { bytes }).await.map(drop)?)
}
