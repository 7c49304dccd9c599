//! Templates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandling_engine::TemplateSummary;
use sandling_image::Resolved;
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

/// A template of a workspace. Under an alias it says what that stands for.
pub(super) fn find(app: &App, workspace: &str, name: &str) -> Result<TemplateSummary, ApiError> {
    let resolved = sandling_image::resolve(name).ok();
    let stands_for = resolved.as_ref().map_or(name, |resolved| resolved.recipe.name.as_str());
    let mut templates = app.engine.list_templates(workspace)?.into_iter();
    let found = templates.find(|template| template.name == stands_for);
    let mut template = found.ok_or_else(|| ApiError::not_found("template"))?;
    if let Some(note) = resolved.and_then(|resolved| resolved.alias_note) {
        template.name = name.to_owned();
        template.description = note.to_owned();
    }
    Ok(template)
}

/// How large a sandbox of a template is if nobody says otherwise.
pub(crate) struct Sizes {
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) disk_mib: u32,
}

/// The sizes of a template; those of the built-in ones are known without looking.
pub(crate) fn sizes(app: &App, workspace: &str, name: &str) -> Result<Sizes, ApiError> {
    if let Ok(Resolved { recipe, .. }) = sandling_image::resolve(name) {
        return Ok(Sizes { vcpus: recipe.vcpus, memory_mib: recipe.memory_mib, disk_mib: recipe.disk_mib });
    }
    let unknown = |_| unknown(app, workspace, name);
    let TemplateSummary { vcpus, memory_mib, disk_mib, .. } = find(app, workspace, name).map_err(unknown)?;
    Ok(Sizes { vcpus, memory_mib, disk_mib })
}

/// To whoever wants a sandbox of it, a wrong name is a mistake in the request, not a thing that is missing.
fn unknown(app: &App, workspace: &str, name: &str) -> ApiError {
    let known = app.engine.list_templates(workspace).unwrap_or_default();
    let named: Vec<&str> = known.iter().take(MOST_NAMED).map(|template| template.name.as_str()).collect();
    let more = known.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("there is no template {name:?}; there are {}{more}", named.join(", "));
    ApiError::new(StatusCode::BAD_REQUEST, "template_unknown", message)
}

/// How many templates are named to whoever asked for another.
const MOST_NAMED: usize = 20;
