//! Which sandbox, and which port of it, a request is for.
//!
//! E2B's clients send everything to one address. Two headers name the sandbox and the port: 49983 for processes and
//! files, 49999 for code, any other for a server of the user. The host's first label, `{port}-{id}`, can name them
//! instead. The control plane ignores these headers, because some clients also send them there.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandling_engine::{Call, Sandbox, SandboxId, State as SandboxState};
use sandling_service::{Principal, WorkspaceName};

use super::awake::awake;
use super::control::is_over;
use super::envd::metrics;
use super::gone::{asleep, ended, gone, over};
use super::origins::{preflight, share};
use super::refusal::{self, closed_port};
use super::settings::Settings;
use super::token;
use super::unnamed::signer;
use crate::app::App;
use crate::audit;
use crate::auth::query_value;
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::peer::Peer;
use crate::preview::page::ErrorForm;
use crate::preview::{host, proxy};
use crate::request_limits::{self, Holder};

pub(super) const ENVD: u16 = 49983;
pub(super) const INTERPRETER: u16 = 49999;

const SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");
const SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");
pub(super) const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

const CONTROL: [&str; 11] = [
    "/v1/",
    "/sandboxes",
    "/v2/sandboxes",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/snapshots",
    "/volumes",
    "/volumecontent",
    "/secrets",
    "/default-templates",
];

/// The sandbox and the port that a request goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    id: SandboxId,
    port: u16,
    by_host: bool,
}

/// Finds the destination of a request, and forwards requests for the user's own servers.
pub(crate) async fn by_place(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let place = match place_of(request.headers(), request.uri().path()) {
        Ok(Some(place)) => Some(place),
        Ok(None) => None,
        Err(error) => return error.into_response(),
    };
    // A preflight request has no sandbox headers. A user's own server answers its preflight requests itself.
    if place.as_ref().is_none_or(|place| matches!(place.port, ENVD | INTERPRETER))
        && let Some(answer) = preflight(request.method(), request.headers(), request.uri().path())
    {
        return answer;
    }
    let form = ErrorForm::of(request.headers());
    let Some(place) = place else {
        return match impossible_id(&request) {
            Some(id) => form.apply(gone(id)).into_response(),
            None => next.run(request).await,
        };
    };
    let answer = match (place.port, request.uri().path()) {
        (ENVD | INTERPRETER, "/health") => match count_anybody(&app, &request, &place) {
            Ok(()) => health(&app, &place, request.headers()).await.map(share),
            Err(error) => Err(error),
        },
        (ENVD, "/metrics") => match count_anybody(&app, &request, &place) {
            Ok(()) => metrics(&app, &place, request.headers()).await.map(share),
            Err(error) => Err(error),
        },
        (ENVD | INTERPRETER, _) => {
            request.extensions_mut().insert(host::Claimed);
            request.extensions_mut().insert(place);
            return next.run(request).await;
        }
        _ => match to_port(&app, &place, request).await {
            Ok(PortOutcome::Answered(response)) => Ok(response),
            // The preview routes check preview tokens.
            Ok(PortOutcome::NotOurs(request)) => return asking_for_traffic_token(next.run(request).await, &place),
            Err(error) => Err(error),
        },
    };
    answer.unwrap_or_else(|mut error| {
        error.shape.get_or_insert(refusal::CONTROL);
        // Only by a host name can a browser open a server in a sandbox.
        if place.by_host { form.apply(error) } else { error }.into_response()
    })
}

/// The id in a host name of a sandbox that cannot exist.
fn impossible_id(request: &Request) -> Option<&str> {
    let domain = request.extensions().get::<Peer>().and_then(|peer| peer.route().domain.as_deref());
    host::impossible_id(host::of(request.headers()), domain)
}

fn place_of(headers: &HeaderMap, path: &str) -> Result<Option<Place>, ApiError> {
    if let Some((port, id)) = host::parse_compact(host::of(headers)) {
        return Ok(Some(Place { id, port, by_host: true }));
    }
    let Some(id) = headers.get(SANDBOX_ID).filter(|_| !is_control(path)) else {
        return Ok(None);
    };
    let id = id.to_str().unwrap_or_default();
    let id = parse_id(id).ok_or_else(|| gone(id))?;
    let port = headers.get(SANDBOX_PORT).map_or(Some(ENVD), |port| port.to_str().ok()?.parse().ok());
    let port = port.filter(|port| *port > 0).ok_or_else(|| ApiError::bad_request("E2b-Sandbox-Port is no port"))?;
    Ok(Some(Place { id, port, by_host: false }))
}

pub(super) fn is_control(path: &str) -> bool {
    CONTROL.iter().any(|prefix| {
        path.strip_prefix(prefix.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The sandbox that a request's host or header names.
pub(crate) fn sandbox_of(headers: &HeaderMap, path: &str) -> Option<SandboxId> {
    place_of(headers, path).ok()?.map(|place| place.id)
}

/// Parses a sandbox's id as E2B's clients write it: without dashes. Old clients append a dash and a client id.
pub(crate) fn parse_id(text: &str) -> Option<SandboxId> {
    SandboxId::parse(text).or_else(|| SandboxId::parse(text.split_once('-')?.0))
}

/// Tells whether a sandbox runs, without waking it. If its ports are not public, a request without one of its tokens
/// gets the same answer as for a sandbox that does not exist.
async fn health(app: &App, place: &Place, headers: &HeaderMap) -> Result<Response, ApiError> {
    app.engine.settled().await;
    let sandbox = app.engine.get(&place.id).ok_or_else(|| ended(app, headers, &place.id))?;
    let info = sandbox.info();
    if !opens(app, headers, &place.id).unwrap_or(Settings::of(&info).public_ports) {
        return Err(gone(&place.id.compact()));
    }
    match (info.state, place.port) {
        _ if is_over(&info) => Err(over(&info)),
        (SandboxState::Running | SandboxState::Stalled, ENVD) => Ok(StatusCode::NO_CONTENT.into_response()),
        (SandboxState::Running | SandboxState::Stalled, _) => Ok(Json("OK").into_response()),
        (SandboxState::Hibernated | SandboxState::Paused, _) => Err(asleep(&place.id)),
        (SandboxState::Orphaned | SandboxState::Ended | SandboxState::Unreadable, _) => {
            Err(ended(app, headers, &place.id))
        }
    }
}

enum PortOutcome {
    Answered(Response),
    NotOurs(Request),
}

async fn to_port(app: &App, place: &Place, mut request: Request) -> Result<PortOutcome, ApiError> {
    app.engine.settled().await;
    let sandbox = app.engine.get(&place.id).ok_or_else(|| ended(app, request.headers(), &place.id))?;
    if !Settings::of(&sandbox.info()).public_ports {
        let given = request.headers().get(TRAFFIC_TOKEN).and_then(|token| token.to_str().ok());
        match given {
            Some(given) if token::check_traffic(app, given, &place.id).is_some() => {
                count(app, request.extensions(), &place.id, Holder::Sandbox(&place.id))?;
            }
            None if place.by_host => return Ok(PortOutcome::NotOurs(request)),
            _ => return Err(needs_traffic_token(place)),
        }
    } else {
        count_anybody(app, &request, place)?;
    }
    let (sandbox, _call) = awake(app, request.headers(), &place.id).await?;
    for name in [SANDBOX_ID, SANDBOX_PORT, ACCESS_TOKEN, TRAFFIC_TOKEN, crate::auth::API_KEY] {
        request.headers_mut().remove(name);
    }
    let answer = proxy::forward(app, &sandbox, place.port, request).await;
    answer.map(PortOutcome::Answered).map_err(|error| match error.code {
        "nothing_listens" => closed_port(&place.id, place.port),
        _ => error,
    })
}

fn needs_traffic_token(place: &Place) -> ApiError {
    let message = format!("this sandbox's servers need its traffic access token, in the header {TRAFFIC_TOKEN}");
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message).with("sandboxId", place.id.compact())
}

/// A program that sends no token at all gets E2B's refusal. A browser keeps the preview's page.
fn asking_for_traffic_token(mut response: Response, place: &Place) -> Response {
    if let Some(error) = response.extensions_mut().get_mut::<ApiError>()
        && error.code == "token_missing"
        && error.shape.is_none()
    {
        *error = ApiError { shape: Some(refusal::CONTROL), ..needs_traffic_token(place) };
    }
    response
}

/// The sandbox whose processes and files a request uses, and the user it acts as.
pub(super) struct Envd {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) settings: Settings,
    user: Option<String>,
    _call: Call,
}

/// The sandbox whose contexts a request uses. The clients send its traffic token for contexts, and its access token to
/// run code: see [`Runner`].
pub(super) struct Interpreter {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) settings: Settings,
    _call: Call,
}

/// The sandbox that a request runs code in, after a check of its access token.
pub(super) struct Runner(pub(super) Interpreter);

impl Envd {
    /// The user that the request names, or the template's default.
    pub(super) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or_else(|| self.settings.user())
    }

    async fn enter(
        app: &App,
        parts: &Parts,
        holder: &Principal,
        id: &SandboxId,
        user: Option<String>,
    ) -> Result<Self, ApiError> {
        begin(app, parts, holder, id.as_str())?;
        let (sandbox, call) = awake(app, &parts.headers, id).await?;
        let settings = Settings::of(&sandbox.info());
        Ok(Self { sandbox, settings, user, _call: call })
    }

    /// For a file's URL. A signed URL needs no token and names no sandbox.
    pub(super) async fn of_file(app: &App, parts: &Parts, operation: &'static str) -> Result<Self, ApiError> {
        let query = |name| query_value(parts.uri.query(), name);
        let (user, signature) = (query("username"), query("signature"));
        let named = named(app, parts).await;
        let user_name = (!user.is_empty()).then_some(user).or_else(|| basic_user(&parts.headers));
        if signature.is_empty() || parts.headers.contains_key(ACCESS_TOKEN) {
            let id = named.ok_or_else(no_place)?;
            let holder = check_token(app, parts, &id)?;
            return Self::enter(app, parts, &holder, &id, user_name).await;
        }
        let expires = query("signature_expiration").parse::<i64>();
        if expires.is_ok_and(|expires| expires < jiff::Timestamp::now().as_second()) {
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "signature_expired", "signature is already expired"));
        }
        app.engine.settled().await;
        let wrong = || ApiError::new(StatusCode::UNAUTHORIZED, "bad_signature", "invalid signature");
        let (holder, id) = signer(app, parts.uri.query(), operation, named.as_ref()).ok_or_else(wrong)?;
        count(app, &parts.extensions, &id, Holder::Sandbox(&id))?;
        Self::enter(app, parts, &holder, &id, user_name).await
    }
}

impl FromRequestParts<Arc<App>> for Envd {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let id = named(app, parts).await.ok_or_else(no_place)?;
        let holder = check_token(app, parts, &id)?;
        let user = basic_user(&parts.headers);
        Self::enter(app, parts, &holder, &id, user).await
    }
}

impl FromRequestParts<Arc<App>> for Interpreter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let id = interpreters_of(parts)?;
        app.engine.settled().await;
        app.engine.get(&id).ok_or_else(|| ended(app, &parts.headers, &id))?;
        let Some(holder) = opened_by(app, &parts.headers, &id).flatten() else {
            let message = "this sandbox's interpreters need its traffic access token";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
        };
        count(app, &parts.extensions, &id, Holder::Ports(&id))?;
        Self::enter(app, parts, &holder, &id).await
    }
}

impl FromRequestParts<Arc<App>> for Runner {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let id = interpreters_of(parts)?;
        let holder = check_token(app, parts, &id)?;
        Interpreter::enter(app, parts, &holder, &id).await.map(Self)
    }
}

impl Interpreter {
    async fn enter(app: &App, parts: &Parts, holder: &Principal, id: &SandboxId) -> Result<Self, ApiError> {
        begin(app, parts, holder, id.as_str())?;
        let (sandbox, call) = awake(app, &parts.headers, id).await?;
        let settings = Settings::of(&sandbox.info());
        Ok(Self { sandbox, settings, _call: call })
    }
}

fn interpreters_of(parts: &Parts) -> Result<SandboxId, ApiError> {
    let place = parts.extensions.get::<Place>().filter(|place| place.port == INTERPRETER);
    place.map(|place| place.id.clone()).ok_or_else(no_place)
}

/// Whether the given token is one of the sandbox's; `None` if the request has no token.
pub(super) fn opens(app: &App, headers: &HeaderMap, id: &SandboxId) -> Option<bool> {
    opened_by(app, headers, id).map(|holder| holder.is_some())
}

fn opened_by(app: &App, headers: &HeaderMap, id: &SandboxId) -> Option<Option<Principal>> {
    let given = headers.get(TRAFFIC_TOKEN).or(headers.get(ACCESS_TOKEN))?.to_str().unwrap_or_default();
    Some(token::check_traffic(app, given, id).or_else(|| token::check_access(app, given, id)))
}

/// The sandbox that a request names. Some clients omit it; then their token identifies the sandbox.
async fn named(app: &App, parts: &Parts) -> Option<SandboxId> {
    if let Some(place) = parts.extensions.get::<Place>() {
        return Some(place.id.clone());
    }
    let given = parts.headers.get(ACCESS_TOKEN)?.to_str().ok()?;
    app.engine.settled().await;
    token::sandbox_of(app, given)
}

fn no_place() -> ApiError {
    ApiError::bad_request("the headers E2b-Sandbox-Id and E2b-Sandbox-Port must say which sandbox this is for")
}

/// The holder of the request's access token, which must be this sandbox's.
fn check_token(app: &App, parts: &Parts, id: &SandboxId) -> Result<Principal, ApiError> {
    let holder = check_headers(app, &parts.headers, id)?;
    count(app, &parts.extensions, id, Holder::Sandbox(id))?;
    Ok(holder)
}

/// Counts a request that needs no token.
fn count_anybody(app: &App, request: &Request, place: &Place) -> Result<(), ApiError> {
    count(app, request.extensions(), &place.id, Holder::Ports(&place.id))
}

/// Counts a request to a sandbox against the limits of its holder.
fn count(app: &App, extensions: &Extensions, id: &SandboxId, holder: Holder) -> Result<(), ApiError> {
    let workspace = app.engine.get(id).and_then(|sandbox| WorkspaceName::parse(&sandbox.info().workspace));
    workspace.map_or(Ok(()), |workspace| request_limits::admit(app, extensions, &workspace, holder))
}

fn check_headers(app: &App, headers: &HeaderMap, id: &SandboxId) -> Result<Principal, ApiError> {
    let given = headers.get(ACCESS_TOKEN).and_then(|token| token.to_str().ok()).unwrap_or_default();
    // This works for ended sandboxes, too: a client with the right token then learns why the sandbox ended.
    token::check_access(app, given, id).ok_or_else(|| {
        ApiError::new(StatusCode::UNAUTHORIZED, "access_token", "the sandbox's access token is missing or wrong")
    })
}

/// The sandbox of a request that is answered before routing, running and with its token checked.
pub(super) async fn entered(app: &App, place: &Place, headers: &HeaderMap) -> Result<(Arc<Sandbox>, Call), ApiError> {
    check_headers(app, headers, &place.id)?;
    awake(app, headers, &place.id).await
}

/// The user of an `Authorization: Basic` header, which has no password.
fn basic_user(headers: &HeaderMap) -> Option<String> {
    let (kind, text) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let text = String::from_utf8(STANDARD.decode(text.trim()).ok()?).ok()?;
    let user = text.split(':').next().filter(|user| !user.is_empty())?;
    kind.eq_ignore_ascii_case("basic").then(|| user.to_owned())
}

/// Records that the holder of a token acts through a token of this object.
pub(super) fn begin(app: &App, parts: &Parts, holder: &Principal, object: &str) -> Result<(), ApiError> {
    let Some(context) = parts.extensions.get::<RequestContext>() else { return Ok(()) };
    context.came_from(holder);
    context.made(object);
    audit::begin(app, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0b5e6a526d8f4b0e9c550a3f6f1f3a11";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn headers_say_where_a_request_goes_unless_its_path_is_the_control_planes() {
        let both = headers(&[("e2b-sandbox-id", ID), ("e2b-sandbox-port", "49999"), ("host", "127.0.0.1:8080")]);
        assert_eq!(place_of(&both, "/execute").unwrap().unwrap().port, INTERPRETER);
        assert_eq!(place_of(&both, "/sandboxes/x/connect").unwrap(), None);
        assert_eq!(place_of(&both, "/v2/sandboxes").unwrap(), None);
        assert_eq!(place_of(&both, "/sandboxesque").unwrap().unwrap().port, INTERPRETER);
        assert_eq!(place_of(&headers(&[("host", "127.0.0.1")]), "/execute").unwrap(), None);
        let wrong = place_of(&headers(&[("e2b-sandbox-id", "gone")]), "/files").unwrap_err();
        assert_eq!((wrong.status, wrong.message.as_str()), (StatusCode::BAD_GATEWAY, "The sandbox was not found"));
    }

    #[test]
    fn a_host_says_the_same() {
        let host = headers(&[("host", &format!("3000-{ID}.localhost:8080"))]);
        let place = place_of(&host, "/sandboxes").unwrap().unwrap();
        assert_eq!((place.port, place.id.compact().as_str()), (3000, ID));
    }

    #[test]
    fn an_id_may_have_dashes_or_a_clients_id_behind_it() {
        let id = parse_id(ID).unwrap();
        assert_eq!(parse_id(id.as_str()), Some(id.clone()));
        assert_eq!(parse_id(&format!("{ID}-6532622b")), Some(id));
        assert_eq!(parse_id("../etc"), None);
    }

    #[test]
    fn a_user_comes_without_a_password() {
        assert_eq!(basic_user(&headers(&[("authorization", "Basic cm9vdDo=")])).as_deref(), Some("root"));
        assert_eq!(basic_user(&headers(&[("authorization", "Bearer cm9vdDo=")])), None);
        assert_eq!(basic_user(&headers(&[("authorization", "Basic !")])), None);
    }
}
