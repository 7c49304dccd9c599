//! E2B's dialect: its public clients, unmodified, on the same sandboxes as everybody else's.
//!
//! Three planes on one address: `control` (make, list, pause, fork), `envd` (processes and files of one sandbox) and
//! `interpreter` (code in it). The last two are told apart from each other and from a user's own servers by the port
//! that a request names, in its headers or its host: see [`place`]. What the clients set for a sandbox is in its
//! settings ([`settings`]), its token is derived from its id ([`token`]), so nothing here outlives or contradicts the
//! engine's own store.

mod control;
mod envd;
mod gone;
mod interpreter;
mod memory;
mod names;
mod origins;
mod place;
mod plan;
mod refusal;
mod router;
mod settings;
mod token;

pub(crate) use place::by_place;
pub(crate) use router::routes;
