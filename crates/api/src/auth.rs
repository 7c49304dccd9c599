//! Authenticates and authorizes requests.
//!
//! A handler declares the scope it needs by its argument's type: [`Caller<Read>`], [`Caller<Run>`] and so on. Objects
//! are looked up through the caller, so objects of other workspaces are never visible.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use futures_util::future::BoxFuture;
use sandling_engine::{Call, Refused, Sandbox, SandboxId, SandboxInfo};
use sandling_service::{Principal, Scope, WorkspaceName};
use sandling_wire::Dialect;

use crate::app::App;
use crate::audit;
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::request_limits::{self, Holder};

/// A scope as a type.
pub(crate) trait Need: Send + Sync {
    const SCOPE: Scope;
}

pub(crate) struct Read;
pub(crate) struct Run;
pub(crate) struct Admin;
pub(crate) struct Operator;

impl Need for Read {
    const SCOPE: Scope = Scope::Read;
}
impl Need for Run {
    const SCOPE: Scope = Scope::Run;
}
impl Need for Admin {
    const SCOPE: Scope = Scope::Admin;
}
impl Need for Operator {
    const SCOPE: Scope = Scope::Operator;
}

/// The principal of a request that came with the session of a browser instead of a token.
#[derive(Clone)]
pub(crate) struct SignedIn(pub(crate) Principal);

/// The caller of the request, who has at least the scope `N`.
pub(crate) struct Caller<N> {
    pub(crate) principal: Principal,
    /// The form of the caller's token.
    pub(crate) dialect: Dialect,
    /// Delays a hibernation of the sandbox that the request uses.
    _call: Option<Call>,
    need: PhantomData<N>,
}

impl<N> Caller<N> {
    pub(crate) fn workspace(&self) -> &WorkspaceName {
        &self.principal.workspace
    }

    /// Finds a sandbox of the caller's workspace by its id or name. An invalid id is also reported as not found.
    pub(crate) async fn sandbox(&self, app: &App, id: &str) -> Result<Arc<Sandbox>, ApiError> {
        let workspace = self.workspace().as_str();
        let missing = || self.ended(app, id).unwrap_or_else(|| ApiError::not_found("sandbox"));
        let id = app.engine.resolve(workspace, id).ok_or_else(missing)?;
        let found = app.engine.find(workspace, &id).await;
        found.ok_or_else(|| self.unreadable(app, &id).map_or_else(missing, |_| Refused::Unreadable.into()))
    }

    /// Why a sandbox that existed is missing. The public clients of other dialects expect one fixed text.
    fn ended(&self, app: &App, named: &str) -> Option<ApiError> {
        let named = SandboxId::parse(named).map_or_else(|| named.to_owned(), |id| id.to_string());
        // If the store cannot be read, the sandbox is missing without a reason.
        let (info, why) = app.engine.last_ended(self.workspace().as_str(), &named).ok()??;
        let message = format!("sandbox {} has ended: {why}", info.name.unwrap_or_else(|| info.id.to_string()));
        let error = ApiError::new(StatusCode::NOT_FOUND, "sandbox_ended", message);
        (self.dialect == Dialect::Native).then_some(error)
    }

    /// A sandbox of the caller's workspace whose row cannot be read.
    pub(crate) fn unreadable(&self, app: &App, id: &SandboxId) -> Option<SandboxInfo> {
        app.engine.find_unreadable(self.workspace().as_str(), id)
    }
}

impl<N: Need> FromRequestParts<Arc<App>> for Caller<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let presented = presented(parts);
        let principal = match parts.extensions.get::<SignedIn>() {
            Some(SignedIn(principal)) => principal.clone(),
            None => app.service.tokens.authenticate(&presented)?,
        };
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            context.came_from(&principal);
        }
        request_limits::admit(app, &parts.extensions, &principal.workspace, Holder::Token(&principal.token_prefix))?;
        principal.require(N::SCOPE)?;
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            audit::begin(app, context)?;
        }
        let mut call = None;
        if let Some(id) = used_sandbox(&parts.uri)
            && let Some(id) = app.engine.resolve(principal.workspace.as_str(), id)
            && let Some(sandbox) = app.engine.find(principal.workspace.as_str(), &id).await
        {
            // A token that may only look neither wakes a sandbox nor prolongs its life.
            if principal.scope.allows(Scope::Run) {
                call = Some(awake(&sandbox).await?);
                if let Some(UseObserver(observe)) = parts.extensions.get::<UseObserver>() {
                    observe(sandbox).await;
                }
            } else if sandbox.hibernates() {
                return Err(Refused::Hibernated.into());
            }
        }
        Ok(Self { principal, dialect: Dialect::of_token(&presented), _call: call, need: PhantomData })
    }
}

/// Called before every request that uses a sandbox's machine. A dialect adds it to the requests of its clients.
#[derive(Clone)]
pub(crate) struct UseObserver(pub(crate) Arc<dyn Fn(Arc<Sandbox>) -> BoxFuture<'static, ()> + Send + Sync>);

/// Paths that need a sandbox's virtual machine, not only its record.
const USES: [&str; 14] = [
    "exec",
    "execs",
    "run-code",
    "fs",
    "repl",
    "contexts",
    "ports",
    "proxy",
    "fork",
    "fork-tree",
    "snapshots",
    "logs",
    "resume",
    "metrics",
];

/// The id or name of the sandbox whose machine a request to this address needs. Stored metrics need none.
fn used_sandbox(uri: &Uri) -> Option<&str> {
    let (id, rest) = uri.path().strip_prefix("/v1/sandboxes/")?.split_once('/')?;
    let first = rest.split('/').next()?;
    let is_history = rest == "metrics" && uri.query().is_some_and(|query| !query.is_empty());
    (USES.contains(&first) && !is_history).then_some(id)
}

/// Wakes a hibernated sandbox, also one that is just being saved. Concurrent calls are safe. A hibernation waits a moment
/// for the returned call.
pub(crate) async fn awake(sandbox: &Sandbox) -> Result<Call, ApiError> {
    loop {
        let call = sandbox.steady().await;
        if !sandbox.hibernates() {
            return Ok(call);
        }
        // A hibernation that comes before the wake need not wait for this call.
        drop(call);
        sandbox.wake().await?;
    }
}

/// The bare token of a request; empty if there is none.
pub(crate) fn presented(parts: &Parts) -> String {
    if let Some(token) = bearer(&parts.headers) {
        return token.to_owned();
    }
    if let Some(key) = parts.headers.get(API_KEY).and_then(|key| key.to_str().ok()) {
        return key.to_owned();
    }
    // A browser cannot set headers on a WebSocket or an event stream. For other requests, a token in the URL is
    // ignored, because URLs end up in logs.
    if cannot_set_headers(&parts.headers) { query_value(parts.uri.query(), "access_token") } else { String::new() }
}

/// The token of an `Authorization: Bearer` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    bearer_of(headers.get(header::AUTHORIZATION)?.to_str().ok()?)
}

pub(crate) fn bearer_of(value: &str) -> Option<&str> {
    let (kind, token) = value.split_once(' ')?;
    kind.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The header that E2B's clients send their key in.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

fn cannot_set_headers(headers: &HeaderMap) -> bool {
    let says = |name, word| {
        headers.get(name).and_then(|v| v.to_str().ok()).is_some_and(|v| v.to_ascii_lowercase().contains(word))
    };
    says(header::UPGRADE, "websocket") || says(header::ACCEPT, "text/event-stream")
}

/// The first value of a name in a query string; empty if there is none.
pub(crate) fn query_value(query: Option<&str>, name: &str) -> String {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query.unwrap_or_default()).unwrap_or_default();
    pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn token_of(request: axum::http::request::Builder) -> String {
        presented(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_token_in_the_query_counts_only_where_a_browser_can_set_no_header() {
        let uri = "/v1/events?access_token=abc";
        assert_eq!(token_of(Request::get(uri)), "");
        assert_eq!(token_of(Request::get(uri).header("upgrade", "websocket")), "abc");
        assert_eq!(token_of(Request::get(uri).header("accept", "text/event-stream")), "abc");
    }

    #[test]
    fn only_what_needs_a_machine_wakes_one() {
        let id = "0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11";
        let wakes = |rest: &str| used_sandbox(&format!("/v1/sandboxes/{id}{rest}").parse().unwrap()).is_some();
        assert!(wakes("/exec") && wakes("/fs/stat") && wakes("/exec/stream") && wakes("/fork"));
        assert!(wakes("/exec/pty"), "a terminal");
        assert!(wakes("/logs"), "a console is its machine's");
        assert!(!wakes("") && !wakes("/") && !wakes("/lifecycle") && !wakes("/hibernate") && !wakes("/events"));
        assert!(wakes("/metrics") && !wakes("/metrics?from=1"), "stored metrics");
    }

    #[test]
    fn what_is_said_to_need_a_machine_is_a_route() {
        let document = serde_json::to_value(crate::native::openapi()).unwrap();
        let paths: Vec<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
        // Paths of previews belong to the servers in sandboxes, and no document lists them.
        for used in USES.iter().filter(|used| **used != "proxy") {
            let route = format!("/v1/sandboxes/{{id}}/{used}");
            let known = |path: &String| *path == route || path.starts_with(&format!("{route}/"));
            assert!(paths.iter().any(known), "{used}");
        }
    }

    #[test]
    fn the_header_wins_and_its_kind_must_be_bearer() {
        let uri = "/?access_token=abc";
        let with = |value: &str| Request::get(uri).header("authorization", value).header("upgrade", "websocket");
        assert_eq!(token_of(with("Bearer xyz")), "xyz");
        assert_eq!(token_of(with("bearer  xyz ")), "xyz");
        assert_eq!(token_of(with("Basic xyz")), "abc");
    }
}
