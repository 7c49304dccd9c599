//! E2B's code interpreter API. The sandbox's own contexts run the code.

mod bridge;
mod contexts;
mod execute;
mod lines;
mod result;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The clients send a double slash if the base URL ends with a slash.
const BELOW: [&str; 2] = ["", "/"];

pub(super) fn router() -> Router<Arc<App>> {
    BELOW.iter().fold(Router::new(), |all, below| all.merge(execute::router(below)).merge(contexts::router(below)))
}
