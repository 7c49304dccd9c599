//! Previews: tokens for them, and the three ways to reach one.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{self, HeaderValue, header};
use axum::middleware::Next;
use axum::routing::any;
use jiff::{SignedDuration, Timestamp};
use sandling_engine::SandboxId;
use sandling_service::PreviewToken;
use sandling_wire::{CreatePreview, PreviewView};

use crate::prelude::*;
use crate::preview::host::{self, Origin};
use crate::preview::page::ErrorForm;
use crate::preview::{authorize, proxy};

const DEFAULT_TTL: u64 = 3600;
const MAX_TTL: u64 = 7 * 24 * 3600;
const MAX_PATHS: usize = 32;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(revoke))
        .route("/v1/sandboxes/{id}/proxy/{port}", any(by_path))
        .route("/v1/sandboxes/{id}/proxy/{port}/", any(by_path))
        .route("/v1/sandboxes/{id}/proxy/{port}/{*path}", any(by_path))
        .route("/v1/p/{token}", any(by_token))
        .route("/v1/p/{token}/", any(by_token))
        .route("/v1/p/{token}/{*path}", any(by_token))
}

/// Create a preview token
///
/// It opens one port of one sandbox until it expires or is revoked.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/preview-token", request_body = CreatePreview,
    responses((status = 201, body = PreviewView)),
)]
async fn create(
    call: SandboxCall<Run>,
    origin: Origin,
    body: JsonBody<CreatePreview>,
) -> Result<(StatusCode, Json<PreviewView>), ApiError> {
    let request = checked(body.value)?;
    let ttl = request.ttl_seconds.unwrap_or(DEFAULT_TTL);
    let expires = Timestamp::now() + SignedDuration::from_secs(ttl as i64);
    let token = PreviewToken {
        id: sandling_service::random::hex::<8>(),
        origin: call.caller.principal.token_prefix.clone(),
        workspace: call.workspace().to_string(),
        sandbox: call.sandbox.id().to_string(),
        port: request.port,
        paths: request.paths.unwrap_or_default(),
        expires_unix: expires.as_second(),
    };
    call.context.made(&token.id);
    let signed = call.app.service.previews.issue(call.workspace(), &token)?;
    Ok((StatusCode::CREATED, Json(view(&origin, token, signed))))
}

fn checked(request: CreatePreview) -> Result<CreatePreview, ApiError> {
    let paths = request.paths.as_deref().unwrap_or_default();
    if request.port == 0 {
        return Err(ApiError::bad_request("port must be between 1 and 65535"));
    }
    if request.ttl_seconds.is_some_and(|ttl| !(1..=MAX_TTL).contains(&ttl)) {
        return Err(ApiError::bad_request(format!("ttl_seconds must be between 1 and {MAX_TTL}")));
    }
    if paths.len() > MAX_PATHS || paths.iter().any(|path| !path.starts_with('/') || path.len() > 256) {
        let message = format!("paths may have {MAX_PATHS} entries that begin with a slash and have up to 256 bytes");
        return Err(ApiError::bad_request(message));
    }
    Ok(request)
}

fn view(origin: &Origin, token: PreviewToken, signed: String) -> PreviewView {
    let expires = Timestamp::from_second(token.expires_unix).unwrap_or_default();
    PreviewView {
        url: format!("{}?sandling_token={signed}", origin.preview_url(token.port, &token.sandbox)),
        path_url: origin.api_url(&format!("/v1/p/{signed}/")),
        token: signed,
        id: token.id,
        sandbox_id: token.sandbox,
        port: token.port,
        paths: token.paths,
        expires_at: expires.to_string(),
    }
}

/// Revoke a preview token
///
/// By its id, or by the token itself.
#[utoipa::path(delete, path = "/v1/preview-tokens/{token}", responses((status = 204)))]
async fn revoke(call: Call<Run>) -> Result<StatusCode, ApiError> {
    call.app.service.previews.revoke(call.workspace(), &call.item)?;
    call.app.end_unauthorized();
    Ok(StatusCode::NO_CONTENT)
}

/// The sandbox and port of a request, and the part of its path that goes to the server there, as written.
struct Target {
    sandbox: SandboxId,
    port: u16,
    rest: String,
}

/// `/v1/sandboxes/{id}/proxy/{port}/…`, with an API token or a preview token.
async fn by_path(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let form = ErrorForm::of(request.headers());
    forward_by_path(&app, request).await.map_err(|error| form.apply(error))
}

async fn forward_by_path(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let target = direct(parts.uri.path())?;
    let passed = authorize::authorize(app, &parts, &target.sandbox, target.port, &target.rest).await?;
    let request = moved(parts, body, &target.rest)?;
    sandboxed(proxy::forward(app, &passed.sandbox, target.port, request).await?)
}

/// `/v1/p/{token}/…`, for a link without any other token.
async fn by_token(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let form = ErrorForm::of(request.headers());
    forward_by_token(&app, request).await.map_err(|error| form.apply(error))
}

async fn forward_by_token(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (token, target) = signed(app, parts.uri.path())?;
    if let Some(context) = parts.extensions.get::<RequestContext>() {
        context.came_with_preview(&token);
    }
    authorize::count_preview(app, &parts, &token)?;
    let sandbox = app.engine.find(&token.workspace, &target.sandbox).await;
    let sandbox = sandbox.ok_or_else(|| ApiError::not_found("sandbox"))?;
    let request = moved(parts, body, &target.rest)?;
    sandboxed(proxy::forward(app, &sandbox, target.port, request).await?)
}

/// `{port}-{id}.…`: every port has its own host. Requests to all other hosts go to the API.
pub(crate) async fn by_host(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let place = host::parse(host::of(request.headers()));
    let Some((port, id)) = place.filter(|_| request.extensions().get::<host::Claimed>().is_none()) else {
        return next.run(request).await;
    };
    let form = ErrorForm::of(request.headers());
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let passed = match authorize::authorize(&app, &parts, &id, port, &path).await {
        Ok(passed) => passed,
        Err(error) => return form.apply(error).into_response(),
    };
    let request = Request::from_parts(parts, body);
    match proxy::forward(&app, &passed.sandbox, port, request).await {
        Ok(mut response) => {
            if let Some(cookie) = passed.cookie {
                response.headers_mut().append(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(error) => form.apply(error).into_response(),
    }
}

fn direct(path: &str) -> Result<Target, ApiError> {
    let mut pieces = path.splitn(7, '/').skip(3);
    let (id, _, port) = (pieces.next(), pieces.next(), pieces.next());
    let sandbox = id.and_then(SandboxId::parse).ok_or_else(|| ApiError::not_found("sandbox"))?;
    let port = port.and_then(|port| port.parse().ok()).filter(|port| *port > 0);
    let port = port.ok_or_else(|| ApiError::bad_request("port must be between 1 and 65535"))?;
    Ok(Target { sandbox, port, rest: format!("/{}", pieces.next().unwrap_or_default()) })
}

fn signed(app: &App, path: &str) -> Result<(PreviewToken, Target), ApiError> {
    let refused =
        || ApiError::new(StatusCode::UNAUTHORIZED, "preview_token_invalid", "this preview token does not work");
    let mut pieces = path.splitn(5, '/').skip(3);
    let token = pieces.next().and_then(|text| app.service.previews.check(text)).ok_or_else(refused)?;
    let rest = format!("/{}", pieces.next().unwrap_or_default());
    let sandbox = SandboxId::parse(&token.sandbox).ok_or_else(refused)?;
    let target = Target { sandbox, port: token.port, rest };
    if !token.allows(target.sandbox.as_str(), target.port, &target.rest) {
        return Err(refused());
    }
    Ok((token, target))
}

/// The request with the path of the server in the sandbox.
fn moved(mut parts: http::request::Parts, body: Body, path: &str) -> Result<Request, ApiError> {
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    parts.uri = format!("{path}{query}").parse().map_err(|_| ApiError::bad_request("the path cannot be passed on"))?;
    Ok(Request::from_parts(parts, body))
}

/// In a browser, a page under the API's address gets no rights of that address.
fn sandboxed(mut response: Response) -> Result<Response, ApiError> {
    let policy =
        HeaderValue::from_static("sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts");
    response.headers_mut().append(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_path_is_passed_on_as_it_was_written() {
        let id = "0b5e6a52-6d8f-4b0e-9c55-0a3f6f1f3a11";
        let target = direct(&format!("/v1/sandboxes/{id}/proxy/3000/a%2Fb//c/")).unwrap();
        assert_eq!((target.port, target.rest.as_str()), (3000, "/a%2Fb//c/"));
        assert_eq!(direct(&format!("/v1/sandboxes/{id}/proxy/3000")).unwrap().rest, "/");
        for bad in [
            format!("/v1/sandboxes/{id}/proxy/0/"),
            format!("/v1/sandboxes/{id}/proxy/x/"),
            "/v1/sandboxes/x/proxy/1/".to_owned(),
        ] {
            assert!(direct(&bad).is_err(), "{bad}");
        }
    }
}
