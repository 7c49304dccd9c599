//! The API over real sockets, as far as it needs no virtual machine.

#![allow(clippy::unwrap_used, reason = "what a test's helper cannot do fails the test")]

mod access;
mod bad_input;
mod connections;
mod dashboard;
mod document;
mod harness;
mod hostile;
mod images;
mod limits;
mod metrics;
mod network;
mod proxied;
mod telemetry;
mod tls;
mod webhooks;
