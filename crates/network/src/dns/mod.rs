//! The parts of the guest's DNS server: messages, the resolver, lookups within limits, and the pinned answers.

mod lookups;
mod message;
mod pins;
mod proxied;
mod resolver;

pub(crate) use lookups::{LookupError, Lookups};
pub use message::{Answer, Question, read};
pub use pins::{MOST_ADDRESSES, Pin, Pins};
pub(crate) use proxied::{PROXIED, ProxiedResolver};
pub use resolver::{ResolveError, Resolved, Resolver, SystemResolver};
