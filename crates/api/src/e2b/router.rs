//! All routes of the dialect.

use std::sync::Arc;

use axum::response::Response;
use axum::{Router, middleware};

use super::refusal::shaped;
use super::{control, envd, interpreter, origins};
use crate::app::App;
use crate::error::Shape;

pub(crate) fn routes() -> Router<Arc<App>> {
    let shared = || middleware::map_response(async |response: Response| origins::share(response));
    let with = |shape: Shape| middleware::from_fn(move |request, next| shaped(shape, request, next));
    Router::new()
        .merge(control::router().layer(with(Shape::E2b)))
        .merge(envd::calls().layer(with(Shape::Connect)).layer(shared()))
        .merge(envd::plain().layer(with(Shape::E2b)).layer(shared()))
        .merge(interpreter::router().layer(with(Shape::Plain)).layer(shared()))
}
