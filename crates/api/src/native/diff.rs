//! Differences between two states of a file system.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use sandling_engine::{Diff, DiffError, Point, TarStream};
use sandling_service::WorkspaceName;
use sandling_wire::{AnyDiffParams, DiffFormat, DiffParams, DiffView};

use crate::convert::diff::diff_view;
use crate::prelude::*;

/// The limit of diff text in one response.
const MOST_TEXT: usize = 16 << 20;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(of_sandbox)).routes(routes!(of_any))
}

/// Show what changed in a sandbox
///
/// Compares two checkpoints, a checkpoint and now, or the sandbox and another sandbox or snapshot of the same template.
/// Files below `/proc`, `/sys`, `/dev`, `/run` and `/tmp` and in mounted file systems are left out.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/diff", params(DiffParams),
    responses(
        (status = 200, content((DiffView = "application/json"), (String = "text/x-patch"), (Vec<u8> = "application/x-tar"))),
    ),
)]
async fn of_sandbox(call: SandboxCall<Read>, Params(params): Params<DiffParams>) -> Result<Response, ApiError> {
    let to = params.to.unwrap_or_else(|| "now".to_owned());
    let workspace = call.workspace().as_str();
    let points = [
        call.app.engine.point(workspace, Some(&call.sandbox), &params.from).await?,
        call.app.engine.point(workspace, Some(&call.sandbox), &to).await?,
    ];
    let query = DiffQuery { names: [params.from, to], path: params.path, format: params.format.unwrap_or_default() };
    answer(&call.app, call.workspace(), points, query).await
}

/// Compare two sandboxes or snapshots
///
/// Both must have the same template.
#[utoipa::path(
    get, path = "/v1/diff", params(AnyDiffParams),
    responses(
        (status = 200, content((DiffView = "application/json"), (String = "text/x-patch"), (Vec<u8> = "application/x-tar"))),
    ),
)]
async fn of_any(call: Call<Read>, Params(params): Params<AnyDiffParams>) -> Result<Response, ApiError> {
    let workspace = call.workspace().as_str();
    let points = [
        call.app.engine.point(workspace, None, &params.from).await?,
        call.app.engine.point(workspace, None, &params.to).await?,
    ];
    let query =
        DiffQuery { names: [params.from, params.to], path: params.path, format: params.format.unwrap_or_default() };
    answer(&call.app, call.workspace(), points, query).await
}

struct DiffQuery {
    names: [String; 2],
    path: Option<String>,
    format: DiffFormat,
}

async fn answer(
    app: &Arc<App>,
    workspace: &WorkspaceName,
    [from, to]: [Point; 2],
    query: DiffQuery,
) -> Result<Response, ApiError> {
    let path = query.path.unwrap_or_else(|| "/".to_owned());
    let turn = app.service.create_limiter.acquire(workspace).await?;
    let diff = app.engine.diff(&from, &to, &path).await?;
    drop(turn);
    let kind = |kind| [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    Ok(match query.format {
        DiffFormat::Json => Json(view(&diff, query.names, path).await?).into_response(),
        DiffFormat::Patch => (kind("text/x-patch; charset=utf-8"), diff.patch().await?).into_response(),
        DiffFormat::Tar => (kind("application/x-tar"), body(diff.into_tar())).into_response(),
    })
}

async fn view(diff: &Diff, [from, to]: [String; 2], path: String) -> Result<DiffView, ApiError> {
    let texts = diff.texts(MOST_TEXT).await?;
    Ok(diff_view(from, to, path, diff.changes(), texts))
}

/// If the archive breaks off, so does the connection, so that no client takes a part for the whole.
fn body(tar: TarStream) -> Body {
    Body::from_stream(futures_util::stream::unfold(Some(tar), |tar| async move {
        let mut tar = tar?;
        match tar.next().await {
            Ok(Some(bytes)) => Some((Ok::<_, DiffError>(Bytes::from(bytes)), Some(tar))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }))
}
