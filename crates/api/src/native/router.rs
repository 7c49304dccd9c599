//! The routes of our own API.

use std::sync::Arc;

use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::document::{Api, operations};
use super::{
    agent_runs, audit, context_forks, diff, events, exec, exec_session, exec_stream, execs, files, files_archive,
    files_change, files_content, forks, health, host, images, lifecycle, logs, me, metrics, network, network_defaults,
    openapi, ports, preview, quota, repl, run_code, sandboxes, secrets, snapshot_files, snapshots, template_builds,
    template_pulls, templates, terminal, timeline, tokens, volumes, webhooks, workspaces,
};
use crate::app::App;
use crate::dashboard;

/// All routes. The document lists each under its tag.
pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    let resources = [
        ("sandboxes", sandboxes::router()),
        ("exec", exec::router()),
        ("exec", exec_stream::router()),
        ("exec", exec_session::router()),
        ("exec", execs::router()),
        ("repl", run_code::router()),
        ("repl", repl::router()),
        ("files", files::router()),
        ("files", files_content::router()),
        ("files", files_change::router()),
        ("files", files_archive::router()),
        ("lifecycle", lifecycle::router()),
        ("forks", forks::router()),
        ("forks", context_forks::router()),
        ("snapshots", snapshots::router()),
        ("checkpoints", timeline::router()),
        ("checkpoints", diff::router()),
        ("snapshots", snapshot_files::router()),
        ("volumes", volumes::router()),
        ("logs", logs::router()),
        ("events", events::router()),
        ("webhooks", webhooks::router()),
        ("metrics", metrics::router()),
        ("network", network::router()),
        ("network", network_defaults::router()),
        ("network", secrets::router()),
        ("previews", ports::router()),
        ("previews", preview::router()),
        ("terminals", terminal::router()),
        ("templates", templates::router()),
        ("templates", template_builds::router()),
        ("templates", template_pulls::router()),
        ("images", images::router()),
        ("access", me::router()),
        ("access", tokens::router()),
        ("access", workspaces::router()),
        ("access", quota::router()),
        ("access", audit::router()),
        ("access", dashboard::router()),
        ("agents", agent_runs::router()),
        ("server", health::router()),
        ("server", host::router()),
        ("server", openapi::router()),
    ];
    let document = OpenApiRouter::with_openapi(Api::openapi());
    resources.into_iter().fold(document, |all, (tag, routes)| all.merge(tagged(tag, routes)))
}

fn tagged(tag: &str, mut routes: OpenApiRouter<Arc<App>>) -> OpenApiRouter<Arc<App>> {
    for operation in routes.get_openapi_mut().paths.paths.values_mut().flat_map(operations).map(|(_, each)| each) {
        operation.tags = Some(vec![tag.to_owned()]);
    }
    routes
}
