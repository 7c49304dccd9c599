//! What sandboxes may reach: a gateway for each that runs, its policy, and secrets that never enter it.
//!
//! A guest's network card ends in a socket that its machine's supervisor holds. While somebody looks after the sandbox, a
//! gateway (`sandling-network`) reads from it; nobody else does, so without a gateway there is no network. What a sandbox
//! says of its policy and the names of its secrets are in its row; what holds ([`InForce`]) also depends on defaults, and
//! is found out anew for every gateway and whenever one of them changes; values of secrets, and the keys of sandboxes' own certificate
//! authorities, are in the store, encrypted under a key in a file of its own.

mod authority;
mod change;
mod config;
mod counts;
mod defaults;
mod error;
mod feed;
mod gate;
mod groups;
mod in_force;
mod kept;
mod prepare;
mod secrets;
mod settings;
mod vault;

pub use sandling_network::{BadLimit, LimitRequest};

pub use change::{Before, GroupChange, NetworkChange, NetworkChangeError, Untaught};
pub use config::NetworkConfig;
pub(crate) use config::Outside;
pub use counts::NetworkCounts;
pub use defaults::{NetworkDefault, NetworkDefaultChange};
pub use error::NetworkError;
pub use feed::NetworkEvent;
pub(crate) use gate::Network;
pub(crate) use groups::Groups;
pub use groups::Membership;
pub use in_force::{InForce, PolicySource};
pub(crate) use kept::Kept;
pub(crate) use prepare::{Granted, Prepared};
pub use secrets::{SecretId, SecretInfo};
pub use settings::{AttachedSecret, NetworkSettings, NetworkWish};
pub(crate) use vault::Vault;
