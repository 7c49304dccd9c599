//! The network of real guests: what is allowed works, everything else does not, whatever happens to the machine.
//!
//! Each test has a network namespace of its own without a way out, where every address is local and servers listen, so
//! that a bug can reach nothing real. The one that uses registries is the exception.

mod datagrams;
mod defaults;
mod escapes;
mod groups;
mod header_rules;
mod life;
mod registries;
mod secrets;
pub mod world;
