//! Which client needs interim responses during a long call.

use axum::http::{HeaderMap, header};

const PYTHON_CLIENT: &str = "pandastack-py/";

/// PandaStack's Python client gives up after 30 s of silence, and its HTTP library skips `100 Continue` responses. The
/// TypeScript client fails on them, so here the `User-Agent` decides.
pub(crate) fn wants_interim_responses(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| agent.starts_with(PYTHON_CLIENT))
}
