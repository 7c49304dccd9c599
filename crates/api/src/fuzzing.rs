//! The parsers of untrusted bytes, for fuzzing. No part of the crate's API.

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use sandling_engine::SandboxId;

use crate::build_form;
use crate::e2b::split_frames;
use crate::preview::{credentials, host, proxy};
use crate::range::{RequestedRange, requested};

/// The port and the sandbox that a host name stands for.
pub fn preview_host(host: &str) -> Option<(u16, SandboxId)> {
    host::parse_compact(host).or_else(|| host::parse(host))
}

/// Prepares a request for a server in a sandbox. `is_ours` recognizes our tokens.
pub fn prepare_for_guest(parts: &mut Parts, is_ours: impl Fn(&str) -> bool) {
    credentials::remove_from(parts, is_ours);
    proxy::prepare(&mut parts.headers, HeaderValue::from_static("localhost:3000"), "https", false);
}

/// The offset and the length of the requested range in a file of this size.
pub fn range(headers: &HeaderMap, size: u64) -> Option<(u64, u64)> {
    match requested(headers) {
        RequestedRange::All => Some((0, size)),
        RequestedRange::Part(part) => part.within(size),
    }
}

/// The messages of a client stream that arrives in these pieces, up to the first error.
pub fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    split_frames(pieces)
}

/// Reads the request of a template build. Returns the paths and sizes of its files, or the error's message.
pub async fn build_request(request: Request) -> Result<Vec<(String, usize)>, String> {
    let (_, files) = build_form::read(request).await.map_err(|error| error.message)?;
    Ok(files.into_iter().map(|(path, content)| (path, content.len())).collect())
}
