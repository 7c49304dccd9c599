//! Builds of templates.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request, State};
use axum::http::header;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http_body_util::BodyExt;
use sandling_image::RecipeError;
use sandling_service::{
    Build, CacheUse, DockerfileBuild, DockerfileError, DockerfileOptions, OnFailure, PackageBuild, PackageError,
    Packages, WorkspaceName, bases_of_dockerfile, parse_dockerfile, split_requirements,
};
use sandling_wire::{BuildRequest, BuildView, Flag, FreedView};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::template::build_view;
use crate::extract::{self, too_slow};
use crate::prelude::*;
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
    let router = OpenApiRouter::new().routes(routes!(start)).routes(routes!(upload)).routes(routes!(clear_cache));
    router.routes(routes!(list)).routes(routes!(get)).routes(routes!(logs))
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
    pip: Option<String>,
    requirements: Option<String>,
    from: Option<String>,
    cpu: Option<u32>,
    memory_mb: Option<u32>,
    size_mb: Option<u32>,
    image_ref: Option<String>,
    dockerfile: Option<String>,
    replace: Option<Flag>,
    target: Option<String>,
    no_cache: Option<Flag>,
}

/// Files that a Dockerfile may copy, by their paths.
type Files = Vec<(String, Bytes)>;

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

/// The Dockerfile that is meant, if one is.
fn text_of(request: &BuildRequest) -> Result<Option<String>, ApiError> {
    match (&request.dockerfile, &request.image_ref) {
        (None, None) if has_dockerfile_options(request) => {
            let message = "build_args, target, context and secrets belong to a dockerfile; add it, or leave them out";
            Err(ApiError::bad_request(message))
        }
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(ApiError::bad_request("a template is built from a dockerfile or an image_ref")),
        _ if request.from.is_some() || !packages(request).is_empty() => {
            let message =
                "a Dockerfile says itself what it is made from; leave from, packages, npm, pip and requirements out";
            Err(ApiError::bad_request(message))
        }
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(image)) => Ok(Some(format!("FROM {image}"))),
    }
}

/// The templates that a build needs before it begins, and images, by their names. A build that is refused needs none.
pub(crate) fn bases(request: &BuildRequest) -> BTreeSet<String> {
    match text_of(request) {
        Ok(Some(text)) => {
            let (build_args, target) = (request.build_args.clone(), request.target.clone());
            bases_of_dockerfile(&text, DockerfileOptions { build_args, target, context: None }).unwrap_or_default()
        }
        Ok(None) => [package_base(request)].into(),
        Err(_) => BTreeSet::new(),
    }
}

fn has_dockerfile_options(request: &BuildRequest) -> bool {
    let BuildRequest { build_args, target, context, secrets, .. } = request;
    !build_args.is_empty() || target.is_some() || context.is_some() || !secrets.is_empty()
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
/// A tar without compression, under a hash of your choice: 16 to 128 hexadecimal digits. A build that names the hash as its
/// `context` uses the files, and then the server deletes them.
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

/// Whether a build request is a form of parts, which may be large.
pub(crate) fn has_parts(headers: &HeaderMap) -> bool {
    content_type(headers).starts_with("multipart/form-data")
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

/// Reads the body of a build request completely, without a look at it.
pub(crate) async fn read_whole(headers: &HeaderMap, mut body: Body) -> Result<Bytes, ApiError> {
    if !has_parts(headers) {
        return extract::read(body).await;
    }
    let mut whole = Vec::new();
    loop {
        let frame = tokio::time::timeout(STILL_FOR, body.frame()).await.map_err(|_| too_slow())?;
        let Some(frame) = frame else { return Ok(whole.into()) };
        let frame = frame.map_err(|_| ApiError::bad_request("the body ended too early"))?;
        let Ok(bytes) = frame.into_data() else { continue };
        if whole.len() + bytes.len() > MOST_BYTES + AROUND_FILES {
            extract::discard(&mut body).await;
            return Err(too_large());
        }
        whole.extend_from_slice(&bytes);
    }
}

/// Reads a build request in any of the encodings that the public clients use.
pub(crate) async fn read(request: Request) -> Result<(BuildRequest, Files), ApiError> {
    if has_parts(request.headers()) {
        return parts(request).await;
    }
    let kind = content_type(request.headers());
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
        pip: form.pip.as_deref().map(split_requirements).unwrap_or_default(),
        requirements: form.requirements,
        dockerfile: form.dockerfile,
        image_ref: form.image_ref,
        replace: form.replace.map(Flag::is_set),
        target: form.target,
        no_cache: form.no_cache.map(Flag::is_set),
        cpu: form.cpu,
        memory_mb: form.memory_mb,
        disk_mb: form.size_mb,
        ..BuildRequest::default()
    })
}

fn packages(request: &BuildRequest) -> Packages {
    Packages {
        debian: request.packages.clone(),
        npm: request.npm.clone(),
        pip: request.pip.clone(),
        requirements: request.requirements.clone(),
    }
}

/// The built-in template that packages are added to.
fn package_base(request: &BuildRequest) -> String {
    request.from.clone().unwrap_or_else(|| "base".to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_a_wish_like_any_other() {
        let request = form(b"name=x&packages=jq,curl+git").unwrap();
        assert_eq!((request.packages.join(" ").as_str(), text_of(&request).unwrap()), ("jq curl git", None));
        let request = form(b"name=x&image_ref=debian%3A12&size_mb=100").unwrap();
        assert_eq!((text_of(&request).unwrap().as_deref(), request.disk_mb), (Some("FROM debian:12"), Some(100)));
        assert!(text_of(&form(b"name=x&image_ref=a&packages=jq").unwrap()).is_err());
    }

    #[test]
    fn a_build_needs_its_base_or_what_its_dockerfile_names() {
        let bases = |text: &[u8]| bases(&form(text).unwrap()).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(bases(b"name=x&packages=jq"), "base");
        assert_eq!(bases(b"name=x&from=agent"), "agent");
        assert_eq!(bases(b"name=x&image_ref=mine"), "mine");
        assert_eq!(bases(b"name=x&dockerfile=FROM+mine+AS+one%0AFROM+ubuntu%3A24.04"), "base");
        assert_eq!(bases(b"name=x&dockerfile=RUN"), "", "the build refuses it");
    }

    #[tokio::test]
    async fn a_form_is_read_whole_or_refused_for_its_size() {
        let mut headers = HeaderMap::new();
        let mebibytes = |count| {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            Body::from_stream(futures_util::stream::iter(vec![Ok::<_, std::io::Error>(chunk); count]))
        };
        assert_eq!(read_whole(&headers, mebibytes(5)).await.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        headers.insert(header::CONTENT_TYPE, "multipart/form-data; boundary=x".parse().unwrap());
        assert_eq!(read_whole(&headers, mebibytes(5)).await.unwrap().len(), 5 << 20);
        assert_eq!(read_whole(&headers, mebibytes(66)).await.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn a_file_lies_below_the_directory_of_the_build() {
        for path in ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\0b"] {
            assert!(checked_path(path).is_err(), "{path:?}");
        }
        assert!(checked_path("src/zoë 1.txt").is_ok());
    }
}
