//! Builds of templates.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::{Extension, Json};
use sandling_engine::stored_name;
use sandling_image::{Recipe, RecipeError, TemplateName};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::builds::Build;
use crate::error::ApiError;
use crate::extract::{self, Params, Parts};
use crate::flag::Flag;
use crate::request::RequestContext;
use crate::sse::{self, Events, Gone};
use crate::wire::template::{BuildRequest, BuildView};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(start)).routes(routes!(list)).routes(routes!(get)).routes(routes!(logs))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogParams {
    /// Wait for lines that are yet to come.
    follow: Option<Flag>,
}

/// The form that the public clients send.
#[derive(Debug, Default, Deserialize)]
struct BuildForm {
    name: Option<String>,
    packages: Option<String>,
    npm: Option<String>,
    from: Option<String>,
    cpu: Option<u32>,
    memory_mb: Option<u32>,
    size_mb: Option<u32>,
    image_ref: Option<String>,
    dockerfile: Option<String>,
}

/// Build a template
///
/// Another template with more packages, of Debian and from npm. The answer comes at once; the build goes on.
#[utoipa::path(
    post, path = "/v1/templates/build", tag = "templates", request_body = BuildRequest,
    responses((status = 202, body = BuildView)),
)]
async fn start(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Extension(context): Extension<RequestContext>,
    request: Request,
) -> Result<(StatusCode, Json<BuildView>), ApiError> {
    let wish = read(request).await?;
    let workspace = caller.workspace().as_str();
    let (name, recipe) = (wish.name.clone(), recipe(workspace, wish)?);
    let build = app.builds.start(&app.engine, workspace, name, recipe);
    context.made(build.id());
    Ok((StatusCode::ACCEPTED, Json(build.view())))
}

/// A wish in any of the encodings that the public clients use.
async fn read(request: Request) -> Result<BuildRequest, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("multipart/form-data") {
        extract::discard(&mut request.into_body()).await;
        return Err(unsupported());
    }
    let is_form = kind.starts_with("application/x-www-form-urlencoded");
    let is_json = kind.starts_with("application/json");
    let bytes = extract::read(request.into_body()).await?;
    if is_form {
        let form = serde_urlencoded::from_bytes(&bytes);
        return from_form(form.map_err(|error| ApiError::bad_request(format!("the form does not fit: {error}")))?);
    }
    if !is_json {
        let message = "the body must be JSON, with the content type application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
    }
    serde_json::from_slice(&bytes).map_err(|error| ApiError::bad_request(format!("the body does not fit: {error}")))
}

fn from_form(form: BuildForm) -> Result<BuildRequest, ApiError> {
    if form.image_ref.is_some() || form.dockerfile.is_some() {
        return Err(unsupported());
    }
    let listed = |names: Option<String>| -> Vec<String> {
        let names = names.unwrap_or_default();
        names.split([',', ' ', '\n']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Ok(BuildRequest {
        name: form.name.ok_or_else(|| ApiError::bad_request("a template needs a name"))?,
        from: form.from,
        packages: listed(form.packages),
        npm: listed(form.npm),
        cpu: form.cpu,
        memory_mb: form.memory_mb,
        disk_mb: form.size_mb,
    })
}

fn unsupported() -> ApiError {
    let message = "a template is built from packages; images, Dockerfiles and root file systems are not taken";
    ApiError::new(StatusCode::BAD_REQUEST, "unsupported", message)
}

fn recipe(workspace: &str, wish: BuildRequest) -> Result<Recipe, ApiError> {
    let from = sandling_image::resolve(wish.from.as_deref().unwrap_or("base"))?.recipe;
    let name: TemplateName = wish.name.parse()?;
    let stored = stored_name(workspace, name.as_str())?;
    let recipe = Recipe::custom(stored.as_str(), &from, wish.packages.iter().map(String::as_str))?;
    let mut recipe = recipe.with_npm(wish.npm.iter().map(String::as_str))?;
    recipe.vcpus = wish.cpu.unwrap_or(recipe.vcpus);
    recipe.memory_mib = wish.memory_mb.unwrap_or(recipe.memory_mib);
    recipe.disk_mib = wish.disk_mb.unwrap_or(recipe.disk_mib);
    recipe.check()?;
    Ok(recipe)
}

impl From<RecipeError> for ApiError {
    fn from(error: RecipeError) -> Self {
        let message = error.to_string();
        match error {
            RecipeError::Unknown { .. } => Self::new(StatusCode::NOT_FOUND, "template_unknown", message),
            RecipeError::Reserved { .. } => Self::conflict("name_taken", message),
            RecipeError::BadName { .. }
            | RecipeError::BadPackage { .. }
            | RecipeError::BadNpm { .. }
            | RecipeError::OutOfRange { .. } => Self::bad_request(message),
        }
    }
}

/// List builds
///
/// Those of the workspace since the server started, newest first.
#[utoipa::path(get, path = "/v1/templates/builds", tag = "templates", responses((status = 200, body = Vec<BuildView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Json<Vec<BuildView>> {
    Json(app.builds.list(caller.workspace().as_str()))
}

/// Look at a build
#[utoipa::path(
    get, path = "/v1/templates/builds/{build}", tag = "templates", params(("build" = String, Path)),
    responses((status = 200, body = BuildView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(build): Parts<String>,
) -> Result<Json<BuildView>, ApiError> {
    Ok(Json(app.builds.find(caller.workspace().as_str(), &build)?.view()))
}

/// A build's log
///
/// As events whose data is a line each, and one named `done` at the end.
#[utoipa::path(
    get, path = "/v1/templates/builds/{build}/logs", tag = "templates", params(("build" = String, Path), LogParams),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn logs(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(build): Parts<String>,
    Params(params): Params<LogParams>,
) -> Result<Response, ApiError> {
    let build = app.builds.find(caller.workspace().as_str(), &build)?;
    let follows = params.follow.is_none_or(Flag::is_set);
    Ok(sse::endless(app.closing(), move |events| relay(build, follows, events)))
}

async fn relay(build: Arc<Build>, follows: bool, events: Events) -> Result<(), Gone> {
    let (mut progress, mut sent) = (build.progress(), 0);
    loop {
        let now = progress.borrow_and_update().clone();
        for line in &now.lines[sent..] {
            // The public client takes a line that says just this for the end.
            let line = if line.trim() == "end" { "end." } else { line };
            events.send_text(None, line).await?;
        }
        sent = now.lines.len();
        if now.is_over() || !follows || progress.changed().await.is_err() {
            return events.send_text(Some("done"), "end").await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_one_is_refused_in_every_workspace() {
        for workspace in ["default", "team"] {
            for name in ["", ".", "a/b", "-x", "base"] {
                let wish = BuildRequest { name: name.to_owned(), ..Default::default() };
                assert!(recipe(workspace, wish).is_err(), "{workspace} {name:?}");
            }
            let wish = BuildRequest { name: "mine".to_owned(), packages: vec!["jq".to_owned()], ..Default::default() };
            assert!(recipe(workspace, wish).unwrap().packages.contains("jq"));
        }
    }

    #[test]
    fn what_cannot_be_built_from_is_said() {
        let form: BuildForm = serde_urlencoded::from_str("name=x&image_ref=debian&size_mb=100").unwrap();
        assert_eq!(from_form(form).unwrap_err().code, "unsupported");
        let form: BuildForm = serde_urlencoded::from_str("name=x&packages=jq,curl+git").unwrap();
        assert_eq!(from_form(form).unwrap().packages, ["jq", "curl", "git"]);
    }
}
