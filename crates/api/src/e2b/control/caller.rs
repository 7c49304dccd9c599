//! The sandbox that a path names, checked against the caller's workspace.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use sandling_engine::{EndReason, Sandbox};
use sandling_service::WorkspaceName;

use super::view::is_over;
use crate::app::App;
use crate::auth::{Caller, Need};
use crate::call::Call;
use crate::e2b::gone::cause;
use crate::e2b::place::parse_id;
use crate::error::ApiError;

/// A request about a sandbox of the caller's workspace, whose id is the first variable part of the path.
pub(super) struct SandboxCall<N> {
    pub(super) app: Arc<App>,
    pub(super) caller: Caller<N>,
    pub(super) sandbox: Arc<Sandbox>,
}

impl<N> SandboxCall<N> {
    pub(super) fn workspace(&self) -> &WorkspaceName {
        self.caller.workspace()
    }
}

impl<N: Need> FromRequestParts<Arc<App>> for SandboxCall<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let Call { app, caller, item, .. } = Call::from_request_parts(parts, app).await?;
        let sandbox = sandbox(&app, &caller, &item).await?;
        Ok(Self { app, caller, sandbox })
    }
}

async fn sandbox<N>(app: &App, caller: &Caller<N>, text: &str) -> Result<Arc<Sandbox>, ApiError> {
    let id = parse_id(text);
    let found = match &id {
        Some(id) => app.engine.find(caller.workspace().as_str(), id).await,
        None => None,
    };
    let info = found.as_ref().map(|found| found.info());
    let is_ending = info.is_some_and(|info| is_over(&info) && !info.lifetime.sleep.at_the_end);
    if let Some(found) = found
        && !is_ending
    {
        return Ok(found);
    }
    let ended = id.map(|id| app.engine.ended(&id)).transpose()?.flatten();
    let own = ended.filter(|(info, _)| info.workspace == caller.workspace().as_str());
    let message = match own {
        _ if is_ending => format!("sandbox {text:?} doesn't exist any more: {}", EndReason::Ttl),
        Some((_, why)) => format!("sandbox {text:?} doesn't exist any more: {}", cause(why)),
        None => format!("sandbox {text:?} doesn't exist or you don't have access to it"),
    };
    Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message))
}
