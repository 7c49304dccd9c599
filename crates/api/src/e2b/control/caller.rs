//! The sandbox that a path names, checked against the caller's workspace.

use std::sync::Arc;

use axum::http::StatusCode;
use sandling_engine::Sandbox;

use crate::app::App;
use crate::auth::Caller;
use crate::e2b::gone::cause;
use crate::e2b::place::parse_id;
use crate::error::ApiError;

/// A sandbox of the caller's workspace.
pub(super) async fn sandbox<N>(app: &App, caller: &Caller<N>, text: &str) -> Result<Arc<Sandbox>, ApiError> {
    let id = parse_id(text);
    let found = match &id {
        Some(id) => app.engine.find(caller.workspace().as_str(), id).await,
        None => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let ended = id.map(|id| app.engine.ended(&id)).transpose()?.flatten();
    let own = ended.filter(|(info, _)| info.workspace == caller.workspace().as_str());
    let message = match own {
        Some((_, why)) => format!("sandbox {text:?} doesn't exist any more: {}", cause(why)),
        None => format!("sandbox {text:?} doesn't exist or you don't have access to it"),
    };
    Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message))
}
