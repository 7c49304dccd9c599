//! The jail in which mmdebstrap and all that it starts run: apt, dpkg, maintainer scripts, hooks, npm and pip.
//!
//! ```text
//! this process ── Tool ──▶ launcher: this same program with ARGUMENT   host's namespaces; serves the proxy
//!                             └─▶ entrant: enters the namespaces, passes the proxy's socket out, waits
//!                                    └─▶ process 1: makes the file system, reaps
//!                                           └─▶ mmdebstrap
//! ```
//!
//! The jail has its own user, mount, process, network, IPC and host name namespaces. Its root is user 0 of a range of ids
//! that have no rights on the host, also if the caller is root. Its file system has the host's programs and certificates,
//! read-only, and the build's workspace. Its network has a loopback interface on which the launcher serves an HTTP proxy.
//! The proxy connects to the build's package mirrors and to nothing else. If the launcher ends, the jail ends.

mod entry;
mod filesystem;
mod filter;
mod inside;
mod launch;
mod mirror;
mod proxy;

pub use entry::{ARGUMENT, main};
pub(crate) use launch::mmdebstrap;
