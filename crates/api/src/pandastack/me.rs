//! The caller, with the fields that only PandaStack has.

use axum::routing::get;
use sandling_wire::MeView;
use serde::Serialize;

use crate::prelude::*;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/v1/me", get(me))
}

/// An organization of PandaStack is a workspace here, and a token has exactly one.
#[derive(Serialize)]
struct UserView {
    #[serde(flatten)]
    me: MeView,
    current_org: String,
    orgs: [String; 1],
    auth_method: &'static str,
}

async fn me(caller: Caller<Read>) -> Json<UserView> {
    let me = caller.principal.into_wire();
    let workspace = me.workspace.clone();
    Json(UserView { me, current_org: workspace.clone(), orgs: [workspace], auth_method: "token" })
}
