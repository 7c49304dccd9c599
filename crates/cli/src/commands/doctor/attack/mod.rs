//! `sandling doctor --attack`: the host attacks itself and reports which defenses held.
//!
//! The command starts a private server with its own home, real virtual machines, and servers on loopback that stand for
//! the internet. It attacks from inside guests, from inside the jail, over the network and through the API. Everything
//! that it makes ends with it.
//!
//! `entries.rs` lists the attacks; each names a function in one of the other files. An attack records its attempts in a
//! [`trial::Trial`]. `conformance/attack` checks the command against builds with one defense removed.

mod credentials;
mod entries;
mod files;
mod gateway;
mod guest;
mod host;
mod http;
mod internet;
mod jail;
mod live;
mod neighbors;
mod previews;
pub mod probe;
mod report;
mod run;
mod server;
mod tenants;
mod trial;
mod world;

pub(super) use run::attack;
