//! The parts of an engine that its operations and the tasks of its sandboxes use.

use std::sync::Arc;

use crate::disk_space::DiskSpace;
use crate::events::Events;
use crate::machine::Machines;
use crate::network::Networks;
use crate::snapshot::Snapshots;
use crate::store::Store;
use crate::volume::Volumes;

#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<Store>,
    pub(crate) events: Arc<Events>,
    pub(crate) machines: Arc<Machines>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) networks: Arc<Networks>,
    pub(crate) disk: Arc<DiskSpace>,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use sandling_image::ImageStore;
    use sandling_vmm::accelerator::Accelerator;
    use sandling_wire::Home;

    use super::*;
    use crate::machine::{MachineFactory, StandbySettings, Standbys};
    use crate::network::NetworkConfig;

    /// The parts of an engine that can start no machine.
    pub(crate) fn parts(home: &Home) -> Parts {
        home.prepare().unwrap();
        let store = Arc::new(Store::open(&home.store()).unwrap());
        let factory = MachineFactory {
            sandboxes: home.sandboxes(),
            engine: "fake".to_owned(),
            launcher: PathBuf::new(),
            library: PathBuf::new(),
            process_cache: Arc::default(),
            disk_rate: sandling_vmm::boundary::DiskRate::default(),
            node_tag: None,
        };
        let standbys = StandbySettings { count: Standbys::NONE, spare_memory_mib: 0, available_memory_mib: || None };
        let images = ImageStore::open(home.templates()).unwrap();
        let machines = Arc::new(Machines::new(Accelerator::Tcg, images, factory, standbys));
        let events = Arc::new(Events::new(store.clone()));
        let volumes = Arc::new(Volumes::new(store.clone(), home.volumes(), "fake".to_owned()));
        let snapshots = Snapshots::new(store.clone(), machines.clone(), volumes.clone(), home).unwrap();
        let networks = Arc::new(Networks::new(store.clone(), events.clone(), home, &NetworkConfig::default()));
        let disk = DiskSpace::new(home.sandboxes());
        Parts { store, events, machines, volumes, snapshots: Arc::new(snapshots), networks, disk }
    }
}
