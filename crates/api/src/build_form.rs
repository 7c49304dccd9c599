//! Requests for builds of templates, in any of the encodings that the public clients use.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use sandling_service::{DockerfileOptions, Packages, bases_of_dockerfile, split_requirements};
use sandling_wire::{BuildRequest, Flag};
use serde::Deserialize;

use crate::error::ApiError;
use crate::extract::{self, too_slow};

/// The maximum size of a Dockerfile and its files.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The maximum size of the other parts of a form.
const AROUND_FILES: usize = 1 << 20;
const LEAST_PART: usize = 64;
/// A form without progress for this long is dropped.
const STILL_FOR: Duration = Duration::from_secs(60);

/// Files that a Dockerfile may copy, by their paths.
pub(crate) type Files = Vec<(String, Bytes)>;

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

/// The Dockerfile that is meant, if one is.
pub(crate) fn text_of(request: &BuildRequest) -> Result<Option<String>, ApiError> {
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
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut whole = Vec::with_capacity(announced.min(MOST_BYTES + AROUND_FILES));
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

pub(crate) fn packages(request: &BuildRequest) -> Packages {
    Packages {
        debian: request.packages.clone(),
        npm: request.npm.clone(),
        pip: request.pip.clone(),
        requirements: request.requirements.clone(),
    }
}

/// The built-in template that packages are added to.
pub(crate) fn package_base(request: &BuildRequest) -> String {
    request.from.clone().unwrap_or_else(|| "base".to_owned())
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
            let chunks = std::iter::repeat_n(chunk, count).map(Ok::<_, std::io::Error>);
            Body::from_stream(futures_util::stream::iter(chunks))
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
