//! New volumes: one is created on the node that gets the request, under a name that no node has.

use axum::extract::Request;
use axum::response::Response;
use serde::Deserialize;

use super::find::Sought;
use super::here::{Here, Opened, Opening};
use super::member::Fleet;
use crate::app::App;
use crate::error::ApiError;

#[derive(Deserialize)]
struct Wanted {
    name: String,
}

pub(super) async fn create(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let opened = match Opened::read(app, request).await? {
        Opening::Opened(opened) => opened,
        Opening::NoToken(request) => return Ok(here.answer(request).await),
    };
    // A body that cannot be read is refused below.
    if let Ok(wanted) = serde_json::from_slice::<Wanted>(&opened.body) {
        Sought::volume(opened.principal.workspace.as_str(), &wanted.name).refuse_taken(fleet, app).await?;
    }
    Ok(here.answer(opened.request()).await)
}
