//! The three dialects on one address, and the layers around them.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use sandling_wire::Dialect;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::audit::Action;
use crate::auth::presented;
use crate::error::ApiError;
use crate::fleet::Fleet;
use crate::request::{self, RequestLayer};
use crate::{dashboard, e2b, native, pandastack};

/// The whole API, ready to be served.
///
/// E2B's clients have paths of their own. Those of PandaStack share paths with our own API, so the form of the token
/// selects the routes; a request that the dialect has no route for goes to our own.
pub(crate) fn build(app: Arc<App>) -> Router {
    let (own, _) = native::routes().split_for_parts();
    let own = own.merge(e2b::routes()).fallback(no_such_route).method_not_allowed_fallback(no_such_method);
    let own = own
        .layer(middleware::from_fn_with_state(app.clone(), native::preview::by_host))
        .layer(middleware::from_fn_with_state(app.clone(), e2b::by_place))
        .layer(middleware::from_fn_with_state(app.clone(), dashboard::gate));
    let own = layered(own, &app, &[native::ACTIONS, e2b::ACTIONS]);
    let (rest, other) = (own.clone(), own.clone());
    let theirs = layered(pandastack::routes(), &app, &[pandastack::ACTIONS])
        .fallback(move |request: Request| rest.oneshot(request))
        .method_not_allowed_fallback(move |request: Request| other.oneshot(request));
    let fleet = Fleet::of(&app);
    Router::new().fallback(move |request: Request| dispatch(app, fleet, own, theirs, request))
}

/// In a fleet, another node may answer.
async fn dispatch(
    app: Arc<App>,
    fleet: Option<Arc<Fleet>>,
    own: Router,
    theirs: Router,
    request: Request,
) -> Result<Response, Infallible> {
    match fleet {
        Some(fleet) => {
            let answer_here = |request| answer_here(app.clone(), own.clone(), theirs.clone(), request);
            Ok(fleet.answer(&app, request, answer_here).await)
        }
        None => answer_here(app, own, theirs, request).await,
    }
}

async fn answer_here(app: Arc<App>, own: Router, theirs: Router, request: Request) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let dialect = Dialect::of_token(&presented(&parts));
    let request = Request::from_parts(parts, body);
    match dialect {
        Dialect::PandaStack => theirs.oneshot(pandastack::entered(&app, request)).await,
        Dialect::Native | Dialect::E2b => own.oneshot(request).await,
    }
}

/// Whether the client has a short read timeout that interim responses restart.
pub(crate) fn wants_interim_responses(headers: &HeaderMap) -> bool {
    pandastack::wants_interim_responses(headers)
}

fn layered(routes: Router<Arc<App>>, app: &Arc<App>, actions: &[&[Action]]) -> Router {
    let layer = RequestLayer { app: app.clone(), actions: actions.concat().into() };
    routes
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(layer, request::layer))
        .with_state(app.clone())
}

async fn no_such_route(request: Request) -> ApiError {
    let message = format!("there is no route {} {}", request.method(), request.uri().path());
    let error = ApiError::new(StatusCode::NOT_FOUND, "no_such_route", message);
    ApiError { shape: e2b::shape_of_client(&request), ..error }
}

async fn no_such_method(request: Request) -> ApiError {
    let message = format!("{} cannot be used on this route", request.method());
    let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", message);
    ApiError { shape: e2b::shape_of_client(&request), ..error }
}

/// The log has the panic itself.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    let message = "something broke inside the server; its log says what";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).into_response()
}
