//! Copies of templates of other nodes.

use sandling_service::Scope;
use sandling_wire::{BuildView, PullTemplate};

use crate::convert::template::build_view;
use crate::fleet::{Fleet, Replace};
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(pull))
}

/// Copy a template from another node
///
/// The node of a fleet that gets the request copies all of the template, or nothing, and bakes it if no bake of the other node
/// fits. The response comes at once; the copy continues and is followed like a build. All workspaces share the built-in
/// templates, so the token must be an operator's for these.
#[utoipa::path(
    post, path = "/v1/templates/{name}/pull", request_body = PullTemplate, responses((status = 202, body = BuildView)),
)]
async fn pull(call: Call<Run>, body: JsonBody<PullTemplate>) -> Result<(StatusCode, Json<BuildView>), ApiError> {
    let PullTemplate { from, replace } = body.value;
    let (app, workspace) = (call.app.clone(), call.workspace().clone());
    let Some(fleet) = Fleet::of(&app) else {
        let message = "this server is in no fleet, so no other node has templates; `sandling template import` reads one from \
                       a file";
        return Err(ApiError::conflict("no_fleet", message));
    };
    let pull = fleet.find_pull(&app, &workspace, &call.item, from.as_deref()).await?;
    if pull.offer.built_in {
        call.caller.principal.require(Scope::Operator)?;
    }
    let replace = if replace.unwrap_or_default() { Replace::Yes } else { Replace::No };
    fleet.check_replaces(&app, &workspace, &pull.offer, replace)?;
    let builds = &call.app.service.builds;
    let build = builds.registry.register(workspace.as_str(), &pull.offer.name)?;
    call.context.made(&build.id);
    let progress = build.clone();
    builds.start_other(build.clone(), async move {
        fleet.pull(&app, &workspace, pull, move |line| progress.report(line)).await
    });
    Ok((StatusCode::ACCEPTED, Json(build_view(&build))))
}
