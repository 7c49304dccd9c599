//! What the networks of all sandboxes share: the store, the key of secrets, groups, and the way out.

use std::sync::Arc;

use super::config::GatewayDefaults;
use super::groups::Groups;
use super::vault::Vault;
use crate::events::Events;
use crate::store::Store;

pub(crate) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) events: Arc<Events>,
    pub(super) vault: Vault,
    pub(super) gateways: GatewayDefaults,
    pub(super) groups: Groups,
}
