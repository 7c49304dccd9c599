//! Creates sandboxes. Requests with the same idempotency key create only one.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use sandling_service::{StartDirectory, WorkspaceName, inherit_process_defaults};
use sandling_wire::CreateSandbox;

use crate::app::App;
use crate::context::RequestContext;
use crate::convert::IntoWire;
use crate::convert::sandbox::create_spec;
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
            let view = app.service.sandboxes.create(workspace, spec).await?.info().into_wire();
            context.made(&view.id);
            mark.made(&view.id);
            Ok(Answer::json(StatusCode::CREATED, &view))
        })
        .await
}
