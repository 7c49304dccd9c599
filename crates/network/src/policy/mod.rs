//! What a sandbox may reach. These are decisions without I/O.
//!
//! The gateway asks two questions. May this name be resolved? May this address and port be connected to, given the
//! names that DNS returned the address for and the name that the connection shows in TLS or HTTP?
//!
//! Ranges outside the public internet, and the host's own addresses, are refused before any list is used. Only the
//! operator can open them. If the workspace's policy binds, both policies must allow the destination.

mod change;
mod decide;
mod entry;
mod learn;
mod preset;
mod range;
mod refusal;
mod resolvers;
mod rules;

pub use change::PolicyChange;
pub use decide::{AllowedBy, Mode, Policy, Shown, TlsMode};
pub(crate) use entry::NAMED_PORTS;
pub use entry::{BadEntry, Entry, Ports, Target};
pub use learn::Learned;
pub use preset::{NoPreset, Preset};
pub use range::{Range, disguised};
pub use refusal::Refusal;
pub use rules::Rules;
