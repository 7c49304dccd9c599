//! Code in live interpreters, as E2B's code interpreter offers it; here the sandbox's own contexts run it.

mod contexts;
mod execute;
mod lines;
mod result;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// Where an address ends with a slash, the clients send two.
const BELOW: [&str; 2] = ["", "/"];

pub(super) fn router() -> Router<Arc<App>> {
    BELOW.iter().fold(Router::new(), |all, below| all.merge(execute::router(below)).merge(contexts::router(below)))
}
