//! Templates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandling_engine::TemplateSummary;
use sandling_service::find_template;
use sandling_wire::TemplateView;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::convert::template::template_view;
use crate::error::ApiError;
use crate::extract::Parts;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, delete))
}

/// List templates
///
/// The built-in ones and the workspace's own.
#[utoipa::path(get, path = "/v1/templates", tag = "templates", responses((status = 200, body = Vec<TemplateView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<Vec<TemplateView>>, ApiError> {
    let templates = app.engine.list_templates(caller.workspace().as_str())?;
    let view = |template| template_view(caller.workspace().as_str(), template);
    Ok(Json(templates.into_iter().map(view).collect()))
}

/// Look at a template
#[utoipa::path(
    get, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses((status = 200, body = TemplateView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(name): Parts<String>,
) -> Result<Json<TemplateView>, ApiError> {
    let workspace = caller.workspace().as_str();
    Ok(Json(template_view(workspace, find(&app, workspace, &name)?)))
}

/// Delete a template of the workspace
#[utoipa::path(
    delete, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses((status = 204)),
)]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(name): Parts<String>,
) -> Result<StatusCode, ApiError> {
    let template = find(&app, caller.workspace().as_str(), &name)?;
    if template.built_in {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "template_built_in", "a built-in template cannot be deleted"));
    }
    app.engine.remove_template(caller.workspace().as_str(), &template.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A template of a workspace. For an alias, the description says which template it stands for.
pub(super) fn find(app: &App, workspace: &str, name: &str) -> Result<TemplateSummary, ApiError> {
    find_template(&app.engine, workspace, name)?.ok_or_else(|| ApiError::not_found("template"))
}
