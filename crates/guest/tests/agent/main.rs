//! The agent as a host sees it: the real binary and the real protocol, over a socket instead of a machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod contexts;
mod exec;
mod files;
mod harness;
mod sessions;
mod terminal;
mod tunnel;
mod watch;
