//! Forks of a context: sandboxes in which that interpreter continues with its variables.

use axum::extract::State;
use sandling_engine::{EndReason, Fork};
use sandling_protocol::ContextInfo;
use sandling_wire::{ContextForkView, ForkRequest};

use crate::convert::fork::{DefaultCount, context_fork_view, fork_spec};
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(fork)).routes(routes!(fork_session))
}

/// Copy a live interpreter
///
/// Forks the whole sandbox. The interpreter continues in every child under the same id, with its variables. If it does
/// not exist, nothing is created.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/contexts/{context}/fork", request_body = Option<ForkRequest>,
    responses((status = 201, body = ContextForkView)),
)]
async fn fork(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts((id, context)): Parts<(String, String)>,
    body: JsonBody<ForkRequest>,
) -> Result<(StatusCode, Json<ContextForkView>), ApiError> {
    make(&app, &caller, &id, &context, body.value).await
}

/// Copy a REPL session
///
/// The same as forking a context.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/repl/sessions/{session}/fork", request_body = Option<ForkRequest>,
    responses((status = 201, body = ContextForkView)),
)]
async fn fork_session(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts((id, session)): Parts<(String, String)>,
    body: JsonBody<ForkRequest>,
) -> Result<(StatusCode, Json<ContextForkView>), ApiError> {
    make(&app, &caller, &id, &session, body.value).await
}

async fn make(
    app: &Arc<App>,
    caller: &Caller<Run>,
    id: &str,
    context: &str,
    request: ForkRequest,
) -> Result<(StatusCode, Json<ContextForkView>), ApiError> {
    app.engine.settled().await;
    let parent = caller.sandbox(app, id).await?;
    let spec = fork_spec(request, DefaultCount::One)?;
    let known = parent.list_contexts().await?;
    if !known.iter().any(|known| known.id == context) {
        return Err(ApiError::not_found("session"));
    }
    let forks = app.service.sandboxes.fork(caller.workspace(), &parent, spec).await?;
    match contexts(&forks, context).await {
        Ok(contexts) => Ok((StatusCode::CREATED, Json(context_fork_view(&forks, contexts)))),
        Err(error) => {
            for fork in &forks {
                // The client does not know these forks. If one cannot be ended, the log says so.
                let _ = fork.sandbox.end(EndReason::Requested).await;
            }
            Err(error)
        }
    }
}

/// The interpreter of each child.
async fn contexts(forks: &[Fork], context: &str) -> Result<Vec<ContextInfo>, ApiError> {
    let mut found = Vec::with_capacity(forks.len());
    for fork in forks {
        let own = fork.sandbox.list_contexts().await?;
        // The context was closed before the fork.
        found.push(own.into_iter().find(|own| own.id == context).ok_or_else(|| ApiError::not_found("session"))?);
    }
    Ok(found)
}
