//! New volumes: one is created on the node that gets the request, under a name that no node has.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use serde::Deserialize;

use super::find::Sought;
use super::member::Fleet;
use crate::app::App;
use crate::auth::presented;
use crate::error::ApiError;
use crate::extract;

#[derive(Deserialize)]
struct Wanted {
    name: String,
}

pub(super) async fn create<F>(
    fleet: &Fleet,
    app: &App,
    request: Request,
    here: impl Fn(Request) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Response>,
{
    let (parts, body) = request.into_parts();
    let Ok(principal) = app.service.tokens.authenticate(&presented(&parts)) else {
        return Ok(here(Request::from_parts(parts, body)).await);
    };
    let body = extract::read(body).await?;
    // A body that cannot be read is refused below.
    if let Ok(wanted) = serde_json::from_slice::<Wanted>(&body) {
        Sought::volume(principal.workspace.as_str(), &wanted.name).refuse_taken(fleet, app).await?;
    }
    Ok(here(Request::from_parts(parts, Body::from(body))).await)
}
