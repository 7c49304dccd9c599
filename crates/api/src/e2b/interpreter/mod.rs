//! Code in live interpreters, as E2B's code interpreter offers it; here the sandbox's own contexts run it.

mod contexts;
mod execute;
mod lines;
mod result;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().merge(execute::router()).merge(contexts::router())
}
