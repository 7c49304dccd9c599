//! The guest's only DNS server: answers allowed names with what the host resolves, and pins the answers.

mod message;
mod pins;
mod resolver;
mod server;

pub use message::{Answer, read};
pub use pins::{Pin, Pins};
pub use resolver::{ResolveError, Resolved, Resolver, SystemResolver};
pub(crate) use server::DnsServer;
