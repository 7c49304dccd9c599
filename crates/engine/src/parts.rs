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
