//! What the networks of all sandboxes share: the store, the key of secrets, groups, and the way out.

use std::sync::{Arc, OnceLock};

use super::config::GatewayDefaults;
use super::groups::Groups;
use super::vault::Vault;
use crate::events::Events;
use crate::model::SandboxId;
use crate::store::Store;

/// Whether a sandbox may send now.
pub type Fence = Arc<dyn Fn(&SandboxId) -> bool + Send + Sync>;

pub(crate) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) events: Arc<Events>,
    pub(super) vault: Vault,
    pub(super) gateways: GatewayDefaults,
    pub(super) groups: Groups,
    /// Asked for each frame of a sandbox with failover. Absent outside of fleets.
    pub(super) fence: OnceLock<Fence>,
}
