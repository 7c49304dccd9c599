//! Scripted registries on loopback, each of which does one thing wrong.

mod auth;
mod blobs;
mod image;
mod mirrors;
mod proxy;
mod redirects;
mod refusals;
mod resolve;
mod server;
