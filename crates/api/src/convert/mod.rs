//! Conversions between the engine's types and those of `sandling_wire`, one file per resource, and the checks of
//! requests.
//!
//! Both sides are types of other crates, so infallible conversions use our own traits instead of `From`.

#[macro_use]
mod mirror;

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

/// Converts a value of the engine for a response.
pub trait IntoWire {
    type Wire;

    fn into_wire(self) -> Self::Wire;
}

/// Converts a value of a request for the engine.
pub trait IntoEngine {
    type Engine;

    fn into_engine(self) -> Self::Engine;
}

impl<T: IntoWire> IntoWire for Vec<T> {
    type Wire = Vec<T::Wire>;

    fn into_wire(self) -> Vec<T::Wire> {
        self.into_iter().map(T::into_wire).collect()
    }
}
