//! PandaStack's dialect: its public clients, unmodified. A token that begins with `pds_` selects it.
//!
//! Most requests of these clients are requests of our own API and go to its routes. This folder holds what only they
//! need: fields of a create and of the caller, many commands over one WebSocket, code without a session, times to live
//! that use renews, the words of errors, and interim responses for a client that gives up on silence.

mod create;
mod exec_ws;
mod interim;
mod me;
mod metrics;
mod renewal;
mod repl;
mod router;
mod trigger_words;

pub(crate) use interim::wants_interim_responses;
pub(crate) use router::{ACTIONS, entered, routes};
