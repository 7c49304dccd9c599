//! Conversions between the engine's types and those of `sandling_wire`, one file per resource, and the checks of what
//! clients send.
//!
//! Both sides are other crates' types, so the conversions that cannot fail are traits of our own instead of `From`.

pub(crate) mod access;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod fork;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod network_events;
pub(crate) mod network_view;
pub(crate) mod repl;
pub(crate) mod sandbox;
pub(crate) mod seconds;
pub(crate) mod secrets;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod template;
pub(crate) mod timeline;
pub(crate) mod volume;

/// A value of the engine that goes into a response.
pub trait IntoWire {
    type Wire;

    fn into_wire(self) -> Self::Wire;
}

/// A value of a request that the engine takes as it is.
pub trait IntoEngine {
    type Engine;

    fn into_engine(self) -> Self::Engine;
}
