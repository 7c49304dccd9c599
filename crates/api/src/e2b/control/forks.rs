//! Forks of running sandboxes.

use std::time::Duration;

use axum::routing::post;
use sandling_engine::{ForkSpec, State as SandboxState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::SandboxCall;
use super::identity_files;
use super::sandboxes::{DEFAULT_TIMEOUT, timeout};
use super::view::SandboxView;
use crate::prelude::*;
use crate::preview::host::Origin;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/{id}/fork", post(fork))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ForkRequest {
    timeout: Option<i64>,
    count: Option<u32>,
}

/// Forks a running sandbox. Either all forks are created, or none.
async fn fork(
    call: SandboxCall<Run>,
    origin: Origin,
    body: JsonBody<ForkRequest>,
) -> Result<(StatusCode, Json<Vec<Value>>), ApiError> {
    call.app.engine.settled().await;
    let info = call.sandbox.info();
    if info.state != SandboxState::Running {
        return Err(ApiError::conflict("sandbox_paused", "the sandbox is paused; connect to it first"));
    }
    let count = body.value.count.unwrap_or(1);
    let seconds = timeout(body.value.timeout)?.unwrap_or(DEFAULT_TIMEOUT);
    let spec = ForkSpec {
        children: count as usize,
        ttl: Some(Duration::from_secs(seconds)),
        metadata: info.metadata.clone(),
        labels: info.labels.clone(),
        settings: info.settings.clone(),
        ..ForkSpec::default()
    };
    let forks = call.app.service.sandboxes.fork(call.workspace(), &call.sandbox, spec).await?;
    for fork in &forks {
        identity_files::write(&fork.sandbox);
    }
    let views =
        forks.iter().map(|fork| SandboxView::new(&call.app, &call.caller.principal, &origin, &fork.sandbox.info()));
    Ok((StatusCode::CREATED, Json(views.map(|view| json!({ "sandbox": view })).collect())))
}
