//! The agent: one thread that owns all state, waits on one epoll, and handles each event without blocking.
//!
//! [`Agent`] is the state. Its handlers are methods, one file per subject. The mechanisms that they use ([`crate::exec`],
//! [`crate::interpreters`], [`crate::streams`], [`crate::tunnel`], [`crate::identity`]) do not know the agent.

mod exec;
mod identify;
mod interpreters;
mod requests;
mod serve;
mod state;
mod tunnel;

pub use state::{Agent, Setup};
