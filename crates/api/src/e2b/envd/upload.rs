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

use super::paths::resolve;
use crate::e2b::place::Envd;
use crate::extract::too_slow;
use crate::prelude::*;

/// An upload that stalls for this long is dropped, and leaves no file.
const STILL_FOR: Duration = Duration::from_secs(60);
/// Compressed data can expand a thousandfold, so it is read in small portions.
const PORTION: usize = 4096;

/// Writes one file, whose content is the whole body.
pub(super) async fn plain(envd: &Envd, path: &str, headers: &HeaderMap, mut body: Body) -> Result<Value, ApiError> {
    let path = resolve(&envd.sandbox, envd.user(), path).await?;
    let mut sink = Sink::new(open(envd, &path)?, headers)?;
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
    Ok(view(&path))
}

/// Writes the files of a form. The URL may name a single file; several files have their own names.
pub(super) async fn forms(envd: &Envd, path: Option<String>, mut request: Request) -> Result<Vec<Value>, ApiError> {
    let wrong = |_| ApiError::bad_request("the form cannot be read");
    DefaultBodyLimit::disable().apply(&mut request);
    let mut form = Multipart::from_request(request, &()).await.map_err(|_| ApiError::bad_request("this is no form"))?;
    let (mut written, mut seen) = (Vec::new(), BTreeSet::new());
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
        let upload = open(envd, &target)?;
        loop {
            let chunk = tokio::time::timeout(STILL_FOR, field.chunk()).await.map_err(|_| too_slow())?;
            let Some(chunk) = chunk.map_err(wrong)? else { break };
            upload.send(&chunk).await?;
        }
        upload.finish().await?;
        written.push(view(&target));
    }
    if written.is_empty() {
        return Err(ApiError::bad_request("there is no file in the form"));
    }
    Ok(written)
}

fn open(envd: &Envd, path: &str) -> Result<Upload, ApiError> {
    Ok(envd.sandbox.write_file(path, WriteMode::Replace, None, Some(envd.user().to_owned()))?)
}

fn view(path: &str) -> Value {
    json!({ "path": path, "name": path.rsplit('/').next().unwrap_or_default(), "type": "file" })
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

    async fn finish(self) -> Result<(), ApiError> {
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
