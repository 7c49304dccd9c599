//! All routes of the dialect.

use std::sync::Arc;

use axum::{Router, middleware};

use super::refusal::shaped;
use super::{control, envd, interpreter};
use crate::app::App;
use crate::error::Shape;

pub(crate) fn routes() -> Router<Arc<App>> {
    let with = |shape: Shape| middleware::from_fn(move |request, next| shaped(shape, request, next));
    Router::new()
        .merge(control::router().layer(with(Shape::E2b)))
        .merge(envd::calls().layer(with(Shape::Connect)))
        .merge(envd::files().layer(with(Shape::E2b)))
        .merge(interpreter::router().layer(with(Shape::Plain)))
}
