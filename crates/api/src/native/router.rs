//! The routes of our own API.

use std::sync::Arc;

use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::document::Api;
use super::{
    audit, context_forks, diff, events, exec, exec_session, exec_stream, execs, files, files_change, files_content,
    forks, health, lifecycle, logs, me, metrics, network, network_defaults, openapi, ports, preview, quota, repl,
    sandboxes, secrets, snapshot_files, snapshots, template_builds, templates, terminal, timeline, tokens, volumes,
    workspaces,
};
use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Api::openapi())
        .merge(sandboxes::router())
        .merge(exec::router())
        .merge(exec_stream::router())
        .merge(exec_session::router())
        .merge(execs::router())
        .merge(repl::router())
        .merge(files::router())
        .merge(files_content::router())
        .merge(files_change::router())
        .merge(lifecycle::router())
        .merge(forks::router())
        .merge(context_forks::router())
        .merge(snapshots::router())
        .merge(timeline::router())
        .merge(diff::router())
        .merge(snapshot_files::router())
        .merge(volumes::router())
        .merge(logs::router())
        .merge(events::router())
        .merge(metrics::router())
        .merge(network::router())
        .merge(network_defaults::router())
        .merge(secrets::router())
        .merge(ports::router())
        .merge(preview::router())
        .merge(terminal::router())
        .merge(templates::router())
        .merge(template_builds::router())
        .merge(me::router())
        .merge(tokens::router())
        .merge(workspaces::router())
        .merge(quota::router())
        .merge(audit::router())
        .merge(health::router())
        .merge(openapi::router())
}
