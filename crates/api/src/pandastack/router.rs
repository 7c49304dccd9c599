//! The routes of the dialect, and what all of its requests have.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;

use super::renewal::Renewals;
use super::trigger_words::remove_trigger_words;
use super::{create, exec_ws, me, metrics, repl};
use crate::app::App;
use crate::audit::Action;
use crate::auth::UseObserver;
use crate::request::ErrorFilter;

/// The audited routes of the dialect.
pub(crate) const ACTIONS: &[Action] = &[
    ("POST", "/v1/sandboxes", "sandbox.create"),
    ("GET", "/v1/sandboxes/{id}/exec/ws", "exec.run"),
    ("POST", "/v1/sandboxes/{id}/repl", "repl.run"),
];

/// The routes that differ from those of our own API.
pub(crate) fn routes() -> Router<Arc<App>> {
    create::router().merge(exec_ws::router()).merge(me::router()).merge(metrics::router()).merge(repl::router())
}

/// A request of the dialect. It renews the time to live of the sandbox that it uses, and its errors have no words that
/// the clients misinterpret.
pub(crate) fn entered(app: &App, mut request: Request) -> Request {
    let renewals = app.dialect_state::<Renewals>();
    let observer = move |sandbox| Box::pin(Renewals::clone(&renewals).used(sandbox)) as _;
    request.extensions_mut().insert(UseObserver(Arc::new(observer)));
    request.extensions_mut().insert(ErrorFilter(remove_trigger_words));
    name_terminal(&mut request);
    request
}

/// PandaStack's name for a terminal is `ssh`; ours is `exec/pty`.
fn name_terminal(request: &mut Request) {
    let path = request.uri().path();
    let Some(sandbox) = path.strip_suffix("/ssh").filter(|path| path.starts_with("/v1/sandboxes/")) else { return };
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    if let Ok(uri) = format!("{sandbox}/exec/pty{query}").parse() {
        *request.uri_mut() = uri;
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn ssh_is_a_terminal() {
        let renamed = |path: &str| {
            let mut request = Request::get(path).body(Body::empty()).unwrap();
            name_terminal(&mut request);
            request.uri().to_string()
        };
        assert_eq!(renamed("/v1/sandboxes/a/ssh?rows=1&cols=2"), "/v1/sandboxes/a/exec/pty?rows=1&cols=2");
        assert_eq!(renamed("/v1/sandboxes/a/ssh"), "/v1/sandboxes/a/exec/pty");
        assert_eq!(renamed("/v1/sandboxes/ssh/exec"), "/v1/sandboxes/ssh/exec");
    }
}
