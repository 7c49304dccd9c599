//! The caller.

use std::sync::Arc;

use axum::Json;
use sandling_wire::MeView;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read};
use crate::convert::IntoWire;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(me))
}

/// Show the user of the token
#[utoipa::path(get, path = "/v1/me", tag = "access", responses((status = 200, body = MeView)))]
async fn me(caller: Caller<Read>) -> Json<MeView> {
    Json(caller.principal.into_wire())
}
