//! Processes and files of one sandbox, with the API of E2B's in-sandbox agent. Here, the host implements it.

mod agent;
mod connect;
mod entries;
mod files;
mod filesystem;
mod metadata;
mod paths;
mod process;
mod sample;
mod start;
mod unread_body;
mod upload;
mod watch;

pub(crate) use connect::split_frames;
pub(super) use paths::cleaned;
pub(super) use sample::{Sample, metrics};
pub(super) use start::Started;
pub(super) use watch::Watcher;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The routes over plain HTTP.
pub(super) fn plain() -> Router<Arc<App>> {
    Router::new().merge(files::router()).merge(agent::router())
}

/// The procedure calls.
pub(super) fn calls() -> Router<Arc<App>> {
    Router::new().merge(start::router()).merge(process::router()).merge(filesystem::router()).merge(watch::router())
}
