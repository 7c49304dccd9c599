//! The control plane: sandboxes, snapshots and templates, with an API key.

mod absent;
mod builds;
mod caller;
mod forks;
mod lifecycle;
mod list;
mod metrics;
mod network;
mod sandboxes;
mod snapshots;
mod tags;
mod view;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .merge(sandboxes::router())
        .merge(list::router())
        .merge(lifecycle::router())
        .merge(forks::router())
        .merge(snapshots::router())
        .merge(metrics::router())
        .merge(network::router())
        .merge(builds::router())
        .merge(tags::router())
        .merge(absent::router())
}
