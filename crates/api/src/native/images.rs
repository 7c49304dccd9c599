//! Registries that images come from, and pulls in progress.

use axum::extract::State;
use sandling_service::{PullView, RegistryLogin};
use sandling_wire::{ImagePull, ImagePulls, RegistryList, RegistryView, SetRegistry};
use zeroize::Zeroizing;

use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(pulls)).routes(routes!(list)).routes(routes!(set, remove))
}

/// List pulls of images that are in progress
///
/// A create with an `image` that the workspace does not have yet waits for one of them.
#[utoipa::path(get, path = "/v1/images/pulls", responses((status = 200, body = ImagePulls)))]
async fn pulls(State(app): State<Arc<App>>, caller: Caller<Read>) -> Json<ImagePulls> {
    let pulls = app.service.images.pulls(caller.workspace()).into_iter().map(pull_view).collect();
    Json(ImagePulls { pulls })
}

/// List registries with credentials
///
/// Names and users. No response contains a password.
#[utoipa::path(get, path = "/v1/registries", responses((status = 200, body = RegistryList)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<RegistryList>, ApiError> {
    let registries = app.service.images.logins(caller.workspace())?.into_iter().map(registry_view).collect();
    Ok(Json(RegistryList { registries }))
}

/// Store credentials for a registry
///
/// They are encrypted, used for pulls of this workspace only, and sent only to this registry and its token server.
/// Storing them again replaces them. If the registry refuses them, they are not stored. If it does not answer, the next
/// pull checks them.
#[utoipa::path(
    put, path = "/v1/registries/{registry}", request_body = SetRegistry, responses((status = 200, body = RegistryView)),
)]
async fn set(call: Call<Admin>, body: JsonBody<SetRegistry>) -> Result<Json<RegistryView>, ApiError> {
    let SetRegistry { username, password } = body.value;
    let password = Zeroizing::new(password);
    let images = &call.app.service.images;
    let login = images.log_in_checked(call.workspace(), &call.item, &username, &password).await?;
    Ok(Json(registry_view(login)))
}

/// Remove the credentials for a registry
///
/// Templates of images that were pulled with them stay.
#[utoipa::path(delete, path = "/v1/registries/{registry}", responses((status = 204)))]
async fn remove(call: Call<Admin>) -> Result<StatusCode, ApiError> {
    match call.app.service.images.log_out(call.workspace(), &call.item)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found("registry")),
    }
}

fn registry_view(login: RegistryLogin) -> RegistryView {
    RegistryView { registry: login.registry, username: login.username, created_at: login.created_at.to_string() }
}

fn pull_view(pull: PullView) -> ImagePull {
    let (done, total) = pull.progress.unzip();
    ImagePull { image: pull.image, started_at: pull.started_at.to_string(), step: pull.step, done, total }
}
