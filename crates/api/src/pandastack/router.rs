//! The routes of the dialect, and what all of its requests have.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;

use super::renewal::Renewals;
use super::{create, exec_ws};
use crate::app::App;
use crate::auth::UseObserver;

/// The routes that differ from those of our own API.
pub(crate) fn routes() -> Router<Arc<App>> {
    create::router().merge(exec_ws::router())
}

/// A request of the dialect, which renews the time to live of the sandbox that it uses.
pub(crate) fn entered(app: &App, mut request: Request) -> Request {
    let renewals = app.dialect_state::<Renewals>();
    let observer = move |sandbox| Box::pin(Renewals::clone(&renewals).used(sandbox)) as _;
    request.extensions_mut().insert(UseObserver(Arc::new(observer)));
    request
}
