//! All routes together, the layers around them, and the document that describes them.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as Document, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::error::ApiError;
use crate::{e2b, request, routes};

#[derive(OpenApi)]
#[openapi(
    info(title = "Sandling", description = "A disposable computer for every AI agent."),
    components(schemas(
        sandling_wire::ErrorBody, sandling_wire::WriteName, sandling_wire::Flag, routes::logs::StreamName,
        sandling_wire::DiffFormat
    )),
    modifiers(&BearerTokens),
    tags(
        (name = "sandboxes"), (name = "exec"), (name = "repl"), (name = "files"), (name = "lifecycle"),
        (name = "forks"), (name = "snapshots"), (name = "checkpoints"), (name = "network"), (name = "logs"),
        (name = "events"), (name = "metrics"), (name = "terminals"), (name = "templates"), (name = "access"),
        (name = "server"),
        (name = "previews", description = "A server on any port of a sandbox is reachable at \
            `{port}-{id}.localhost`, at `/v1/sandboxes/{id}/proxy/{port}/…` and at `/v1/p/{token}/…`, by any method and \
            as a WebSocket, with an API token or a preview token. The token goes into the query as `sandling_token`, \
            into the header `X-Sandling-Preview-Token`, or into the path; a browser then keeps it in a cookie."),
    ),
)]
struct Api;

struct BearerTokens;

impl Modify for BearerTokens {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
        document.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>("token", [])]);
    }
}

/// Statuses that any route may answer with, and what they mean.
const ERRORS: [(&str, &str); 14] = [
    ("400", "The request does not fit"),
    ("401", "The token is missing, unknown, expired or revoked"),
    ("403", "The token's scope, or the sandbox, does not allow it"),
    ("404", "There is no such thing in the caller's workspace"),
    ("408", "The body came too slowly"),
    ("409", "It does not fit the state that things are in"),
    ("413", "The body is too large"),
    ("415", "The body is not JSON"),
    ("422", "The guest could not do it, or the idempotency key was used for another request"),
    ("429", "A quota is reached; with Retry-After, only for the moment"),
    ("500", "Something broke inside the server"),
    ("502", "The guest died or does not answer"),
    ("503", "The server has no room at the moment"),
    ("507", "There is no space left"),
];

fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Api::openapi())
        .merge(routes::sandboxes::router())
        .merge(routes::exec::router())
        .merge(routes::exec_stream::router())
        .merge(routes::exec_session::router())
        .merge(routes::exec_ws::router())
        .merge(routes::execs::router())
        .merge(routes::repl::router())
        .merge(routes::files::router())
        .merge(routes::files_content::router())
        .merge(routes::files_change::router())
        .merge(routes::lifecycle::router())
        .merge(routes::forks::router())
        .merge(routes::context_forks::router())
        .merge(routes::snapshots::router())
        .merge(routes::timeline::router())
        .merge(routes::diff::router())
        .merge(routes::snapshot_files::router())
        .merge(routes::volumes::router())
        .merge(routes::logs::router())
        .merge(routes::events::router())
        .merge(routes::metrics::router())
        .merge(routes::network::router())
        .merge(routes::network_defaults::router())
        .merge(routes::secrets::router())
        .merge(routes::ports::router())
        .merge(routes::preview::router())
        .merge(routes::terminal::router())
        .merge(routes::templates::router())
        .merge(routes::template_builds::router())
        .merge(routes::me::router())
        .merge(routes::tokens::router())
        .merge(routes::workspaces::router())
        .merge(routes::quota::router())
        .merge(routes::audit::router())
        .merge(routes::health::router())
        .merge(routes::openapi::router())
}

/// The whole API, ready to be served.
pub(crate) fn build(app: Arc<App>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .merge(e2b::routes())
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(app.clone(), routes::preview::by_host))
        .layer(middleware::from_fn_with_state(app.clone(), e2b::by_place))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(app.clone(), request::layer))
        .with_state(app)
}

async fn no_such_route(request: Request) -> ApiError {
    let message = format!("there is no route {} {}", request.method(), request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND, "no_such_route", message)
}

async fn no_such_method(request: Request) -> ApiError {
    let message = format!("{} cannot be used on this route", request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", message)
}

/// The panic itself is in the log.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    let message = "something broke inside the server; its log says what";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).into_response()
}

/// The document that describes the API.
pub(crate) fn openapi() -> Document {
    let mut document = routes().into_openapi();
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("delete", &mut item.delete),
            ("patch", &mut item.patch),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            operation.operation_id = Some(operation_id(method, path));
            leave_events_open(operation);
            add_errors(operation);
        }
    }
    document
}

/// A name that no other operation has, e.g. `get_sandboxes_id_fs`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split('/').filter(|word| !word.is_empty() && *word != "v1");
    words.fold(method.to_owned(), |id, word| id + "_" + &word.trim_matches(['{', '}']).replace('-', "_"))
}

/// An event stream is no string; what its events hold is told in words.
fn leave_events_open(operation: &mut Operation) {
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response
            && let Some(RefOr::T(content)) = response.content.get_mut("text/event-stream")
        {
            content.schema = None;
        }
    }
}

fn add_errors(operation: &mut Operation) {
    if operation.responses.responses.contains_key("101") {
        operation.responses.responses.insert("426".to_owned(), error_response("This is a WebSocket"));
    }
    for (status, meaning) in ERRORS {
        if !operation.responses.responses.contains_key(status) {
            operation.responses.responses.insert(status.to_owned(), error_response(meaning));
        }
    }
}

fn error_response(meaning: &str) -> RefOr<utoipa::openapi::Response> {
    let schema = RefOr::Ref(Ref::from_schema_name("ErrorBody"));
    let content = ContentBuilder::new().schema(Some(schema)).build();
    RefOr::T(ResponseBuilder::new().description(meaning).content("application/json", content).build())
}

/// The document as it is served and kept beside the code.
pub fn openapi_json() -> String {
    let json = openapi().to_pretty_json().expect("the document has string keys and no failing serializer");
    // The generator splits words where there are none: the registry of formats has `uint32`.
    json.replace(r#""format": "u-int"#, r#""format": "uint"#) + "\n"
}
