//! What goes over the wire: one file per resource, names and units as the public clients have them.

pub(crate) mod access;
pub(crate) mod diff;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod fork;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod network_events;
pub(crate) mod network_view;
pub(crate) mod preview;
pub(crate) mod repl;
pub(crate) mod sandbox;
pub(crate) mod seconds;
pub(crate) mod secrets;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod template;
pub(crate) mod timeline;
pub(crate) mod volume;
