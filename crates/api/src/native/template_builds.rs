//! Builds of templates.

use axum::extract::{Request, State};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandling_image::RecipeError;
use sandling_service::{
    Build, CacheUse, DockerfileBuild, DockerfileError, DockerfileOptions, OnFailure, PackageBuild, PackageError,
    WorkspaceName, parse_dockerfile,
};
use sandling_wire::{BuildRequest, BuildView, Flag, FreedView};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::build_form::{Files, package_base, packages, read, text_of};
use crate::convert::template::build_view;
use crate::prelude::*;
use crate::service_refusals::explain;
use crate::sse::{self, Events, Gone};

/// Log lines that are buffered for a slow client.
const AT_ONCE: usize = 100;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    let router = OpenApiRouter::new().routes(routes!(start)).routes(routes!(upload)).routes(routes!(clear_cache));
    router.routes(routes!(list)).routes(routes!(get)).routes(routes!(logs))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogParams {
    /// Wait for further lines.
    follow: Option<Flag>,
}

/// Build a template
///
/// Adds packages from Debian, npm and PyPI to a built-in template, or runs the steps of a Dockerfile. Both happen in a
/// machine, which is saved. The response comes at once, and the build continues.
#[utoipa::path(
    post, path = "/v1/templates/build", request_body = BuildRequest, responses((status = 202, body = BuildView)),
)]
async fn start(call: Call<Run>, request: Request) -> Result<(StatusCode, Json<BuildView>), ApiError> {
    let (request, files) = read(request).await?;
    let build = match text_of(&request)? {
        Some(text) => from_dockerfile(&call.app, call.workspace(), &request, &text, files).await?,
        None => call.app.service.builds.start_packages(call.workspace(), package_build(request), explain)?,
    };
    call.context.made(&build.id);
    Ok((StatusCode::ACCEPTED, Json(build_view(&build))))
}

async fn from_dockerfile(
    app: &Arc<App>,
    workspace: &WorkspaceName,
    request: &BuildRequest,
    text: &str,
    files: Files,
) -> Result<Arc<Build>, ApiError> {
    let replaces = request.replace.unwrap_or_default();
    app.service.builds.check_name(workspace, &request.name, replaces)?;
    // Before the files are stored: most mistakes are in the text.
    parse_dockerfile(text)?;
    let secrets = request.secrets.iter().map(|(id, value)| {
        let wrong = |_| ApiError::bad_request(format!("the secret {id} is not Base64"));
        Ok((id.clone(), BASE64_STANDARD.decode(value).map_err(wrong)?))
    });
    let secrets = secrets.collect::<Result<_, ApiError>>()?;
    let context = match &request.context {
        Some(hash) if !app.service.builds.uploads.has(workspace.as_str(), hash)? => {
            return Err(ApiError::bad_request("the files of this build were not uploaded"));
        }
        Some(hash) => Some(hash.clone()),
        None if files.is_empty() => None,
        None => Some(app.service.builds.uploads.store_files(workspace.as_str(), files).await?),
    };
    let (build_args, target) = (request.build_args.clone(), request.target.clone());
    let build = DockerfileBuild {
        name: request.name.clone(),
        replace: replaces,
        text: text.to_owned(),
        options: DockerfileOptions { build_args, target, context },
        secrets,
        cache: cache_use(request),
        on_failure: on_failure(request),
        start: request.start.unwrap_or(true),
        warm: request.warm.clone(),
        vcpus: request.cpu,
        memory_mib: request.memory_mb,
        disk_mib: request.disk_mb,
    };
    Ok(app.service.builds.start_dockerfile(workspace, build, explain).await?)
}

/// Upload the directory of a Dockerfile
///
/// A tar without compression, under a hash of it: 16 to 128 hexadecimal digits. A build that names the hash as its `context`
/// uses the files, and then the server deletes them. Nodes of a fleet take archives of one hash for the same.
#[utoipa::path(
    put, path = "/v1/templates/builds/uploads/{hash}",
    request_body(content = Vec<u8>, content_type = "application/x-tar"), responses((status = 204)),
)]
async fn upload(call: Call<Run>, request: Request) -> Result<StatusCode, ApiError> {
    let body = request.into_body().into_data_stream();
    call.app.service.builds.uploads.store(call.workspace().as_str(), &call.item, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Remove what builds and images have cached
///
/// Removes the cached steps and layers of the workspace, and its templates of images and pre-warmed sizes that were not used
/// for two weeks. Later builds run all their steps again.
#[utoipa::path(delete, path = "/v1/templates/builds/cache", responses((status = 200, body = FreedView)))]
async fn clear_cache(State(app): State<Arc<App>>, caller: Caller<Run>) -> Result<Json<FreedView>, ApiError> {
    let freed = app.service.garbage.empty_caches(caller.workspace()).await?;
    Ok(Json(freed.into()))
}

fn package_build(request: BuildRequest) -> PackageBuild {
    PackageBuild {
        packages: packages(&request),
        replace: request.replace.unwrap_or(true),
        cache: cache_use(&request),
        on_failure: on_failure(&request),
        from: package_base(&request),
        warm: request.warm,
        name: request.name,
        vcpus: request.cpu,
        memory_mib: request.memory_mb,
        disk_mib: request.disk_mb,
    }
}

fn cache_use(request: &BuildRequest) -> CacheUse {
    if request.no_cache.unwrap_or_default() { CacheUse::Ignore } else { CacheUse::Use }
}

fn on_failure(request: &BuildRequest) -> OnFailure {
    if request.keep_failed.unwrap_or_default() { OnFailure::Keep } else { OnFailure::End }
}

impl From<DockerfileError> for ApiError {
    fn from(error: DockerfileError) -> Self {
        match error {
            DockerfileError::Plan(error) => error.into(),
            DockerfileError::Package(error) => error.into(),
            DockerfileError::Name(error) => error.into(),
            DockerfileError::Base(error) => error.into(),
            DockerfileError::Register(error) => error.into(),
            DockerfileError::Start(error) => error.into(),
        }
    }
}

impl From<PackageError> for ApiError {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Recipe(error) => error.into(),
            PackageError::Requirement(_) | PackageError::TooMany => Self::bad_request(error.to_string()),
        }
    }
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
            | RecipeError::BadPip { .. }
            | RecipeError::BadNode { .. }
            | RecipeError::OutOfRange { .. } => Self::bad_request(message),
        }
    }
}

/// List builds
///
/// The latest builds of the workspace, newest first; in a fleet, those of all nodes.
#[utoipa::path(get, path = "/v1/templates/builds", responses((status = 200, body = Vec<BuildView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Json<Vec<BuildView>> {
    Json(app.service.builds.registry.list(caller.workspace().as_str()).iter().map(|build| build_view(build)).collect())
}

/// Look at a build
#[utoipa::path(get, path = "/v1/templates/builds/{build}", responses((status = 200, body = BuildView)))]
async fn get(call: Call<Read>) -> Result<Json<BuildView>, ApiError> {
    Ok(Json(build_view(&*call.app.build(call.workspace().as_str(), &call.item)?)))
}

/// Read the log of a build
///
/// Events with one line each, and one named `done` at the end. The server keeps the log until it ends.
#[utoipa::path(
    get, path = "/v1/templates/builds/{build}/logs", params(LogParams),
    responses((status = 200, body = String, content_type = "text/event-stream")),
)]
async fn logs(call: Call<Read>, Params(params): Params<LogParams>) -> Result<Response, ApiError> {
    let build = call.app.build(call.workspace().as_str(), &call.item)?;
    let follows = params.follow.is_none_or(Flag::is_set);
    Ok(sse::endless(call.app.closing(), move |events| relay(build, follows, events)))
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
