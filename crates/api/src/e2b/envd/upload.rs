//! Uploads, as a single body (perhaps compressed) or as a form. A file is never held in memory as a whole.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request};
use axum::http::header;
use flate2::write::GzDecoder;
use http_body_util::BodyExt;
use sandling_engine::Upload;
use sandling_protocol::WriteMode;
use serde_json::{Value, json};

use super::metadata::FileMetadata;
use super::paths::resolve;
use crate::e2b::place::Envd;
use crate::e2b::refusal::unsupported;
use crate::extract::too_slow;
use crate::prelude::*;

/// An upload that stalls for this long is dropped, and leaves no file.
const STILL_FOR: Duration = Duration::from_secs(60);
/// Compressed data can expand a thousandfold, so it is read in small portions.
const PORTION: usize = 4096;

/// Writes one file, whose content is the whole body.
pub(super) async fn plain(
    envd: &Envd,
    path: &str,
    headers: &HeaderMap,
    metadata: &FileMetadata,
    mut body: Body,
) -> Result<Value, ApiError> {
    let path = resolve(&envd.sandbox, envd.user(), path).await?;
    let mut sink = Sink::new(open(envd, &path, metadata)?, headers)?;
    loop {
        let frame = tokio::time::timeout(STILL_FOR, body.frame()).await.map_err(|_| too_slow())?;
        match frame {
            None => break,
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    sink.take(&bytes).await?;
                }
            }
            Some(Err(_)) => return Err(ApiError::bad_request("the body ended too early")),
        }
    }
    sink.finish().await?;
    written(envd, &path, metadata).await
}

/// Writes the files of a form. The URL may name a single file; several files have their own names.
pub(super) async fn forms(
    envd: &Envd,
    path: Option<String>,
    metadata: &FileMetadata,
    mut request: Request,
) -> Result<Vec<Value>, ApiError> {
    let wrong = |_| ApiError::bad_request("the form cannot be read");
    DefaultBodyLimit::disable().apply(&mut request);
    let mut form = Multipart::from_request(request, &()).await.map_err(|_| ApiError::bad_request("this is no form"))?;
    let (mut files, mut seen) = (Vec::new(), BTreeSet::new());
    loop {
        let field = tokio::time::timeout(STILL_FOR, form.next_field()).await.map_err(|_| too_slow())?;
        let Some(mut field) = field.map_err(wrong)? else { break };
        if field.name() != Some("file") {
            continue;
        }
        // The clients encode a quote in a name like browsers do.
        let own = field.file_name().map(|name| name.replace("%22", "\""));
        let name = path.clone().or(own).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| ApiError::bad_request("a file of the form has no name"))?;
        let target = resolve(&envd.sandbox, envd.user(), &name).await?;
        if !seen.insert(target.clone()) {
            return Err(ApiError::bad_request(format!("{target} is in the form twice")));
        }
        let mut upload = open(envd, &target, metadata)?;
        loop {
            let chunk = tokio::time::timeout(STILL_FOR, field.chunk()).await.map_err(|_| too_slow())?;
            let Some(chunk) = chunk.map_err(wrong)? else { break };
            upload.send(&chunk).await?;
        }
        upload.finish().await?;
        files.push(written(envd, &target, metadata).await?);
    }
    if files.is_empty() {
        return Err(ApiError::bad_request("there is no file in the form"));
    }
    Ok(files)
}

fn open(envd: &Envd, path: &str, metadata: &FileMetadata) -> Result<Upload, ApiError> {
    let user = Some(envd.user().to_owned());
    Ok(envd.sandbox.write_with_metadata(path, WriteMode::Replace, None, user, metadata.clone())?)
}

/// A file that was written, once its metadata was found with it.
async fn written(envd: &Envd, path: &str, metadata: &FileMetadata) -> Result<Value, ApiError> {
    let mut view = json!({ "path": path, "name": path.rsplit('/').next().unwrap_or_default(), "type": "file" });
    if !metadata.is_empty() {
        if envd.sandbox.stat(path).await?.metadata != *metadata {
            return Err(unsupported(&format!(
                "{path} was written, but without its metadata: the sandbox's guest agent is too old, or the file system \
                 has no extended attributes; create a new sandbox, or write below /home"
            )));
        }
        view["metadata"] = json!(metadata);
    }
    Ok(view)
}

/// Writes a body's bytes, after decompression if needed.
struct Sink {
    upload: Upload,
    unpack: Option<GzDecoder<Vec<u8>>>,
}

impl Sink {
    fn new(upload: Upload, headers: &HeaderMap) -> Result<Self, ApiError> {
        let encoding =
            headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("identity");
        let unpack = match encoding {
            "identity" | "" => None,
            "gzip" => Some(GzDecoder::new(Vec::new())),
            other => {
                let message = format!("a body cannot be encoded as {other:?}");
                return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_encoding", message));
            }
        };
        Ok(Self { upload, unpack })
    }

    async fn take(&mut self, bytes: &Bytes) -> Result<(), ApiError> {
        let Some(unpack) = &mut self.unpack else { return Ok(self.upload.send(bytes).await?) };
        for portion in bytes.chunks(PORTION) {
            unpack.write_all(portion).map_err(|_| spoiled())?;
            let unpacked = std::mem::take(unpack.get_mut());
            self.upload.send(&unpacked).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), ApiError> {
        if let Some(unpack) = self.unpack {
            self.upload.send(&unpack.finish().map_err(|_| spoiled())?).await?;
        }
        self.upload.finish().await?;
        Ok(())
    }
}

fn spoiled() -> ApiError {
    ApiError::bad_request("the body says that it is gzip, and is not")
}
