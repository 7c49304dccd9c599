//! Forks: copies of a running sandbox, and the choice of one of them.

use std::collections::BTreeMap;

use sandling_engine::{EndReason, SandboxId, SandboxInfo};
use sandling_wire::{ForkRequest, ForkView, PromoteRequest, PromoteView, RelativeView};

use crate::convert::fork::{DefaultCount, fork_spec, fork_view};
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(fork))
        .routes(routes!(fork_tree))
        .routes(routes!(promote))
        .routes(routes!(family))
}

/// Copy a running sandbox
///
/// The children have its memory, disk, processes and live interpreters. Each child gets its own random seed, clock and
/// names, and proves it before the response.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/fork", request_body = Option<ForkRequest>,
    responses((status = 201, body = ForkView)),
)]
async fn fork(call: Call<Run>, body: JsonBody<ForkRequest>) -> Result<(StatusCode, Json<ForkView>), ApiError> {
    make(&call.app, &call.caller, &call.item, body.value, DefaultCount::One).await
}

/// Copy a running sandbox several times
///
/// All children start from the same moment.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/fork-tree", request_body = Option<ForkRequest>,
    responses((status = 201, body = ForkView)),
)]
async fn fork_tree(call: Call<Run>, body: JsonBody<ForkRequest>) -> Result<(StatusCode, Json<ForkView>), ApiError> {
    make(&call.app, &call.caller, &call.item, body.value, DefaultCount::Tree).await
}

async fn make(
    app: &Arc<App>,
    caller: &Caller<Run>,
    id: &str,
    request: ForkRequest,
    usual: DefaultCount,
) -> Result<(StatusCode, Json<ForkView>), ApiError> {
    app.engine.settled().await;
    let parent = caller.sandbox(app, id).await?;
    let forks = app.service.sandboxes.fork(caller.workspace(), &parent, fork_spec(request, usual)?).await?;
    Ok((StatusCode::CREATED, Json(fork_view(&forks))))
}

/// Choose one child of a fork
///
/// With `cleanup_siblings`, the other children of the same fork are ended. The child itself does not change.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/promote", request_body = Option<PromoteRequest>,
    responses((status = 200, body = PromoteView)),
)]
async fn promote(call: SandboxCall<Run>, body: JsonBody<PromoteRequest>) -> Result<Json<PromoteView>, ApiError> {
    call.app.engine.settled().await;
    let winner = call.sandbox.info();
    let own = tree_of(&winner).ok_or_else(|| ApiError::conflict("not_a_fork", "this sandbox is no child of a fork"))?;
    let tree_id = body.value.tree_id.filter(|tree| !tree.is_empty()).unwrap_or_else(|| own.to_owned());
    if tree_id != own {
        return Err(ApiError::bad_request("the sandbox does not belong to that tree"));
    }
    let mut view =
        PromoteView { winner: winner.id.to_string(), tree_id, deleted: Vec::new(), failures: BTreeMap::new() };
    if body.value.cleanup_siblings {
        for sibling in call.app.engine.list_of(call.workspace().as_str()) {
            if sibling.id == winner.id || tree_of(&sibling) != Some(&view.tree_id) {
                continue;
            }
            let Some(sandbox) = call.app.engine.find(call.workspace().as_str(), &sibling.id).await else { continue };
            match sandbox.end(EndReason::Requested).await {
                Ok(()) => view.deleted.push(sibling.id.to_string()),
                Err(error) => drop(view.failures.insert(sibling.id.to_string(), error.to_string())),
            }
        }
    }
    Ok(Json(view))
}

fn tree_of(info: &SandboxInfo) -> Option<&str> {
    info.fork.as_ref().map(|place| place.tree.as_str())
}

/// List the relatives of a sandbox
///
/// The sandbox and all living sandboxes with the same first ancestor. Those in between may have ended.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/family", responses((status = 200, body = Vec<RelativeView>)))]
async fn family(call: SandboxCall<Read>) -> Result<Json<Vec<RelativeView>>, ApiError> {
    call.app.engine.settled().await;
    let sandbox = call.sandbox.info();
    let all = call.app.engine.list_of(call.workspace().as_str());
    let mut parents: BTreeMap<_, _> = all.iter().map(|info| (info.id.clone(), info.parent.clone())).collect();
    let own = root(&call.app, &mut parents, &sandbox.id)?;
    let mut relatives = Vec::new();
    for info in all {
        if root(&call.app, &mut parents, &info.id)? == own {
            relatives.push(RelativeView {
                id: info.id.to_string(),
                parent_id: info.parent.as_ref().map(ToString::to_string),
                created_at: info.created_at.to_string(),
            });
        }
    }
    Ok(Json(relatives))
}

/// The first ancestor whose row still exists, ended or not.
fn root(
    app: &App,
    parents: &mut BTreeMap<SandboxId, Option<SandboxId>>,
    of: &SandboxId,
) -> Result<SandboxId, ApiError> {
    let mut at = of.clone();
    loop {
        let parent = match parents.get(&at) {
            Some(parent) => parent.clone(),
            None => {
                let parent = app.engine.parent_of_ended(&at)?;
                parents.insert(at.clone(), parent.clone());
                parent
            }
        };
        match parent {
            Some(parent) => at = parent,
            None => return Ok(at),
        }
    }
}
