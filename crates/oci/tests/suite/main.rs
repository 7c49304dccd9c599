//! Unpacks layers that are made here, entry by entry.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod archives;
mod disks;
mod hostile;
mod support;
