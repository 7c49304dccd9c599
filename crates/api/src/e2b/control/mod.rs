//! The control plane: sandboxes, snapshots, templates and volumes. Clients authenticate with an API key.

mod absent;
mod builds;
mod caller;
mod content;
mod forks;
mod identity_files;
mod lifecycle;
mod list;
mod logs;
mod mcp;
mod metrics;
mod network;
mod sandboxes;
mod snapshots;
mod tags;
mod templates;
mod view;
mod volumes;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

pub(crate) use list::{NEXT, TOTAL_RUNNING, page_limit};
pub(crate) use templates::page_of_templates;
pub(super) use view::is_over;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .merge(sandboxes::router())
        .merge(list::router())
        .merge(lifecycle::router())
        .merge(logs::router())
        .merge(forks::router())
        .merge(snapshots::router())
        .merge(metrics::router())
        .merge(network::router())
        .merge(builds::router())
        .merge(tags::router())
        .merge(templates::router())
        .merge(volumes::router())
        .merge(content::router())
        .merge(absent::router())
}
