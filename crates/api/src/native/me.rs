//! The caller.

use sandling_wire::MeView;

use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(me))
}

/// Show the user of the token
#[utoipa::path(get, path = "/v1/me", responses((status = 200, body = MeView)))]
async fn me(caller: Caller<Read>) -> Json<MeView> {
    Json(caller.principal.into_wire())
}
