//! The gateway as a guest sees it: a TCP/IP stack of its own at the other end of the cable, and real servers.
//!
//! Each test runs in a process and a network namespace of its own that has no way out. In it every IPv4 address is
//! local, and something listens on every port that matters: what a bug lets out is seen, and reaches nothing real.

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
mod secrets;
mod servers;
mod traffic;
mod world;
