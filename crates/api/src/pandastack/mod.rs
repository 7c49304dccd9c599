//! PandaStack's dialect: its public clients, unmodified. A token that begins with `pds_` selects it.
//!
//! Most requests of these clients are requests of our own API and go to its routes. This folder holds what only they
//! need: fields of a create, many commands over one WebSocket, times to live that use renews, and signs of life for
//! a client that gives up on silence.

mod create;
mod exec_ws;
mod interim;
mod renewal;
mod router;

pub(crate) use interim::wants_interim_responses;
pub(crate) use router::{entered, routes};
