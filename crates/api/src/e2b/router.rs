//! All routes of the E2B dialect.

use std::sync::Arc;

use axum::response::Response;
use axum::{Router, middleware};

use super::refusal::{CONNECT, CONTROL, PLAIN, shaped};
use super::{control, envd, interpreter, origins};
use crate::app::App;
use crate::error::Shape;

pub(crate) fn routes() -> Router<Arc<App>> {
    let shared = || middleware::map_response(async |response: Response| origins::share(response));
    let with = |shape: Shape| middleware::from_fn(move |request, next| shaped(shape, request, next));
    Router::new()
        .merge(control::router().layer(with(CONTROL)))
        .merge(envd::calls().layer(with(CONNECT)).layer(shared()))
        .merge(envd::plain().layer(with(CONTROL)).layer(shared()))
        .merge(interpreter::router().layer(with(PLAIN)).layer(shared()))
}
