//! Making a sandbox: a standby is claimed or a machine restored, made itself, and handed out once it has said so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::Request;
use tokio::time::Instant;
use tracing::Instrument;

use super::instance::Engine;
use super::restore::{Origin, attach};
use crate::disk_space::{DiskHold, reservation_mib};
use crate::host::memory_needed_mib;
use crate::machine::{ReadyMachine, SizedImage, Template, file_bytes, identify};
use crate::model::{
    BootMode, EffectivePolicy, Lifetime, MOST_CHECKPOINTS, SandboxInfo, SandboxSettings, Sleep, SnapshotId,
    SnapshotInfo, Standing, State, Timeline,
};
use crate::network::{NetworkSpec, Prepared};
use crate::registry::NameClaim;
use crate::sandbox::{CreateError, GrowError, Sandbox};
use crate::trace::step;
use crate::volume::{Claimed, VolumeError, VolumeSpec};

const LEAST_MEMORY_MIB: u32 = 256;

/// What sandbox is wanted. What is absent comes from the template.
#[derive(Debug, Clone, Default)]
pub struct CreateSpec {
    /// Unique among the living sandboxes of its workspace.
    pub name: Option<String>,
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

/// A sandbox that was admitted and whose template is baked. What it claims is released when this is dropped.
pub struct PreparedCreate {
    asked: Instant,
    spec: CreateSpec,
    network: Prepared,
    from: PreparedSource,
    disk: DiskHold,
    name: Option<NameClaim>,
}

enum PreparedSource {
    Snapshot(Box<SnapshotInfo>),
    Template { template: Arc<Template>, disk_mib: u32, volumes: Claimed },
}

impl Engine {
    /// Makes a sandbox. When this returns, its guest has answered, and it is written down.
    pub async fn create(self: &Arc<Self>, spec: CreateSpec) -> Result<Arc<Sandbox>, CreateError> {
        self.create_prepared(self.prepare(spec).await?).await
    }

    /// Checks whether the sandbox can be made here, and then bakes its template in its size if nobody has used it yet.
    /// A request that is refused leaves nothing behind.
    pub async fn prepare(&self, mut spec: CreateSpec) -> Result<PreparedCreate, CreateError> {
        let asked = Instant::now();
        spec.check()?;
        let name = spec.name.as_deref().map(|name| self.claim_name(&spec.workspace, name)).transpose()?;
        let snapshot = self.snapshot_for(&spec)?;
        let template = snapshot.as_ref().map_or(&spec.template, |snapshot| &snapshot.template);
        let network = self.parts.networks.prepare(&spec.workspace, template, &spec.network)?;
        spec.env.extend(network.variables());
        if let Some(snapshot) = snapshot {
            let disk = self.reserve_disk(snapshot.disk_mib, 1)?;
            let from = PreparedSource::Snapshot(Box::new(snapshot));
            return Ok(PreparedCreate { asked, spec, network, from, disk, name });
        }
        let sized = self.sized_image(&spec.workspace, &spec.template, spec.vcpus, spec.memory_mib).await?;
        let disk_mib = spec.disk_mib(sized.image.manifest.recipe.disk_mib)?;
        let disk = self.reserve_disk(disk_mib, 1)?;
        self.admit(&sized).await?;
        let volumes = self.parts.volumes.claim(&spec.workspace, &spec.volumes, &[])?;
        let template = match self.parts.machines.find_baked(&sized)? {
            Some(template) => template,
            None => {
                let _for_its_memory = self.reserve_space(sized.hardware.memory_mib.into())?;
                let baking = self.parts.machines.baked(&sized, &spec.workspace, Arc::new(|_| {}));
                let template = baking.instrument(step!("create.bake")).await?;
                // Other sandboxes may have been made meanwhile.
                self.admit(&sized).await?;
                template
            }
        };
        let from = PreparedSource::Template { template, disk_mib, volumes };
        Ok(PreparedCreate { asked, spec, network, from, disk, name })
    }

    /// Makes a sandbox for which everything is ready.
    pub async fn create_prepared(self: &Arc<Self>, prepared: PreparedCreate) -> Result<Arc<Sandbox>, CreateError> {
        let engine = self.clone();
        // In a task of its own: a caller that goes away in the middle leaves no half-made machine.
        let making = tokio::spawn(async move { engine.make(prepared).await }.in_current_span());
        making.await.unwrap_or(Err(CreateError::Closing))
    }

    async fn make(&self, prepared: PreparedCreate) -> Result<Arc<Sandbox>, CreateError> {
        let PreparedCreate { asked, spec, network, from, disk: _held_until_it_is_made, name: _claimed_as_well } =
            prepared;
        let (template, disk_mib, volumes) = match from {
            PreparedSource::Snapshot(snapshot) => return self.create_from(&snapshot, &spec, network).await,
            PreparedSource::Template { template, disk_mib, volumes } => (template, disk_mib, volumes),
        };
        let pids = spec.pids.unwrap_or(template.pids());
        // A machine that waits may be too narrow for a large volume.
        let fits = u64::from(volumes.largest_mib()) << 20 <= file_bytes(&template.hardware, template.disk_mib());
        let standby = match fits {
            true => self.claim(&template, &spec, pids).instrument(step!("create.standby")).await,
            false => None,
        };
        let (made, boot_mode) = match standby {
            Some(made) => (made, BootMode::Standby),
            None => {
                let mut source = template.source(&self.parts.machines.factory.library);
                source.volume_mib = volumes.largest_mib();
                let made = self.parts.machines.factory.restore(&source).instrument(step!("create.restore")).await?;
                let identifying = identify(made.link(), &made.id, 0, Some(&spec.env), pids);
                identifying.instrument(step!("create.identify")).await?;
                (made, BootMode::Restore)
            }
        };
        let settling = network.settle(&self.parts.networks, &made.id, made.link());
        settling.instrument(step!("create.network")).await?;
        if disk_mib != template.disk_mib() {
            grow(&made, disk_mib).instrument(step!("create.disk")).await.map_err(CreateError::GrowDisk)?;
        }
        let (made, volumes) = attach(made, volumes).instrument(step!("create.volumes")).await?;
        let boot_ms = asked.elapsed().as_secs_f64() * 1e3;
        let info = SandboxInfo {
            id: made.id.clone(),
            name: spec.name.clone(),
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
            boots: 0,
            lifetime: spec.lifetime(self.config.default_ttl),
            workspace: spec.workspace.clone(),
            metadata: spec.metadata.clone(),
            labels: spec.labels.clone(),
            settings: spec.settings.clone(),
            boundary: made.machine().boundary().clone(),
            bake: template.shape.key.clone(),
            standing: Standing::default(),
            parent: None,
            fork: None,
            from_snapshot: None,
            timeline: Timeline::keeping(spec.checkpoints),
            network: network.settings,
            effective: EffectivePolicy::default(),
            volumes,
            variables: self.parts.networks.seal_variables(&made.id, &spec.env)?,
            format: Default::default(),
        };
        step!("create.record").in_scope(|| self.hand_out(made, info))
    }

    /// Keeps others from taking the name while the sandbox is made.
    fn claim_name(&self, workspace: &str, name: &str) -> Result<NameClaim, CreateError> {
        self.registry.claim_name(workspace, name).map_err(|by| CreateError::NameTaken { name: name.to_owned(), by })
    }

    /// The snapshot that it is to be made from, or that its template is.
    fn snapshot_for(&self, spec: &CreateSpec) -> Result<Option<SnapshotInfo>, CreateError> {
        if let Some(id) = &spec.from_snapshot {
            return self.parts.snapshots.find_usable(&spec.workspace, id)?.ok_or(CreateError::NoSnapshot).map(Some);
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
            name: spec.name.clone(),
            pids: spec.pids.unwrap_or(snapshot.pids),
            lifetime: spec.lifetime(self.config.default_ttl),
            workspace: spec.workspace.clone(),
            metadata: spec.metadata.clone(),
            labels: spec.labels.clone(),
            settings: spec.settings.clone(),
            parent: None,
            fork: None,
            checkpoints: spec.checkpoints,
            network,
            volumes: Some(volumes),
            variables: spec.env.clone(),
            unwritten: None,
        };
        let (sandbox, _) = self.restore_snapshot(snapshot, origin, Some(&spec.env), "restored").await?;
        Ok(sandbox)
    }

    /// A standby that has become itself. One that died on the shelf is passed over.
    async fn claim(&self, template: &Arc<Template>, spec: &CreateSpec, pids: u32) -> Option<ReadyMachine> {
        let pool = self.parts.machines.pool(template)?;
        pool.note_create();
        while let Some(made) = pool.take() {
            // What it is told waits for it to run.
            let identified = async { Ok(identify(made.link(), &made.id, 0, Some(&spec.env), pids).await?) };
            if tokio::try_join!(made.go_on(), identified).is_ok() {
                return Some(made);
            }
            made.discard().await;
        }
        None
    }

    /// Refuses before anything is made, if the host could not bear it. Standbys make room first.
    async fn admit(&self, sized: &SizedImage) -> Result<(), CreateError> {
        let needed = memory_needed_mib(sized.hardware.memory_mib);
        let enough = || match (self.config.available_memory_mib)() {
            Some(available_mib) if available_mib < needed => Err(CreateError::NoMemory { available_mib }),
            _ => Ok(()),
        };
        let mut pools = self.parts.machines.pools_for(&sized.shape).into_iter();
        loop {
            let refused = enough();
            let Some(pool) = pools.next().filter(|_| refused.is_err()) else { return refused };
            while enough().is_err() && pool.give_way().await {}
        }
    }
}

impl Engine {
    /// Whether a template of this size could be baked here.
    pub fn check_size(&self, vcpus: u32, memory_mib: u32, disk_mib: u32) -> Result<(), CreateError> {
        // A template may be smaller than what a request may ask for.
        let memory = memory_mib.max(LEAST_MEMORY_MIB);
        CreateSpec { vcpus: Some(vcpus), memory_mib: Some(memory), ..CreateSpec::default() }.check()?;
        match (self.config.available_memory_mib)() {
            Some(available_mib) if available_mib < memory_needed_mib(memory_mib) => {
                Err(CreateError::NoMemory { available_mib })
            }
            _ => self.check_space(u64::from(memory_mib) + reservation_mib(disk_mib)),
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

    /// Whether all numbers are within what a sandbox can have.
    pub fn check(&self) -> Result<(), CreateError> {
        let within = |what, value: Option<u32>, least: u32, most: u32| match value {
            Some(value) if value < least || value > most => {
                Err(CreateError::OutOfRange { what, value: value.into(), least: least.into(), most: most.into() })
            }
            _ => Ok(()),
        };
        within("vcpus", self.vcpus, 1, 16)?;
        within("memory_mib", self.memory_mib, LEAST_MEMORY_MIB, 65_536)?;
        within("pids", self.pids, 16, 1_000_000)?;
        within("checkpoints_kept", self.checkpoints, 1, MOST_CHECKPOINTS)?;
        self.check_volumes(!self.volumes.is_empty())
    }

    fn check_volumes(&self, has_some: bool) -> Result<(), CreateError> {
        if has_some && self.checkpoints.is_some() { Err(VolumeError::NoCheckpoints.into()) } else { Ok(()) }
    }

    /// The size of its disk, on a template whose disk has at least `least`.
    fn disk_mib(&self, least: u32) -> Result<u32, CreateError> {
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
