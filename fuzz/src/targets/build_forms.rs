//! The form of a template build. The first line is its content type, and the rest is the body.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use sandling_api::fuzzing::build_request;
use tokio::runtime::Builder;

pub fn run(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (kind, body) = data.split_at(end);
    let body = body.strip_prefix(b"\n").unwrap_or(body).to_vec();
    let Ok(kind) = HeaderValue::from_bytes(kind) else { return };
    let mut request = Request::new(Body::from(body));
    request.headers_mut().insert(CONTENT_TYPE, kind);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let Ok(files) = runtime.block_on(build_request(request)) else { return };
    assert!(files.iter().map(|(_, size)| size).sum::<usize>() <= data.len());
    for (path, _) in files {
        assert!(!path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
    }
}
