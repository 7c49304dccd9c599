//! Networks: for each running sandbox a gateway with its policy, and secrets that never enter the guest.
//!
//! A guest's network card ends in a socket that the machine's supervisor holds. Only a gateway (`sandling-network`) reads
//! from it, and it runs only while an engine looks after the sandbox: without a gateway there is no network.
//!
//! A sandbox's row holds its own settings and the names of its secrets. The [`EffectivePolicy`] also depends on the
//! defaults of its template and its workspace, so it is computed for every new gateway and whenever a default changes.
//! The store holds the values of secrets and the keys of the sandboxes' certificate authorities, encrypted with a key
//! that is in a file of its own.

mod authority;
mod carry;
mod change;
mod config;
mod defaults;
mod effective;
mod environment;
mod error;
mod feed;
mod groups;
mod header_rules;
mod membership;
mod networks;
mod prepare;
mod sandbox_network;
mod saved_state;
mod secrets;
mod settings;
mod share;
mod shared;
mod vault;

pub use sandling_network::{BadLimit, LimitRequest};
pub use sandling_wire::{CountsView, PolicyFrom};

pub use crate::model::{
    AttachedSecret, EffectivePolicy, Membership, NetworkDefault, NetworkSettings, SecretId, SecretVersion,
    StoredDefault,
};
pub use carry::CarriedSecret;
pub(crate) use carry::{ArrivingSecret, CarriedNetwork, Reach};
pub use change::{Before, GroupChange, GuestNotTold, NetworkChange, NetworkChangeError};
pub use config::NetworkConfig;
pub use defaults::NetworkDefaultChange;
pub use error::NetworkError;
pub use feed::NetworkEvent;
pub use networks::Networks;
pub(crate) use prepare::{Granted, Prepared};
pub(crate) use sandbox_network::SandboxNetwork;
pub use secrets::SecretInfo;
pub use settings::NetworkSpec;
pub use shared::Fence;
