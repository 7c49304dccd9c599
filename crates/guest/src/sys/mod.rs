//! Wrappers for the system calls that the agent needs.

pub mod children;
pub mod fds;
pub mod launch;
pub mod poller;
pub mod socket;
