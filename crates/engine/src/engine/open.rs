//! Opening a home directory.

use std::path::Path;
use std::sync::{Arc, Mutex};

use sandling_image::ImageStore;
use sandling_vmm::accelerator::{self, ResolveError};
use sandling_vmm::machine::MachineConfig;
use sandling_vmm::memory::place_library;

use super::disk_guard;
use super::instance::Engine;
use super::recover::recover;
use crate::config::EngineConfig;
use crate::disk_space::DiskSpace;
use crate::events::Events;
use crate::machine::{MachineFactory, Machines, StandbySettings};
use crate::network::Networks;
use crate::owner::Owner;
use crate::parts::Parts;
use crate::process_cache::ProcessCache;
use crate::registry::Registry;
use crate::snapshot::Snapshots;
use crate::store::{Store, StoreError};
use crate::task::Host;
use crate::volume::Volumes;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the home directory cannot be used")]
    Home { source: std::io::Error },
    #[error(
        "QEMU is not installed; `sudo apt-get install --no-install-recommends qemu-system-x86 qemu-utils` installs it"
    )]
    NoEmulator,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the templates' directory cannot be used")]
    Templates(#[source] sandling_image::LoadError),
    #[error(transparent)]
    Accelerator(#[from] ResolveError),
}

impl Engine {
    /// Opens a home directory, and takes over or ends the sandboxes that dead engines left there. Taking over happens
    /// in the background: a caller that asks for a sandbox waits until the fate of that sandbox is known.
    pub async fn open(config: EngineConfig) -> Result<Arc<Self>, OpenError> {
        let home_error = |source| OpenError::Home { source };
        let home = &config.home;
        home.prepare().map_err(home_error)?;
        for wide in home.repair_modes() {
            match &wide.error {
                None => tracing::warn!("{wide}; repaired"),
                Some(error) => tracing::error!(error = error as &dyn std::error::Error, "{wide}; cannot be repaired"),
            }
        }
        let probe = accelerator::resolve(config.accelerator)?;
        if !Path::new(MachineConfig::QEMU).exists() {
            return Err(OpenError::NoEmulator);
        }
        let store = Arc::new(Store::open(&home.store())?);
        let owner = if config.takeover { Owner::of_server(&home.engines()) } else { Owner::new(&home.engines()) };
        let owner = owner.map_err(home_error)?;
        let images = ImageStore::open(home.templates()).map_err(OpenError::Templates)?;
        let process_cache = match config.process_cache {
            true => ProcessCache::open(home.root(), probe.accelerator).map_err(home_error)?,
            false => ProcessCache::default(),
        };
        if config.takeover {
            warn_of_missing_limits(&home.sandboxes());
        }
        let factory = MachineFactory {
            disk_rate: config.disk_rate,
            sandboxes: home.sandboxes(),
            engine: owner.id().to_owned(),
            launcher: config.launcher.clone(),
            library: place_library(home.root()).map_err(home_error)?,
            process_cache: Arc::new(process_cache),
            node_tag: config.node_tag,
        };
        let standbys = StandbySettings {
            count: config.standbys,
            spare_memory_mib: config.spare_memory_mib,
            available_memory_mib: config.available_memory_mib,
        };
        let machines = Arc::new(Machines::new(probe.accelerator, images, factory, standbys));
        let events = Arc::new(Events::new(store.clone()));
        let volumes = Arc::new(Volumes::new(store.clone(), home.volumes(), owner.id().to_owned()));
        let snapshots = Snapshots::new(store.clone(), machines.clone(), volumes.clone(), home).map_err(home_error)?;
        let networks = Arc::new(Networks::new(store.clone(), events.clone(), home, &config.network));
        let disk = DiskSpace::new(home.sandboxes());
        let parts = Parts { store, events, machines, volumes, snapshots: Arc::new(snapshots), networks, disk };
        let registry = Arc::new(Registry::default());
        let hibernate_after = config.hibernate_after;
        let hibernation = Arc::new(parts.clone());
        let host = Host { parts: parts.clone(), registry: registry.clone(), hibernate_after, hibernation };
        let engine = Arc::new(Self {
            config,
            probe,
            owner,
            parts,
            registry,
            host,
            unreadable: Mutex::default(),
            unconfirmed: Mutex::default(),
        });
        recover(&engine).await?;
        disk_guard::watch(&engine);
        engine.parts.snapshots.sweep_unfinished()?;
        engine.parts.volumes.sweep(&engine.config.home.engines())?;
        Ok(engine)
    }
}

/// For the log of a server.
fn warn_of_missing_limits(sandboxes: &Path) {
    let missing = sandling_vmm::jail::unlimited(sandboxes);
    if !missing.is_empty() {
        let missing = missing.join(", ");
        tracing::warn!(%missing, "this host does not limit how much of these each machine uses; see sandling doctor");
    }
}
