//! What most handlers take of a request: the caller, and the sandbox that the path names.

use std::sync::Arc;

use axum::extract::{Extension, FromRequestParts};
use axum::http::request::Parts;
use sandling_engine::Sandbox;
use sandling_service::WorkspaceName;

use crate::app::App;
use crate::auth::{Caller, Need};
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::extract;

/// A request of a caller who has the scope `N`.
pub(crate) struct Call<N> {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller<N>,
    pub(crate) context: RequestContext,
    /// The last variable part of the path; empty if there is none.
    pub(crate) item: String,
}

/// A request about a sandbox of the caller's workspace, whose id is the first variable part of the path.
pub(crate) struct SandboxCall<N> {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller<N>,
    pub(crate) context: RequestContext,
    pub(crate) sandbox: Arc<Sandbox>,
    /// The last variable part of the path.
    pub(crate) item: String,
}

impl<N> Call<N> {
    pub(crate) fn workspace(&self) -> &WorkspaceName {
        self.caller.workspace()
    }
}

impl<N> SandboxCall<N> {
    pub(crate) fn workspace(&self) -> &WorkspaceName {
        self.caller.workspace()
    }
}

impl<N: Need> FromRequestParts<Arc<App>> for Call<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let context = Extension::<RequestContext>::from_request_parts(parts, app).await;
        let Extension(context) = context.map_err(|missing| ApiError::internal(&missing))?;
        let item = variables(parts).await?.pop().unwrap_or_default();
        Ok(Self { app: app.clone(), caller, context, item })
    }
}

impl<N: Need> FromRequestParts<Arc<App>> for SandboxCall<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let Call { app, caller, context, item } = Call::from_request_parts(parts, app).await?;
        let id = variables(parts).await?.into_iter().next().unwrap_or_default();
        let sandbox = caller.sandbox(&app, &id).await?;
        Ok(Self { app, caller, context, sandbox, item })
    }
}

/// The variable parts of the path.
async fn variables(parts: &mut Parts) -> Result<Vec<String>, ApiError> {
    Ok(extract::Parts::from_request_parts(parts, &()).await?.0)
}
