//! Templates.

use axum::extract::State;
use sandling_engine::{KeptSnapshot, TemplateSummary};
use sandling_service::find_template;
use sandling_wire::{Flag, FreedView, TemplateVersion, TemplateView};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::template::{listed_template, template_view};
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, delete)).routes(routes!(history))
}

/// List templates
///
/// The built-in ones and the workspace's own.
#[utoipa::path(get, path = "/v1/templates", responses((status = 200, body = Vec<TemplateView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<Vec<TemplateView>>, ApiError> {
    let templates = app.engine.list_templates(caller.workspace().as_str())?;
    let view = |template| listed_template(caller.workspace().as_str(), template);
    Ok(Json(templates.into_iter().map(view).collect()))
}

/// Look at a template
#[utoipa::path(get, path = "/v1/templates/{name}", responses((status = 200, body = TemplateView)))]
async fn get(call: Call<Read>) -> Result<Json<TemplateView>, ApiError> {
    let workspace = call.workspace().as_str();
    Ok(Json(template_view(workspace, find(&call.app, workspace, &call.item)?)))
}

/// List the versions of a template
///
/// The versions of a template that was built from a Dockerfile and that the server still keeps, newest first. A request may
/// name one as `NAME@DIGEST`.
#[utoipa::path(get, path = "/v1/templates/{name}/history", responses((status = 200, body = Vec<TemplateVersion>)))]
async fn history(call: Call<Read>) -> Result<Json<Vec<TemplateVersion>>, ApiError> {
    let workspace = call.workspace().as_str();
    let current = find(&call.app, workspace, &call.item)?.digest;
    let versions = call.app.engine.snapshots().versions(workspace, &call.item)?;
    let view = |kept: KeptSnapshot| TemplateVersion {
        created_at: kept.snapshot.created_at.to_string(),
        size_bytes: kept.snapshot.memory_bytes + kept.snapshot.disk_bytes,
        current: Some(&kept.snapshot.digest) == current.as_ref(),
        digest: kept.snapshot.digest,
    };
    Ok(Json(versions.into_iter().map(view).collect()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DeleteParams {
    /// Whether to answer with what that freed.
    report: Option<Flag>,
}

/// Delete a template of the workspace
#[utoipa::path(
    delete, path = "/v1/templates/{name}", params(DeleteParams),
    responses((status = 204), (status = 200, body = FreedView, description = "With `report`")),
)]
async fn delete(call: Call<Run>, Params(params): Params<DeleteParams>) -> Result<Response, ApiError> {
    let template = find(&call.app, call.workspace().as_str(), &call.item)?;
    if template.built_in {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "template_built_in", "a built-in template cannot be deleted"));
    }
    let bytes = call.app.engine.remove_template(call.workspace().as_str(), &template.name).await?;
    if !params.report.is_some_and(Flag::is_set) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Json(FreedView { bytes, ..FreedView::default() }).into_response())
}

/// A template of a workspace. For an alias, the description says which template it stands for.
pub(super) fn find(app: &App, workspace: &str, name: &str) -> Result<TemplateSummary, ApiError> {
    find_template(&app.engine, workspace, name)?.ok_or_else(|| ApiError::not_found("template"))
}
