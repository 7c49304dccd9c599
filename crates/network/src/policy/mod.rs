//! What a sandbox may reach: pure decisions, no I/O.
//!
//! Two questions are asked. May this name be resolved? And may this address and port be connected to, given the names
//! it was resolved for, and, once the guest has shown one in TLS or HTTP, given that name? Ranges that are not the
//! public internet, and the host's own addresses, are refused before any list is read; only the operator opens them.
//! Where a workspace's policy binds, it is asked after the sandbox's own, and both must allow it.

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
pub use decide::{Ground, Mode, Policy, Shown, TlsMode};
pub(crate) use entry::NAMED_PORTS;
pub use entry::{BadEntry, Entry, Ports, Target};
pub use learn::Learned;
pub use preset::{NoPreset, Preset};
pub use range::{Range, disguised};
pub use refusal::Refusal;
pub use rules::Rules;
