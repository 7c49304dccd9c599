//! The kernel, in the few shapes the agent needs it.

pub mod children;
pub mod fds;
pub mod launch;
pub mod poller;
pub mod socket;
