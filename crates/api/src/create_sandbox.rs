//! Creates sandboxes, and runs the code that a request brings along. Requests with the same idempotency key create only one.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use sandling_service::{StartDirectory, WorkspaceName, inherit_process_defaults};
use sandling_wire::{CellResult, CreateSandbox, CreatedSandbox, FirstRun};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::context::RequestContext;
use crate::convert::IntoWire;
use crate::convert::sandbox::create_spec;
use crate::default_cell::CheckedCode;
use crate::durability::check_failover;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::idempotency::{Answer, IdempotentRequest};
use crate::snapshots;

pub(crate) async fn answer(
    app: &Arc<App>,
    workspace: &WorkspaceName,
    context: &RequestContext,
    headers: &HeaderMap,
    body: JsonBody<CreateSandbox>,
    start: StartDirectory,
) -> Result<Response, ApiError> {
    let route = "POST /v1/sandboxes";
    let idempotent = IdempotentRequest { app, context, workspace, headers, route, body: &body.bytes };
    idempotent
        .answer(|mark| async move {
            let mut request = body.value;
            check_failover(app, &request)?;
            let code = request.run.take().map(CheckedCode::new).transpose()?;
            if let Some(image) = request.image.take() {
                if request.template.is_some() || request.from_snapshot.is_some() {
                    let message = "a sandbox comes from one of template, image and from_snapshot; leave the others out";
                    return Err(ApiError::bad_request(message));
                }
                request.template = Some(app.service.images.template(workspace, &image, Arc::new(|_| {})).await?);
            }
            if let Some(named) = request.from_snapshot.take_if(|named| !named.is_empty()) {
                request.from_snapshot = Some(snapshots::resolve(app, workspace, &named)?.to_string());
            }
            let mut spec = create_spec(request, workspace.as_str())?;
            inherit_process_defaults(&app.engine, &mut spec, start)?;
            let sandbox = app.service.sandboxes.create(workspace, spec).await?;
            context.made(sandbox.id().as_str());
            mark.made(sandbox.id().as_str());
            let run = match code {
                Some(code) => {
                    let cell = code.in_sandbox(app, context, &sandbox);
                    Some(first_run(cell.run(None, &CancellationToken::new()).await, context))
                }
                None => None,
            };
            let created = CreatedSandbox { sandbox: sandbox.info().into_wire(), run };
            Ok(Answer::json(StatusCode::CREATED, &created))
        })
        .await
}

/// What the client learns about its code. The sandbox exists even if the code could not run.
fn first_run(ended: Result<CellResult, ApiError>, context: &RequestContext) -> FirstRun {
    match ended {
        Ok(result) => FirstRun { result: Some(result), error: None },
        Err(error) => FirstRun { result: None, error: Some(error.body_with_status(context.id())) },
    }
}
