//! The gateway as a guest sees it: tests with a separate TCP/IP stack at the other end of the cable, and real servers.
//!
//! Each test runs in its own process and network namespace without access to other networks. In it every IPv4 address
//! is local, and servers listen on every relevant port. So packets that a bug lets out are seen, and reach nothing
//! real.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cable;
mod datagrams;
mod escape;
mod frames;
mod groups;
mod guest;
mod kernel;
mod limits;
mod names;
mod namespace;
mod policy;
mod proxied;
mod secrets;
mod servers;
mod traffic;
mod world;
