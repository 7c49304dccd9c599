//! The OpenAPI document of our own API.

use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as Document, PathItem, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::{logs, router};

#[derive(OpenApi)]
#[openapi(
    info(title = "Sandling", description = "A disposable computer for every AI agent."),
    components(schemas(
        sandling_wire::ErrorBody, sandling_wire::WriteName, sandling_wire::Flag, logs::StreamName,
        sandling_wire::DiffFormat
    )),
    modifiers(&BearerTokens),
    tags(
        (name = "sandboxes"), (name = "exec"), (name = "repl"), (name = "files"), (name = "lifecycle"),
        (name = "forks"), (name = "snapshots"), (name = "checkpoints"), (name = "network"), (name = "logs"),
        (name = "events"), (name = "webhooks"), (name = "metrics"), (name = "terminals"), (name = "templates"), (name = "images"), (name = "access"), (name = "agents"),
        (name = "server"),
        (name = "previews", description = "A server on any port of a sandbox is reachable at \
            `{port}-{id}.localhost`, at `/v1/sandboxes/{id}/proxy/{port}/…` and at `/v1/p/{token}/…`, by any method and \
            as a WebSocket, with an API token or a preview token. The token goes into the query as `sandling_token`, \
            into the header `X-Sandling-Preview-Token`, or into the path; a browser then keeps it in a cookie."),
    ),
)]
pub(super) struct Api;

struct BearerTokens;

impl Modify for BearerTokens {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
        document.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>("token", [])]);
    }
}

/// Statuses that any route may return, and their meaning.
const ERRORS: [(&str, &str); 14] = [
    ("400", "The request is invalid"),
    ("401", "The token is missing, unknown, expired or revoked"),
    ("403", "The scope of the token, or the sandbox, does not allow it"),
    ("404", "It does not exist in the caller's workspace"),
    ("408", "The body arrived too slowly"),
    ("409", "It conflicts with the current state"),
    ("413", "The body is too large"),
    ("415", "The body is not JSON"),
    ("422", "The guest could not do it, or the idempotency key was used for another request"),
    ("429", "A quota is reached; with Retry-After, a rate limit"),
    ("500", "An internal error"),
    ("502", "The guest died or does not respond"),
    ("503", "The server has no capacity at the moment"),
    ("507", "There is no space left"),
];

/// The document that describes the API.
pub(crate) fn openapi() -> Document {
    let mut document = router::routes().into_openapi();
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            add_path_parameters(operation, path);
            operation.operation_id = Some(operation_id(method, path));
            leave_events_open(operation);
            add_errors(operation);
        }
    }
    document
}

/// The operations of a path, with their methods.
pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let operations = [
        ("get", &mut item.get),
        ("put", &mut item.put),
        ("post", &mut item.post),
        ("delete", &mut item.delete),
        ("patch", &mut item.patch),
    ];
    operations.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds the variable parts of the path as strings, before the parameters that the operation describes itself.
fn add_path_parameters(operation: &mut Operation, path: &str) {
    let described = operation.parameters.take().unwrap_or_default();
    let variables = path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    let is_described = |name: &str| described.iter().any(|one| matches!(one, RefOr::T(one) if one.name == name));
    let schema = || ObjectBuilder::new().schema_type(Type::String);
    let parameter = |name| ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).schema(Some(schema()));
    let missing = variables.filter(|name| !is_described(name));
    let added = missing.map(|name| RefOr::T(parameter(name).required(Required::True).build()));
    let all: Vec<_> = added.chain(described.iter().cloned()).collect();
    operation.parameters = (!all.is_empty()).then_some(all);
}

/// A name that no other operation has, e.g. `get_sandboxes_id_fs`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split('/').filter(|word| !word.is_empty() && *word != "v1");
    words.fold(method.to_owned(), |id, word| id + "_" + &word.trim_matches(['{', '}']).replace('-', "_"))
}

/// An event stream is no string, and its events are described in words.
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
        operation
            .responses
            .responses
            .insert("426".to_owned(), error_response("The request must be a WebSocket upgrade"));
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

/// The document as JSON.
pub fn openapi_json() -> String {
    let json = openapi().to_pretty_json().expect("the document has string keys and no failing serializer");
    // The generator splits words where there are none: the registry of formats has `uint32`.
    json.replace(r#""format": "u-int"#, r#""format": "uint"#) + "\n"
}
