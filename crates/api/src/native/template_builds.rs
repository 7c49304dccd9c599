//! Builds of templates.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::{Extension, Json};
use sandling_engine::{TemplateError, stored_name};
use sandling_image::{Recipe, RecipeError, TemplateName};
use sandling_service::{Build, BuildSpec, SaveAs, parse_dockerfile};
use sandling_wire::{BuildRequest, BuildView, Flag};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::context::RequestContext;
use crate::convert::template::build_view;
use crate::error::ApiError;
use crate::extract::{self, Params, Parts, too_slow};
use crate::service_refusals::explain;
use crate::sse::{self, Events, Gone};

/// The maximum size of a Dockerfile and its files.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The maximum size of the other parts of a form.
const AROUND_FILES: usize = 1 << 20;
const LEAST_PART: usize = 64;
/// Log lines that are buffered for a slow client.
const AT_ONCE: usize = 100;
/// A form without progress for this long is dropped.
const STILL_FOR: Duration = Duration::from_secs(60);

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(start)).routes(routes!(list)).routes(routes!(get)).routes(routes!(logs))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogParams {
    /// Wait for further lines.
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
    replace: Option<Flag>,
}

/// Files that a Dockerfile may copy, by their paths.
type Files = Vec<(String, Bytes)>;

/// Build a template
///
/// Adds Debian and npm packages to a template, or runs the steps of a Dockerfile in a machine and saves it. The
/// response comes at once, and the build continues.
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
    let (request, files) = read(request).await?;
    let workspace = caller.workspace().as_str();
    let build = match text_of(&request)? {
        Some(text) => from_dockerfile(&app, workspace, &request, &text, files).await?,
        None => {
            let name = request.name.clone();
            app.service.builds.start_packages(workspace, &name, recipe(workspace, request)?, explain)?
        }
    };
    context.made(&build.id);
    Ok((StatusCode::ACCEPTED, Json(build_view(&build))))
}

/// The Dockerfile that is meant, if one is.
fn text_of(request: &BuildRequest) -> Result<Option<String>, ApiError> {
    match (&request.dockerfile, &request.image_ref) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(ApiError::bad_request("a template is built from a dockerfile or an image_ref")),
        _ if request.from.is_some() || !request.packages.is_empty() || !request.npm.is_empty() => {
            let message = "a Dockerfile says itself what it is made from; leave from, packages and npm out";
            Err(ApiError::bad_request(message))
        }
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(image)) => Ok(Some(format!("FROM {image}"))),
    }
}

async fn from_dockerfile(
    app: &Arc<App>,
    workspace: &str,
    request: &BuildRequest,
    text: &str,
    files: Files,
) -> Result<Arc<Build>, ApiError> {
    let replaces = request.replace.unwrap_or_default();
    free_name(app, workspace, &request.name, replaces)?;
    let file = parse_dockerfile(text)?;
    let (base, note) = app.service.builds.find_base(workspace, &file.from)?;
    let env = base.process_defaults().env;
    let context = if files.is_empty() { None } else { Some(app.service.builds.store_files(workspace, files).await?) };
    let begun = file.plan(&env, context.as_deref()).map_err(ApiError::from).and_then(|plan| {
        let build = app.service.builds.register(workspace, &request.name)?;
        let save_as = SaveAs::Template { name: request.name.clone(), replace: replaces };
        let (vcpus, memory_mib, disk_mib) = (request.cpu, request.memory_mb, request.disk_mb);
        let spec = BuildSpec { base, note, plan, vcpus, memory_mib, disk_mib, save_as };
        app.service.builds.start(build.clone(), spec, explain)?;
        Ok(build)
    });
    if let (Err(_), Some(hash)) = (&begun, &context) {
        app.service.builds.forget_files(workspace, hash);
    }
    begun
}

/// Refuses a name that the template could not have in the end.
fn free_name(app: &App, workspace: &str, name: &str, replaces: bool) -> Result<(), ApiError> {
    let name: TemplateName = name.parse().map_err(RecipeError::from)?;
    if sandling_image::resolve(name.as_str()).is_ok() {
        return Err(TemplateError::Exists(name.to_string()).into());
    }
    stored_name(workspace, name.as_str())?;
    let replaces = replaces && app.engine.snapshots().of_template(workspace, name.as_str())?.is_some();
    let taken = app.engine.list_templates(workspace)?.iter().any(|template| template.name == name.as_str());
    if taken && !replaces { Err(TemplateError::Exists(name.to_string()).into()) } else { Ok(()) }
}

/// Reads a build request in any of the encodings that the public clients use.
async fn read(request: Request) -> Result<(BuildRequest, Files), ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("multipart/form-data") {
        return parts(request).await;
    }
    let is_form = kind.starts_with("application/x-www-form-urlencoded");
    let is_json = kind.starts_with("application/json");
    let bytes = extract::read(request.into_body()).await?;
    if is_form {
        return Ok((form(&bytes)?, Files::new()));
    }
    if !is_json {
        let message = "the body must be JSON, with the content type application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
    }
    let spec = serde_json::from_slice(&bytes);
    Ok((spec.map_err(|error| ApiError::bad_request(format!("the body does not fit: {error}")))?, Files::new()))
}

/// A form of parts: fields, and files whose names are their paths.
async fn parts(mut request: Request) -> Result<(BuildRequest, Files), ApiError> {
    let wrong = |_| ApiError::bad_request("the form cannot be read");
    DefaultBodyLimit::max(MOST_BYTES + AROUND_FILES).apply(&mut request);
    let mut parts =
        Multipart::from_request(request, &()).await.map_err(|_| ApiError::bad_request("this is no form"))?;
    let (mut fields, mut files, mut left) = (Vec::new(), Files::new(), MOST_BYTES);
    loop {
        let field = tokio::time::timeout(STILL_FOR, parts.next_field()).await.map_err(|_| too_slow())?;
        let Some(mut field) = field.map_err(wrong)? else { break };
        let (name, is_file) = (field.name().unwrap_or_default().to_owned(), field.file_name().is_some());
        // A part without content also takes memory.
        left = left.checked_sub(name.len() + LEAST_PART).ok_or_else(too_large)?;
        let mut content = Vec::new();
        loop {
            let chunk = tokio::time::timeout(STILL_FOR, field.chunk()).await.map_err(|_| too_slow())?;
            let Some(chunk) = chunk.map_err(wrong)? else { break };
            left = left.checked_sub(chunk.len()).ok_or_else(too_large)?;
            content.extend_from_slice(&chunk);
        }
        if is_file {
            files.push((checked_path(&name)?, content.into()));
        } else {
            let text = String::from_utf8(content).map_err(|_| ApiError::bad_request("a field is not UTF-8"))?;
            // One of the clients sends CRLF line ends, like browsers do.
            fields.push((name, text.replace("\r\n", "\n")));
        }
    }
    let spec = form(&serde_urlencoded::to_string(fields).unwrap_or_default().into_bytes())?;
    if spec.dockerfile.is_none() && !files.is_empty() {
        let message = "root file systems are not taken: a template is built from Debian packages or a Dockerfile";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "unsupported", message));
    }
    Ok((spec, files))
}

/// A path below the directory of the build.
fn checked_path(path: &str) -> Result<String, ApiError> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    let fits = path.len() < 4096 && path.split('/').all(plain);
    fits.then(|| path.to_owned()).ok_or_else(|| ApiError::bad_request(format!("{path:?} is no path of a file")))
}

fn too_large() -> ApiError {
    let message = format!("the files of a build may have {} MiB", MOST_BYTES >> 20);
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn form(bytes: &[u8]) -> Result<BuildRequest, ApiError> {
    let form: BuildForm = serde_urlencoded::from_bytes(bytes)
        .map_err(|error| ApiError::bad_request(format!("the form does not fit: {error}")))?;
    let listed = |names: Option<String>| -> Vec<String> {
        let names = names.unwrap_or_default();
        names.split([',', ' ', '\n']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Ok(BuildRequest {
        name: form.name.ok_or_else(|| ApiError::bad_request("a template needs a name"))?,
        from: form.from,
        packages: listed(form.packages),
        npm: listed(form.npm),
        dockerfile: form.dockerfile,
        image_ref: form.image_ref,
        replace: form.replace.map(Flag::is_set),
        cpu: form.cpu,
        memory_mb: form.memory_mb,
        disk_mb: form.size_mb,
    })
}

fn recipe(workspace: &str, request: BuildRequest) -> Result<Recipe, ApiError> {
    let from = sandling_image::resolve(request.from.as_deref().unwrap_or("base"))?.recipe;
    let name: TemplateName = request.name.parse().map_err(RecipeError::from)?;
    let stored = stored_name(workspace, name.as_str())?;
    let recipe = Recipe::custom(stored.as_str(), &from, request.packages.iter().map(String::as_str))?;
    let mut recipe = recipe.with_npm(request.npm.iter().map(String::as_str))?;
    recipe.vcpus = request.cpu.unwrap_or(recipe.vcpus);
    recipe.memory_mib = request.memory_mb.unwrap_or(recipe.memory_mib);
    recipe.disk_mib = request.disk_mb.unwrap_or(recipe.disk_mib);
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
/// The latest builds of the workspace, newest first.
#[utoipa::path(get, path = "/v1/templates/builds", tag = "templates", responses((status = 200, body = Vec<BuildView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Json<Vec<BuildView>> {
    Json(app.service.builds.list(caller.workspace().as_str()).iter().map(|build| build_view(build)).collect())
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
    Ok(Json(build_view(&*app.build(caller.workspace().as_str(), &build)?)))
}

/// Read the log of a build
///
/// Events with one line each, and one named `done` at the end. The server keeps the log until it ends.
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
    let build = app.build(caller.workspace().as_str(), &build)?;
    let follows = params.follow.is_none_or(Flag::is_set);
    Ok(sse::endless(app.closing(), move |events| relay(build, follows, events)))
}

async fn relay(build: Arc<Build>, follows: bool, events: Events) -> Result<(), Gone> {
    let (mut progress, mut sent) = (build.progress(), 0);
    loop {
        let (lines, is_over) = {
            let now = progress.borrow_and_update();
            let lines: Vec<_> = now.lines.iter().skip(sent).take(AT_ONCE).map(|line| line.text.clone()).collect();
            (lines, now.is_over())
        };
        for line in &lines {
            // The public client treats a line with just this text as the end.
            events.send_text(None, if line.trim() == "end" { "end." } else { line }).await?;
        }
        sent += lines.len();
        if lines.len() == AT_ONCE {
            continue;
        }
        if is_over || !follows || progress.changed().await.is_err() {
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
                let request = BuildRequest { name: name.to_owned(), ..Default::default() };
                assert!(recipe(workspace, request).is_err(), "{workspace} {name:?}");
            }
            let request =
                BuildRequest { name: "mine".to_owned(), packages: vec!["jq".to_owned()], ..Default::default() };
            assert!(recipe(workspace, request).unwrap().packages.contains("jq"));
        }
    }

    #[test]
    fn a_form_is_a_wish_like_any_other() {
        let request = form(b"name=x&packages=jq,curl+git").unwrap();
        assert_eq!((request.packages.join(" ").as_str(), text_of(&request).unwrap()), ("jq curl git", None));
        let request = form(b"name=x&image_ref=debian%3A12&size_mb=100").unwrap();
        assert_eq!((text_of(&request).unwrap().as_deref(), request.disk_mb), (Some("FROM debian:12"), Some(100)));
        assert!(text_of(&form(b"name=x&image_ref=a&packages=jq").unwrap()).is_err());
    }

    #[test]
    fn a_file_lies_below_the_directory_of_the_build() {
        for path in ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\0b"] {
            assert!(checked_path(path).is_err(), "{path:?}");
        }
        assert!(checked_path("src/zoë 1.txt").is_ok());
    }
}
